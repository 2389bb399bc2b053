"""What the workers of a search can read of the run, each asked from inside its jail."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kernelopt_bot.config import Config
from kernelopt_bot.sandbox.client import Worker, WorkerCrashed
from kernelopt_bot.sandbox.jail import Box, Jail, Launch
from kernelopt_bot.search.archive import Archive
from kernelopt_bot.search.budget import Budget
from kernelopt_bot.search.progress import Silent
from kernelopt_bot.search.session import Session
from tests.sandbox.jails import open_jail

LOOK = """
import json, os
found = []
for name in {names!r}:
    try:
        with open(name) as file:
            file.read()
        found.append(name)
    except OSError:
        pass
listed = [os.path.join(folder, name) for folder, _, names in os.walk({top!r}) for name in names]
with open("found.json", "w") as file:
    json.dump({{"read": found, "listed": listed}}, file)
"""

OWN = {"run/target/artifacts/0/kernels.py"}
REPOSITORY = {"checkout/model.py", "checkout/weights/model.pt"}
REST = {
    "run/report.json", "run/target/trials.jsonl", "run/target/candidates/1.json", "run/other/artifacts/0/kernels.py",
    "run/scratch/model/tensors/input.pt", "run/scratch/kernel-2/cache/triton/k.cubin", "checkout/.git/config",
    "outside",
}  # fmt: skip


@dataclass(frozen=True)
class Looking:
    """A jail in which, with all that a worker's has, another program runs."""

    inner: Jail
    code: str
    name: str = "looking"
    connects: bool = True

    def missing(self) -> tuple[str, str] | None:
        return self.inner.missing()

    def wrap(self, box: Box) -> Launch:
        return self.inner.wrap(replace(box, arguments=("-I", "-S", "-c", self.code)))


@pytest.fixture(params=["bubblewrap", "landlock", "landlock-plain"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Session:
    for name in OWN | REPOSITORY | REST:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    names = [str(tmp_path / name) for name in OWN | REPOSITORY | REST]
    own = tmp_path / "run" / "target"
    (own / "trials.jsonl").write_text("")
    jail = Looking(open_jail(request.param), LOOK.format(names=names, top=str(tmp_path)))
    return Session(config=Config(), root=tmp_path / "checkout", folder=own, scratch=tmp_path / "run" / "scratch",
                   jail=jail, python=sys.executable, device="cpu", lane="cpu", secret="s", progress=Silent(),
                   archive=Archive(own), budget=Budget(10, 10, 1))


def seen(worker: Worker, top: Path) -> tuple[set[str], set[str]]:
    """What it read, and which files it found by looking, relative to `top`."""
    with worker, pytest.raises(WorkerCrashed, match="code 0"):
        worker.call("hello", {}, timeout=30)
    answer = json.loads((worker.scratch / "found.json").read_text())
    read, listed = ({str(Path(name).relative_to(top)) for name in answer[key]} for key in ("read", "listed"))
    return read, listed


@pytest.mark.parametrize("interpret", [False, True])
def test_a_kernel_worker_reads_artifacts_alone(session: Session, interpret: bool, tmp_path: Path) -> None:
    read, listed = seen(session.kernel_worker("kernel", interpret=interpret), tmp_path)
    assert read == OWN
    # Landlock lets nobody look into the folders above.
    assert listed & (REPOSITORY | REST) == set()


def test_every_call_leaves_a_line_of_where_the_time_went(session: Session) -> None:
    with session.kernel_worker("kernel") as worker, pytest.raises(WorkerCrashed):
        worker.call("hello", {}, timeout=30)
    (line,) = map(json.loads, (session.folder / "calls.jsonl").read_text().splitlines())
    assert (line["worker"], line["method"], line["error"]) == ("kernel", "hello", "WorkerCrashed")
    assert 0 < line["seconds"] < 30


def test_a_model_worker_reads_the_checkout_too(session: Session, tmp_path: Path) -> None:
    read, listed = seen(session.model_worker("model"), tmp_path)
    assert read == OWN | REPOSITORY | {"run/scratch/model/tensors/input.pt"}
    assert listed & REST <= {"run/scratch/model/tensors/input.pt"}
