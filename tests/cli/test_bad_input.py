"""What a person sees who gives the command something bad: through the real command line and real workers.

Cheaper forms of the same mistakes are in tests/targets, tests/test_config.py and tests/sandbox/worker/test_load.py.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.cli.main import main
from kernelopt_bot.sandbox.worker_environment import HOST_SETTINGS
from tests.device.test_state import APPS, ROWS, install

ROOT = Path(__file__).parents[2]
HEAD = "import os\nimport torch\nfrom torch import nn\n"
INPUTS = "\n\ndef get_inputs():\n    return [torch.randn(2, 8)]\n"
QUICK = ("--levers", "dispatch", "--budget", "1", "--sandbox", "process", "--device", "cpu", "--output", "out")


def model(forward: str, before: str = "", inputs: str = INPUTS) -> str:
    return f"{HEAD}{before}\n\nclass Model(nn.Module):\n    def forward(self, x):\n        {forward}\n{inputs}"


GOOD = model("return torch.relu(x) * 2")
MODELS = {
    "imports": model("return x", 'raise RuntimeError("no licence file")'),
    "package": model("return x", "import a_package_that_is_not_there"),
    "constructor": GOOD.replace("    def forward", "    def __init__(self, width):\n        super().__init__()\n\n"
                                                   "    def forward"),
    "inputs": model("return x", inputs='\n\ndef get_inputs():\n    return [torch.load("weights.pt")]\n'),
    "forward": model('raise ValueError("too narrow")'),
    "elsewhere": model("return x + 1", inputs='\n\ndef get_inputs():\n    return [torch.empty(2, device="meta")]\n'),
    "graphs": GOOD.replace("    def forward", "    @torch.compiler.disable\n    def forward"),
    "dropout": model("return nn.functional.dropout(x, 0.5, training=True)"),
    "entropy": model('return x + int.from_bytes(os.urandom(4), "big")'),
}
TOLD = [
    ("imports", "importing imports.py failed: RuntimeError: no licence file", "importing the file has to work"),
    ("package", f"the package 'a_package_that_is_not_there' is not installed in {sys.executable}",
     "environment.python"),
    ("constructor", "the constructor of Model failed: TypeError", "get_init_inputs"),
    ("inputs", "get_inputs failed: FileNotFoundError", "example inputs"),
    ("forward", "Model.forward failed: ValueError: too narrow", "eval mode without gradients"),
    ("elsewhere", "the inputs cannot be moved to cpu", ".to(device)"),
    ("graphs", "torch.compile captured no graph", "TORCH_LOGS=graph_breaks"),
    ("dropout", "not deterministic: for equal inputs its output varies with the seed", "no dropout in forward"),
    ("entropy", "not deterministic: for equal inputs its output varies between calls", "no random numbers"),
]


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT), "CI": "true",
            **{name: os.environ[name] for name in HOST_SETTINGS}, **more}


def kernelopt(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "kernelopt_bot", *arguments], cwd=folder, capture_output=True,
                          text=True, timeout=250, env=environment(folder, **more), check=False)


def project(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "pyproject.toml").touch()
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def report(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "out" / "report.json").read_text())
    return found


def nothing_half_written(folder: Path) -> None:
    """No temporary file, no scratch folder, no artifact."""
    left = [p.relative_to(folder).as_posix() for p in (folder / "out").rglob("*")]
    assert [p for p in left if re.search(r"scratch|bundle|/\.|^\.|tmp", p)] == []


@dataclass(frozen=True)
class Declined:
    done: subprocess.CompletedProcess[str]
    folder: Path
    report: dict[str, Any]


@pytest.fixture(scope="module")
def declined(tmp_path_factory: pytest.TempPathFactory) -> Declined:
    """One run of all models that cannot be optimised."""
    folder = project(tmp_path_factory.mktemp("models"), **MODELS)
    done = kernelopt(folder, "optimize", *(f"{name}.py" for name in MODELS), *QUICK)
    assert (folder / "out" / "report.json").is_file(), done.stderr
    return Declined(done, folder, report(folder))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "what", "fix"), TOLD)
def test_a_model_that_cannot_be_optimised(declined: Declined, name: str, what: str, fix: str) -> None:
    target = next(t for t in declined.report["targets"] if t["name"] == name)
    said, _, todo = target["error"].partition("  what to do: ")
    assert what in said and f"where: {name}.py:Model" in said
    assert fix in todo
    assert "sandbox/worker" not in said, "the traceback is the user's"


@pytest.mark.slow
def test_bad_models_are_bad_input_and_each_is_reported(declined: Declined) -> None:
    assert declined.done.returncode == 2, declined.done.stderr
    assert [t["name"] for t in declined.report["targets"]] == list(MODELS)
    assert declined.report["adopted"] == [] and declined.report["stopped"] == ""
    assert "Traceback" not in declined.done.stderr
    nothing_half_written(declined.folder)


@pytest.mark.parametrize(("files", "arguments", "words"), [
    ({"net": GOOD + "\ndef f(:\n"}, ["net.py"], ["net.py does not parse", "line", "correct the file"]),
    ({"net": model("return x", inputs="")}, ["net.py"], ["no example inputs", "get_inputs"]),
    ({"net": GOOD}, ["nte.py"], ["there is no file nte.py", "did you mean net.py?"]),
    ({"net": GOOD}, ["net.py:Modle"], ["no class Modle", "did you mean Model?"]),
    ({"net": GOOD}, ["net.py", "net.py"], ["named twice"]),
])
def test_what_is_asked_for_is_not_there(
        tmp_path: Path, files: dict[str, str], arguments: list[str], words: list[str],
        capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project(tmp_path, **files))
    assert main(["optimize", *arguments, *QUICK]) == 2
    said = capsys.readouterr().err
    assert all(word in said for word in [*words, "what to do:"]), said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("option", "value", "words"), [
    ("--levers", "kernel,speed", ["--levers", "'kernel', 'dispatch', 'launch' or 'region'", "'speed'"]),
    ("--levers", "kernel,kernel", ["each lever at most once"]),
    ("--device", "gpu0", ["--device", "cuda or cuda:N", "pretend", "'gpu0'"]),
    ("--sandbox", "chroot", ["auto", "docker", "bubblewrap", "landlock", "process"]),
    ("--budget", "0", ["1"]),
    ("--budget", "1e9", ["--budget", "86400"]),
])
def test_a_value_that_is_not_permitted(tmp_path: Path, option: str, value: str, words: list[str],
                                       capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is permitted is said."""
    monkeypatch.chdir(project(tmp_path, net=GOOD))
    assert main(["optimize", "net.py", option, value]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert all(word in said for word in words), said
    assert not (tmp_path / "kernelopt-out").exists()


def test_an_unknown_key(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project(tmp_path, net=GOOD))
    (tmp_path / ".kernelopt.yml").write_text("version: 1\nlever: [kernel]\n")
    assert main(["optimize", "net.py", *QUICK]) == 2
    said = capsys.readouterr().err
    assert ".kernelopt.yml:2" in said and "lever" in said and "levers" in said
    assert not (tmp_path / "out").exists()


def test_an_output_that_cannot_be_written(tmp_path: Path) -> None:
    project(tmp_path, net=GOOD)
    (tmp_path / "out").write_text("a file of the user's")
    done = kernelopt(tmp_path, "optimize", "net.py", *QUICK[:-1], "out/inner")
    assert done.returncode == 2
    assert "can't be written: Not a directory" in done.stderr and "choose a folder" in done.stderr
    assert (tmp_path / "out").read_text() == "a file of the user's"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 96 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", str(folder)], capture_output=True,
                             text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.slow
def test_a_full_disk_under_the_workers(tmp_path: Path, small_disk: Path) -> None:
    project(tmp_path, net=GOOD)
    done = kernelopt(tmp_path, "optimize", "net.py", *QUICK[:-1], str(small_disk / "out"))
    assert done.returncode == 1, done.stderr
    [target] = report(small_disk)["targets"]
    assert "the disk is full" in target["error"] and "free some space" in target["error"]
    nothing_half_written(small_disk)


def test_a_full_disk_under_the_report(tmp_path: Path, small_disk: Path) -> None:
    project(tmp_path, net=GOOD)
    (small_disk / "ballast").write_bytes(bytes(96 << 10))
    done = kernelopt(tmp_path, "optimize", "net.py", *QUICK[:-1], str(small_disk / "out"))
    assert done.returncode == 1, done.stderr
    assert "disk is full" in done.stderr and "free some space" in done.stderr
    assert [p for p in small_disk.rglob("*") if p.is_file() and p.name != "ballast"] == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    """What was finished before is in the report, the worker is gone, and nothing is adopted.

    The signal starts out ignored, as in what a script puts into the background.
    """
    slow = GOOD.replace("        return torch", "        import time; time.sleep(300)\n        return torch")
    project(tmp_path, broken=MODELS["forward"], slow=slow)
    process = subprocess.Popen(
        [sys.executable, "-m", "kernelopt_bot", "optimize", "broken.py", "slow.py", *QUICK], cwd=tmp_path,
        env=environment(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_IGN) and None)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "slow: loading" in line:
                break
        time.sleep(1.0)
        process.send_signal(number)
        begin = time.monotonic()
        rest = process.communicate(timeout=60)[1]
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130, rest
    assert time.monotonic() - begin < 30
    found = report(tmp_path)
    assert "interrupted while optimising slow" in found["stopped"]
    first, second = found["targets"]
    assert "too narrow" in first["error"] and "interrupted before the confirmation" in second["error"]
    assert found["adopted"] == []
    nothing_half_written(tmp_path)
    assert workers_of(tmp_path) == []


def workers_of(folder: Path) -> list[str]:
    """Processes that mention the folder on their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in text and path.parent.name != str(os.getpid()):
            found.append(text)
    return found


def test_a_gpu_that_somebody_else_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                       capsys: pytest.CaptureFixture[str]) -> None:
    project(tmp_path, net=GOOD)
    install(tmp_path, monkeypatch, ROWS, APPS)
    (tmp_path / ".kernelopt.yml").write_text("version: 1\nbudget:\n  gpu_wait_s: 0\n")
    monkeypatch.chdir(tmp_path)
    assert main(["optimize", "net.py", "--device", "cuda:1", "--output", "out"]) == 1
    said = capsys.readouterr().err
    assert "busy" in said and "4321" in said and "what to do:" in said
    assert not (tmp_path / "out").exists()


def test_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    project(tmp_path, net=GOOD)
    done = kernelopt(tmp_path, "optimize", "net.py", "--device", "cuda:9", PATH="/usr/bin:/bin")
    assert done.returncode == 1
    assert "cuda:9" in done.stderr and "what to do:" in done.stderr


def event(folder: Path, base: str, head: str) -> dict[str, str]:
    """The environment of a runner that handles a pull request."""
    repository = {"id": 7, "full_name": "octo-org/models", "default_branch": "main"}
    user = {"login": "octocat", "type": "User"}
    pull = {"number": 1, "state": "open", "title": "Faster", "draft": False, "user": user, "labels": [],
            "head": {"ref": "topic", "sha": head, "repo": repository},
            "base": {"ref": "main", "sha": base, "repo": repository}}
    path = folder / "event.json"
    path.write_text(json.dumps({"action": "opened", "number": 1, "sender": user, "repository": repository,
                                "pull_request": pull}))
    return {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_EVENT_PATH": str(path)}


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_run_outside_a_repository(tmp_path: Path) -> None:
    done = kernelopt(tmp_path, "run", **event(tmp_path, "1" * 40, "2" * 40))
    assert done.returncode == 2
    assert "not a git repository" in done.stderr and "what to do:" in done.stderr
    assert not (tmp_path / "kernelopt-out").exists()


def test_run_in_a_shallow_clone_without_the_base(tmp_path: Path) -> None:
    origin = project(tmp_path / "origin", net=GOOD)
    git(origin, "init", "-q", "-b", "main")
    shas = []
    for text in (GOOD, GOOD.replace("* 2", "* 3")):
        (origin / "net.py").write_text(text)
        git(origin, "add", "-A")
        git(origin, "commit", "-q", "-m", "a change")
        shas.append(git(origin, "rev-parse", "HEAD"))
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{origin}", "clone")
    git(tmp_path / "clone", "remote", "remove", "origin")
    done = kernelopt(tmp_path / "clone", "run", **event(tmp_path, *shas))
    assert done.returncode == 2
    assert shas[0][:12] in done.stderr and "fetch-depth: 0" in done.stderr
    assert not (tmp_path / "clone/kernelopt-out").exists()


@pytest.mark.slow
def test_an_interpreter_without_torch(tmp_path: Path) -> None:
    project(tmp_path, net=GOOD)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "bare"], cwd=tmp_path, check=True)
    (tmp_path / ".kernelopt.yml").write_text("version: 1\nenvironment: { python: bare/bin/python }\n")
    done = kernelopt(tmp_path, "optimize", "net.py", *QUICK)
    assert done.returncode == 2, done.stderr
    [target] = report(tmp_path)["targets"]
    assert "has no torch" in target["error"] and "environment.python" in target["error"]
