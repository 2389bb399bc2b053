"""Triton kernels found by syntax: what they are called, what launches them, and files that mean no good."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from kernelopt_bot.errors import InputError
from kernelopt_bot.targets.triton_kernels import kernels, marker, triton_by_hand

EXAMPLES = Path(__file__).parents[2] / "examples" / "triton"
KERNEL = """import triton
import triton.language as tl


@triton.jit
def scale(x_ptr, BLOCK: tl.constexpr):
    pass


def make_inputs():
    pass
"""


def project(tmp_path: Path, **files: str) -> Path:
    (tmp_path / "pyproject.toml").write_text("")
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


@pytest.mark.parametrize("head, decorator", [
    ("import triton", "@triton.jit"), ("import triton as t", "@t.jit"), ("from triton import jit", "@jit"),
    ("from triton import jit as compiled", "@compiled"), ("import triton", "@triton.jit(do_not_specialize=['n'])"),
    ("try:\n    import triton\nexcept ImportError:\n    pass", "@triton.jit"),
])
def test_a_kernel_is_known_by_what_its_decorator_is(head: str, decorator: str) -> None:
    assert list(kernels(ast.parse(f"{head}\n{decorator}\ndef k(n): pass\ndef host(): pass"))) == ["k"]


@pytest.mark.parametrize("text", [
    "import jax\n@jax.jit\ndef k(): pass", "@jit\ndef k(): pass", "import triton\nclass C:\n    @triton.jit\n"
    "    def k(self): pass", "import triton\n@triton.jit\nclass K: pass",
    "import triton\n@triton.jit\nasync def k(): pass",
])
def test_what_is_no_kernel_of_triton_is_none(text: str) -> None:
    assert kernels(ast.parse(text)) == {}


def test_autotune_and_heuristics_belong_to_it() -> None:
    (found,) = kernels(ast.parse((EXAMPLES / "rms_norm.py").read_text())).values()
    assert set(found.decorators) == {"jit", "autotune"}


def test_of_two_of_one_name_the_later_counts() -> None:
    found = kernels(ast.parse("import triton\n@triton.jit\ndef k(a): pass\n@triton.jit\ndef k(b): pass"))
    assert found["k"].node.args.args[0].arg == "b"


def test_a_marker_above_a_kernel_is_its_own_and_another_is_for_all() -> None:
    text = ("import triton\n# kernelopt: inputs=all_of_them\n\n# of this one\n# kernelopt: record=t.py::test_a\n"
            "@triton.jit\ndef a(): pass\n@triton.jit\ndef b(): pass\n")
    found = kernels(ast.parse(text))
    assert marker(text, found["a"], found) == ("", "t.py::test_a")
    assert marker(text, found["b"], found) == ("all_of_them", "")


def test_by_hand_with_a_marker(tmp_path: Path) -> None:
    root = project(tmp_path, ops=KERNEL.replace("\n\n@triton", "\n\n# kernelopt: inputs=make_inputs\n@triton"))
    found = triton_by_hand(f"{root}/ops.py:scale")
    assert found is not None and found[0] == root.resolve()
    target = found[1]
    assert (target.name, target.entry, target.inputs, target.record) == ("ops_scale", "scale", "make_inputs", "")
    assert target.closure == ("ops.py",)


def test_by_hand_from_the_configuration(tmp_path: Path) -> None:
    root = project(tmp_path, ops=KERNEL, test_ops="import ops\ndef test_scale(): pass\n")
    (root / ".kernelopt.yml").write_text(
        "kernels:\n  - {name: mine, path: ops.py, kernel: scale, record: 'test_ops.py::test_scale'}\n")
    found = triton_by_hand(f"{root}/ops.py:scale")
    assert found is not None
    assert (found[1].name, found[1].record, found[1].closure) == (
        "mine", "test_ops.py::test_scale", ("ops.py", "test_ops.py"))


@pytest.mark.parametrize("keys, words", [
    ("", "give inputs or record"), (", inputs: f, record: 't.py::t'", "give inputs or record"),
    (", record: t.py", "a test as pytest names it"), (", inputs: 'a-b'", "name of a function"),
    (", record: '../t.py::t'", "without .."),
])
def test_a_wrong_entry_of_the_configuration_says_what_is_wrong(tmp_path: Path, keys: str, words: str) -> None:
    root = project(tmp_path, ops=KERNEL)
    (root / ".kernelopt.yml").write_text(f"kernels:\n  - {{path: ops.py, kernel: scale{keys}}}\n")
    with pytest.raises(InputError, match=words):
        triton_by_hand(f"{root}/ops.py:scale")


def test_models_and_other_names_are_left_to_others(tmp_path: Path) -> None:
    root = project(tmp_path, ops=KERNEL + "from pathlib import Path\n", net="class Model: pass\n")
    assert triton_by_hand(f"{root}/net.py:Model") is None
    assert triton_by_hand(f"{root}/ops.py:Path") is None
    assert triton_by_hand(f"{root}/none.py:scale") is None
    assert triton_by_hand(f"{root}/net.py") is None


def test_a_name_that_is_not_there_gets_the_nearest(tmp_path: Path) -> None:
    root = project(tmp_path, ops=KERNEL)
    with pytest.raises(InputError, match="has no Triton kernel scal") as raised:
        triton_by_hand(f"{root}/ops.py:scal")
    assert raised.value.fix == "did you mean scale?"
    with pytest.raises(InputError, match="has no Triton kernel make_inputs") as raised:
        triton_by_hand(f"{root}/ops.py:make_inputs")
    assert raised.value.fix == "kernels in that file: scale"


@pytest.mark.parametrize("line, words", [
    ("", "nothing says what launches the kernel scale"), ("# kernelopt: inputs=others", "no function others"),
    ("# kernelopt: inputs=a-b", "must be the name of a function"), ("# kernelopt: record=ops.py", "must be a test as"),
    ("# kernelopt: record=gone.py::test", "there is no file gone.py"),
    ("# kernelopt: inputs=../ops.py:make_inputs", "without .."), ("# kernelopt: inputs=/etc/ops.py:f", "without .."),
    ("# kernelopt: record=/etc/ops.py::t", "without .."), ("# kernelopt: record=tests/../../t.py::t", "without .."),
    ("# kernelopt: record=t.py::t\x1b[2J", "as pytest names it"), (f"# kernelopt: record=t.py::{'t' * 2000}", "1000"),
])
def test_what_launches_it_must_be_there(tmp_path: Path, line: str, words: str) -> None:
    root = project(tmp_path, ops=f"{line}\n{KERNEL}")
    with pytest.raises(InputError, match=words):
        triton_by_hand(f"{root}/ops.py:scale")


@pytest.mark.parametrize("text", [
    b"def broken(:\n", b"x = '\x00'\n", b"\xff\xfe\x00", b"(" * 5000 + b")" * 5000, b"x" * (3 << 20),
])
def test_a_file_that_does_not_parse_says_so(tmp_path: Path, text: bytes) -> None:
    root = project(tmp_path)
    (root / "ops.py").write_bytes(text)
    with pytest.raises(InputError, match="does not parse"):
        triton_by_hand(f"{root}/ops.py:scale")


def test_nothing_of_the_file_is_executed(tmp_path: Path) -> None:
    root = project(tmp_path, ops="# kernelopt: inputs=make_inputs\nraise SystemExit(3)\n" + KERNEL)
    found = triton_by_hand(f"{root}/ops.py:scale")
    assert found is not None and found[1].entry == "scale"


def test_a_listed_kernel_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = project(tmp_path, ops=KERNEL)
    (root / ".kernelopt.yml").write_text("kernels: [{name: mine, path: ops.py, kernel: scale, inputs: make_inputs}]\n")
    monkeypatch.chdir(root)
    found = triton_by_hand("mine")
    assert found is not None and (found[1].name, found[1].entry) == ("mine", "scale")
    assert triton_by_hand("yours") is None and triton_by_hand("ops_scale", root=root) is None
@pytest.mark.parametrize("head", [
    b"\xef\xbb\xbf# kernelopt: inputs=make_inputs\n", b"\x0c# kernelopt: inputs=make_inputs\n",
    b"#\tkernelopt:\tinputs=make_inputs\t\r\n"])
def test_a_marker_is_read_as_python_reads_the_line(tmp_path: Path, head: bytes) -> None:
    root = project(tmp_path)
    (root / "ops.py").write_bytes(head + KERNEL.encode())
    found = triton_by_hand(f"{root}/ops.py:scale")
    assert found is not None and found[1].inputs == "make_inputs"


def test_lines_are_numbered_as_python_numbers_them() -> None:
    """Form feeds and separators of Unicode end no line: the marker stays the kernel's own."""
    text = ("import triton\n# kernelopt: inputs=others\nx = '\x0c\x1c\x85\u2028\u2029'\n# kernelopt: inputs=own\n"
            "@triton.jit\ndef a(): pass\n")
    found = kernels(ast.parse(text))
    assert marker(text, found["a"], found) == ("own", "")


