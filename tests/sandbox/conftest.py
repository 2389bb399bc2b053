"""Jails that can be tried here, and a worker that lies."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.sandbox.jail import Jail, ProcessJail
from tests.sandbox.jails import JAILS, open_jail

LIAR = Path(__file__).with_name("liar.py")


@pytest.fixture(scope="session", params=JAILS)
def jail(request: pytest.FixtureRequest) -> Jail:
    return open_jail(request.param)


@pytest.fixture(scope="session", params=[*JAILS, "process"])
def any_jail(request: pytest.FixtureRequest) -> Jail:
    return ProcessJail() if request.param == "process" else open_jail(request.param)


@pytest.fixture(scope="session")
def liar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An executable that stands where the interpreter would."""
    path = tmp_path_factory.mktemp("liar") / "python"
    path.write_text(f"#!{sys.executable} -IB\n" + LIAR.read_text())
    path.chmod(0o755)
    return path


@pytest.fixture
def make(liar: Path, tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    workers: list[Worker] = []

    def start(**options: Any) -> Worker:
        # The liar's shebang names the interpreter of this environment.
        needs = (liar.parent, Path(sys.prefix), Path(sys.base_prefix))
        known: dict[str, Any] = {"python": str(liar), "jail": ProcessJail(), "scratch": tmp_path / "scratch",
                                 "readable": needs}
        workers.append(Worker("kernel", **(known | options)))
        return workers[-1]

    yield start
    for worker in workers:
        worker.close()
