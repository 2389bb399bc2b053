"""The call site's change, on real text."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelopt_bot.targets.target import Target
from kernelopt_bot.targets.wire import Declined, unwired, wire, wired

TEXT = '''"""Serves the model."""
from __future__ import annotations

import os   # keep   this
from shop.net import Encoder


class Server:
    def start(self,  width):   # odd  spacing stays
        if width > 2:
            self.model = Encoder(
                width,
                scale=2.0,
            ).eval() if False else None
        self.net = Encoder(width)  # the model
        return self.net


def build(width):
    model: Encoder = Encoder(
        width,
    )
    return model
'''


def test_two_lines_and_nothing_else() -> None:
    made = wired(TEXT, "build", "Encoder", "shop.kernels.net")
    assert [line for _, line in made.lines] == [
        "from shop.kernels.net import optimize as optimize_net", "    model = optimize_net(model)  # KernelOPT"]
    lines = made.text.split("\n")
    assert [lines[number - 1] for number, _ in made.lines] == [line for _, line in made.lines]
    for number, _ in reversed(made.lines):
        del lines[number - 1]
    assert "\n".join(lines) == TEXT
    assert made.text.index("import Encoder") < made.text.index("optimize as") < made.text.index("class Server")
    again = wired(made.text, "build", "Encoder", "shop.kernels.net")
    assert again.already and again.text == made.text


def test_an_attribute_in_a_method_with_windows_line_ends() -> None:
    text = ("import net\r\n\r\n\r\nclass A:\r\n\tdef start(self):\r\n\t\ttry:\r\n"
            "\t\t\tself.net = net.Encoder('\u00e4\u2028')  # it\r\n\t\tfinally:\r\n\t\t\tpass")
    made = wired(text, "A.start", "Encoder", "kernels.net")
    assert "\t\t\tself.net = optimize_net(self.net)  # KernelOPT\r\n\t\tfinally" in made.text
    assert made.text.startswith("import net\r\nfrom kernels.net import optimize as optimize_net\r\n\r\n")
    assert "\n" not in made.text.replace("\r\n", "")


def test_a_last_line_without_an_end_and_a_file_without_imports() -> None:
    made = wired("def build(c):\n    m = c.Encoder()", "build", "Encoder", "kernels.net")
    assert made.text == ("from kernels.net import optimize as optimize_net\ndef build(c):\n    m = c.Encoder()\n"
                         "    m = optimize_net(m)  # KernelOPT\n")


@pytest.mark.parametrize(("text", "function", "why"), [
    (TEXT, "Server.start", "builds Encoder 2 times"),
    (TEXT, "Server", "no function"),
    (TEXT, "missing", "there is no missing"),
    ("def f():\n    return Encoder()\n", "f", "not simply assigned"),
    ("def f():\n    a = b = Encoder()\n", "f", "not simply assigned"),
    ("def f():\n    a = Encoder().cuda()\n", "f", "not simply assigned"),
    ("def f():\n    a, b = Encoder(), 1\n", "f", "not simply assigned"),
    ("def f():\n    x = 1; a = Encoder()\n", "f", "more than one statement"),
    ("def f():\n    a = Encoder(); x = 1\n", "f", "more than one statement"),
    ("def f(): a = Encoder()\n", "f", "more than one statement"),
    ("def f():\n    def g():\n        a = Encoder()\n", "f", "not simply assigned"),
    ("def f():\n    pass\ndef f():\n    a = Encoder()\n", "f", "defined 2 times"),
    ("def f(:\n", "f", "does not parse"),
    ("optimize_net = 1\ndef f():\n    a = Encoder()\n", "f", "is taken"),
    ("import os; import sys\ndef f():\n    a = Encoder()\n", "f", "more than one statement"),
    ("def f():\n    a = Encoder()\n\x0c\n", "f", "unusual line ends"),
])
def test_what_is_not_understood_is_declined(text: str, function: str, why: str) -> None:
    with pytest.raises(Declined, match=why):
        wired(text, function, "Encoder", "kernels.net")


def test_in_a_small_repository(tmp_path: Path) -> None:
    """The changed program runs and its model went through `optimize`."""
    files = {"shop/__init__.py": "",
             "shop/net.py": "class Encoder:\n    def __init__(self, width):\n        self.w = width\n",
             "shop/kernels/net/__init__.py": "def optimize(model):\n    model.w = -model.w\n    return model\n"}
    text = ("from shop.net import Encoder\n\n\ndef build():\n    model = Encoder(3)\n    return model\n\n\n"
            "print(build().w)\n")
    files["app.py"] = wired(text, "build", "Encoder", "shop.kernels.net").text
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    done = subprocess.run([sys.executable, "app.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == "-3\n", done.stderr


def test_several_targets_and_what_is_said() -> None:
    files = {"app.py": b"def f():\n    a = Encoder()\n\n\ndef g():\n    b = Decoder()\n", "bad.py": b"\xff"}

    def target(name: str, entry: str, where: str) -> Target:
        return Target(name, "net.py", entry, "get_inputs", wire=where)

    made = wire([(target("enc", "Encoder", "app.py:f"), "kernels/enc"),
                 (target("dec", "Decoder", "app.py:g"), "kernels/dec"),
                 (target("none", "Encoder", ""), "kernels/none"), (target("bad", "Encoder", "bad.py:f"), "kernels/bad"),
                 (target("lost", "Encoder", "lost.py:f"), "kernels/lost")], files.get)
    assert list(made.files) == ["app.py"]
    text = made.files["app.py"].decode()
    assert "a = optimize_enc(a)" in text and "b = optimize_dec(b)" in text
    said = dict(made.said)
    assert said["enc"] == "app.py calls optimize now: lines 1 and 4"
    assert said["bad"] == "bad.py is not changed: it is not UTF-8"
    assert said["lost"] == "lost.py is not changed: there is no file lost.py"
    assert "none" not in said


def test_what_was_inserted_goes_again_to_the_byte() -> None:
    text = "from net import Net\r\n\r\n\r\ndef make():\r\n    net = Net()  # the model\r\n    return net\r\n"
    made = wired(text, "make", "Net", "kernels.net")
    back = unwired(made.text, "kernels.net")
    assert back.text == text and [n for n, _ in back.lines] == [n for n, _ in made.lines]
    assert unwired(text, "kernels.net").already


@pytest.mark.parametrize("line", ["other = optimize_net(other)\n", "import kernels.net\n", "x = optimize_net\n",
                                  "from kernels.net import status\n"])
def test_a_call_of_a_person_s_own_is_left_alone(line: str) -> None:
    text = "from net import Net\n\n\ndef make():\n    net = Net()\n    return net\n"
    made = wired(text, "make", "Net", "kernels.net")
    with pytest.raises(Declined, match="in another way"):
        unwired(made.text + line, "kernels.net")


@pytest.fixture
def plain_recursion() -> Iterator[None]:
    """Python's own limit, which other tests' libraries raise for the whole process."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.parametrize("deep", ["x = " + "+".join("1" * 900), "x = a" + ".b" * 900, "x = " + "-" * 100_000 + "1",
                                  "if a: pass\n" + "elif a: pass\n" * 900], ids=["sum", "chain", "signs", "elif"])
@pytest.mark.parametrize("change", [wired, unwired], ids=lambda f: str(f.__name__))
def test_a_file_deeper_than_python_walks_is_declined(
        change: Callable[..., object], deep: str, plain_recursion: None) -> None:
    text = f"from net import Net\n{deep}\ndef main():\n    model = Net()\n"
    if change is unwired:
        text = f"from k.net import optimize as optimize_net\n{text}    model = optimize_net(model)  # KernelOPT\n"
    with pytest.raises(Declined, match=r"deep|recursion"):
        change(*((text, "main", "Net", "k.net") if change is wired else (text, "k.net")))


def test_a_statement_that_goes_on_from_the_line_before_is_declined() -> None:
    text = "from net import Net\ndef main(x):\n    if x: \\\n    model = Net()\n"
    with pytest.raises(Declined, match="line 4 goes on"):
        wired(text, "main", "Net", "k.net")