@pytest.mark.parametrize("text", [
    "'''\n# kernelopt: inputs=a\n'''", "f'''\n# kernelopt: inputs=a\n{1}'''", "x = b'''\n# kernelopt: inputs=a\n'''",
    "x = '# kernelopt: inputs=a'", "# kernelopt: inputs=a; import os", "## kernelopt: inputs=a", "# kernelopt: inputs=",
])
def test_what_is_no_comment_is_no_marker(text: str) -> None:
    found = kernels(ast.parse(KERNEL))
    assert marker(f"{KERNEL}\n{text}\n", found["scale"], found) == ("", "")


@pytest.mark.parametrize("name", [
    "--help", "a b", "scale;id", "$(id)", "../scale", "scale\n", "scale\x00", "\u202escale"])
def test_a_name_that_is_no_name_is_no_kernel(tmp_path: Path, name: str) -> None:
    root = project(tmp_path, ops="# kernelopt: inputs=make_inputs\n" + KERNEL)
    assert triton_by_hand(f"{root}/ops.py:{name}") is None


def test_a_look_alike_is_another_kernel(tmp_path: Path) -> None:
    root = project(tmp_path, ops="# kernelopt: inputs=make_inputs\n" + KERNEL)
    with pytest.raises(InputError, match="has no Triton kernel sc\u0430le"):
        triton_by_hand(f"{root}/ops.py:sc\u0430le")


