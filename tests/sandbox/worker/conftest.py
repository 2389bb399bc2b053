"""Kernel workers for the whole session, one interpreting and one compiling, and model workers without a process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.sandbox.jail import ProcessJail
from kernelopt_bot.sandbox.worker import tensors
from tests.sandbox.worker.sessions import Session

CALL_SECONDS = 240.0


class KernelWorker:
    """The real process; tensors are handed over through its scratch folder."""

    def __init__(self, scratch: Path, *, interpret: bool) -> None:
        self._scratch = scratch
        self._worker = Worker("kernel", python=sys.executable, jail=ProcessJail(), scratch=scratch, interpret=interpret)

    def path(self, name: str) -> str:
        return str(self._scratch / name)

    def save(self, tensor: torch.Tensor) -> dict[str, Any]:
        return tensors.save(self, tensor)

    def load(self, reference: dict[str, Any]) -> torch.Tensor:
        return tensors.load(self, reference)

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if not self._worker.alive:
            self._worker.restart()
        return dict(self._worker.call(method, params, timeout=CALL_SECONDS))

    def close(self) -> None:
        self._worker.close()


@pytest.fixture(scope="session")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelWorker]:
    worker = KernelWorker(tmp_path_factory.mktemp("interpreter"), interpret=True)
    yield worker
    worker.close()


@pytest.fixture(scope="session")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelWorker]:
    worker = KernelWorker(tmp_path_factory.mktemp("compiler"), interpret=False)
    yield worker
    worker.close()


@pytest.fixture(scope="session", autouse=True)
def _private_caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compiled code of this folder's tests stays out of the user's caches."""
    folder = tmp_path_factory.mktemp("caches")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder))
        patch.setenv("TRITON_CACHE_DIR", str(folder / "triton"))
        yield


@pytest.fixture
def loaded(tmp_path: Path) -> Callable[..., Session]:
    """`loaded("Counted", "wide", "width")`: a session with that model."""

    def make(entry: str, inputs: str = "narrow", init: str = "") -> Session:
        return Session.loaded(tmp_path, entry, inputs, init)

    return make
