"""Models that do to their process what no model should: each is told in clear words, and nothing of them survives."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.errors import UserError
from kernelopt_bot.sandbox.client import Worker, WorkerError
from kernelopt_bot.sandbox.jail import Jail, ProcessJail
from kernelopt_bot.search.explain import explain
from kernelopt_bot.targets.target import Target
from tests.sandbox.jails import open_jail
from tests.sandbox.test_limits import nothing_is_left

pytestmark = pytest.mark.slow

FRAME = """
import atexit, os, shutil, signal, subprocess, sys, threading, time
import torch
{before}

class Model(torch.nn.Module):
    def forward(self, x):
        {forward}
        return x * 2


def get_inputs():
    return [torch.randn(4)]
"""
DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.execv(sys.executable, [sys.executable, "-IS", "-c", "import time; time.sleep(60)", os.environ["HOME"]])
    os._exit(0)
os.wait()


def start_more():
    for _ in range(4):
        threading.Thread(target=time.sleep, args=(60,)).start()
        subprocess.Popen(["sleep", "60", os.environ["HOME"]], start_new_session=True)


atexit.register(start_more)
threading.Thread(target=lambda: (time.sleep(0.2), start_more(), time.sleep(60))).start()
"""
MODELS = {
    "loud": FRAME.format(before="", forward="""for _ in range(4096):
            os.write(1, b'::error::' + b'x' * 65527)"""),
    "daemon": FRAME.format(before=DAEMON, forward="pass"),
    "deaf": FRAME.format(before="", forward="""for number in {*range(1, 32)} - {9, 19}:
            signal.signal(number, signal.SIG_IGN)
        time.sleep(600)"""),
    "exits": FRAME.format(before="", forward="os._exit(3)"),
    "leaves": FRAME.format(before="", forward="sys.exit(4)"),
    "closes": FRAME.format(before="os.closerange(0, 1000)", forward="pass"),
    "closes_later": FRAME.format(before="", forward="os.closerange(3, 1000); time.sleep(3)"),
    "tidies": FRAME.format(before="", forward="shutil.rmtree(os.path.dirname(os.environ['HOME']), ignore_errors=True)"),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    for name, text in MODELS.items():
        (root / f"{name}.py").write_text(text)
    return root


@pytest.fixture
def start(project: Path, tmp_path: Path) -> Iterator[Callable[[Jail], Worker]]:
    """A worker; at the end it is closed, quickly, and nothing is left of it."""
    workers: list[Worker] = []

    def made(jail: Jail) -> Worker:
        workers.append(Worker("model", python=sys.executable, jail=jail, scratch=tmp_path / "scratch",
                              readable=(project,)))
        return workers[-1]

    yield made
    begin = time.monotonic()
    for worker in workers:
        worker.close()
    assert time.monotonic() - begin < 10 and nothing_is_left(tmp_path / "scratch")


def load(worker: Worker, project: Path, name: str, timeout: float = 60) -> dict[str, Any]:
    return worker.call("load", {"root": str(project), "path": f"{name}.py", "entry": "Model", "inputs": "get_inputs",
                                "init": "", "mode": "inference", "device": "cpu", "seed": 1}, timeout=timeout)


def told(worker: Worker, project: Path, name: str, timeout: float = 60) -> UserError:
    """What the user reads of it."""
    with pytest.raises(WorkerError) as caught:
        load(worker, project, name, timeout)
    return explain(caught.value, Target(name, f"{name}.py", "Model", "get_inputs", "", "inference", "command"),
                   "loading")


@pytest.mark.parametrize("jail", ["bubblewrap", "process"])
def test_words_without_end_and_daemons(start: Callable[[Jail], Worker], project: Path, jail: str) -> None:
    worker = start(ProcessJail() if jail == "process" else open_jail(jail))
    for name in ("loud", "daemon"):
        assert load(worker, project, name)["class"] == "Model"
    assert 10_000 < len(worker.stderr()) < 80_000 and "::error" not in worker.stderr()


def test_code_that_ends_or_cuts_off_its_process(start: Callable[[Jail], Worker], project: Path) -> None:
    worker = start(open_jail("bubblewrap"))
    error = told(worker, project, "leaves")
    assert "Model.forward failed: SystemExit" in error.what and worker.alive
    for name, what, fix in (("exits", "it ended with code 3", "ends its own process"),
                            ("closes", "closed file descriptors that it did not open", "only what it has opened"),
                            ("closes_later", "closed file descriptors that it did not open",
                             "only what it has opened")):
        error = told(worker, project, name)
        assert what in error.what and fix in error.fix, (name, str(error))
        worker.restart()
    assert load(worker, project, "tidies")["class"] == "Model"


def test_code_that_takes_no_signal(start: Callable[[Jail], Worker], project: Path) -> None:
    worker = start(open_jail("bubblewrap"))
    worker.call("hello", {}, timeout=60)
    error = told(worker, project, "deaf", timeout=4)
    assert "loading took too long: load did not answer within 4 s" in error.what
