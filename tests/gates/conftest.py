"""Real workers, and one real kernel with a candidate for it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelopt_bot.contract.candidate import KernelCandidate, Launch, Parameter, Plan
from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.sandbox.jail import ProcessJail
from tests.gates import kernels


def _worker(folder: Path, role: str, *, interpret: bool = False) -> Worker:
    return Worker(role, python=sys.executable, jail=ProcessJail(), scratch=folder, interpret=interpret)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A kernel worker that compiles."""
    with _worker(tmp_path_factory.mktemp("compiler"), "kernel") as worker:
        yield worker


@pytest.fixture
def interpreter(tmp_path_factory: pytest.TempPathFactory, interpreter_process: Worker) -> Worker:
    """A kernel worker that interprets, alive whatever the test before did to it."""
    if not interpreter_process.alive:
        interpreter_process.restart()
    return interpreter_process


@pytest.fixture(scope="session")
def interpreter_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with _worker(tmp_path_factory.mktemp("interpreter"), "kernel", interpret=True) as worker:
        yield worker


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A model worker on the CPU with a small model loaded."""
    root = tmp_path_factory.mktemp("user")
    (root / "small.py").write_text(kernels.MODEL)
    worker = Worker("model", python=sys.executable, jail=ProcessJail(), scratch=tmp_path_factory.mktemp("model"),
                    readable=(root,))
    with worker:
        worker.call("load", {"root": str(root), "path": "small.py", "entry": "Model", "inputs": "get_inputs",
                             "init": "get_init_inputs", "mode": "inference", "device": "cpu", "seed": 1}, timeout=120)
        yield worker


@pytest.fixture(scope="session")
def candidate() -> KernelCandidate:
    """The baseline of `kernels.py` with two rows a program: equal and honest."""
    plan = Plan(
        (Parameter("in_ptr0", "*fp32"), Parameter("out_ptr0", "*fp32", written=True, read=False),
         Parameter("xnumel", "i32"), Parameter("r0_numel", "i32")),
        (Launch("row_sum", ("cdiv(xnumel, 2)",), ("in_ptr0", "out_ptr0", "xnumel"), {"XBLOCK": 2}, num_warps=2),))
    return KernelCandidate("c1", "", 0, (0,), kernels.CANDIDATE, plan, "multi_row_tiles")