def test_a_link_is_the_file_that_it_leads_to_and_out_of_the_project_it_is_none(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    root = project(tmp_path / "project", ops="# kernelopt: inputs=make_inputs\n" + KERNEL)
    (root / "link.py").symlink_to("ops.py")
    (tmp_path / "far.py").write_text("# kernelopt: inputs=make_inputs\n" + KERNEL)
    (root / "out.py").symlink_to(tmp_path / "far.py")
    found = triton_by_hand(f"{root}/link.py:scale")
    assert found is not None and found[1].path == "ops.py"
    assert triton_by_hand(f"{root}/out.py:scale", root=root) is None


def test_a_chain_of_elif_is_no_depth() -> None:
    text = "import triton\nif 0: pass\n" + "elif 0: pass\n" * 900 + "else:\n    @triton.jit\n    def k(n): pass\n"
    assert list(kernels(ast.parse(text))) == ["k"]


def test_a_file_of_kernels_alone_asks_for_a_name(tmp_path: Path) -> None:
    root = project(tmp_path, ops=KERNEL, none="x = 1\n", broken="def (:\n")
    with pytest.raises(InputError, match="asked for by name") as raised:
        triton_by_hand(f"{root}/ops.py")
    assert raised.value.fix == f"name one: {root}/ops.py:scale"
    assert triton_by_hand(f"{root}/none.py") is None and triton_by_hand(f"{root}/broken.py") is None
