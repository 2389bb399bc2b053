"""What the steps of a search share: the configuration, where things lie, and how workers are started."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelopt_bot.agents.party import Party
from kernelopt_bot.compiler.program import Lane
from kernelopt_bot.config import Config
from kernelopt_bot.device import roofs
from kernelopt_bot.device.profile import Roofs
from kernelopt_bot.gates.performance import Settings
from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.sandbox.jail import Jail
from kernelopt_bot.sandbox.turns import Turns
from kernelopt_bot.sandbox.worker.protocol import COMPILES
from kernelopt_bot.search.archive import Archive
from kernelopt_bot.search.budget import Budget
from kernelopt_bot.search.memory import Memory
from kernelopt_bot.search.progress import Progress

FEW_CORES = 4
"""With fewer, work beside a measurement would slow the measured host."""


def bootstrap_seed(secret: str) -> int:
    """56 bits of a secret (hexadecimal) for the draws of the paired bootstrap."""
    return int(secret[:14], 16)


@dataclass(frozen=True)
class Session:
    """One target's search on one device."""

    config: Config
    root: Path
    """Checkout of the head commit; workers may read it, nobody writes it."""
    folder: Path
    """The run's folder for this target: archive, artifacts."""
    scratch: Path
    """Of the run's workers, one folder each: compiler caches stay from target to target, tensors do not."""
    jail: Jail
    python: str
    """Interpreter of the user's environment."""
    device: str
    """`cpu`, `cuda:N`, or a GPU's UUID."""
    lane: Lane
    """`cuda` or `cpu`: where the target is run and timed."""
    secret: str
    budget: Budget
    archive: Archive
    progress: Progress
    memory: Memory | None = None
    """Outcomes and lessons of earlier runs; None where it is switched off."""
    waiting: dict[str, Worker] = field(default_factory=dict)
    """Workers started ahead by name: importing torch takes some seconds that another worker's work can hide."""
    party: Party | None = None
    """Brains beside the built-in one."""
    said: list[str] = field(default_factory=list)
    """What the report is to say of the agents' search."""
    turns: Turns | None = None
    """On a GPU that other searches use meanwhile."""

    @property
    def inside(self) -> str:
        """torch's name of the device inside a worker, where only one GPU is visible."""
        return "cuda:0" if self.lane == "cuda" else "cpu"

    @property
    def has_gpu(self) -> bool:
        return self.lane == "cuda"

    def model_worker(self, name: str, *, ahead: bool = False, interpret: bool = False) -> Worker:
        """A worker that may import the user's code. What ends its process ends one candidate and not the search: it
        loads the model again. `ahead`: it imports the compiler before it is asked to compile. `interpret`: the user's
        Triton kernels run by the interpreter. Raises Unavailable."""
        return self._taken(name) or Worker(
            "model", python=self.python, jail=self.jail, scratch=self.scratch / name, device=self.device,
            interpret=interpret, readable=(self.root, self.artifacts),
            environment={COMPILES: "1"} if ahead else {}, revives=True, trace=self._trace(name), turns=self.turns,
            waited=self.budget.wait)

    def expect(self, *makers: Callable[[], Worker]) -> None:
        """Start workers that will be wanted soon, where cores are to spare. They leave the GPU alone until called."""
        if (os.cpu_count() or 1) < FEW_CORES:
            return
        for make in makers:
            worker = make()
            self.waiting[worker.scratch.name] = worker

    def close(self) -> None:
        """End the workers that nobody took."""
        while self.waiting:
            self.waiting.popitem()[1].kill()

    def confirming_worker(self) -> Worker:
        """A model worker for the confirmation, in a process of its own. Without a GPU in the folder that holds the C++
        compiler's headers already."""
        return self.model_worker("confirm", ahead=True) if self.has_gpu else self.model_worker("model")

    def compiling_worker(self) -> Worker:
        """A kernel worker without a GPU. Raises Unavailable."""
        return self._taken("compile") or Worker(
            "kernel", python=self.python, jail=self.jail, scratch=self.scratch / "compile",
            revives=True, trace=self._trace("compile"))

    def _taken(self, name: str) -> Worker | None:
        worker = self.waiting.pop(name, None)
        return worker if worker is not None and worker.alive else None

    def kernel_worker(self, name: str, *, interpret: bool = False, compiles: bool = False) -> Worker:
        """A worker that never imports the user's code; `compiles`: gate 1 is run in it as well, which on a GPU takes
        some seconds to prepare. Raises Unavailable."""
        return self._taken(name) or Worker(
            "kernel", python=self.python, jail=self.jail, scratch=self.scratch / name,
            device="cpu" if interpret else self.device, interpret=interpret, readable=(self.artifacts,),
            environment={COMPILES: "1"} if compiles else {},
            revives=True, trace=self._trace(name), turns=self.turns, waited=self.budget.wait)

    def ceilings(self, versions: Mapping[str, Any]) -> Roofs:
        """Of the device that `hello` described; a worker is started only where they were never measured.

        Raises WorkerError, Unavailable.
        """
        gpu = versions.get("gpu")
        if not gpu:
            return roofs.assumed(str(versions["cpu"]), cores=int(versions.get("threads", 1)))

        def call(method: str, params: dict[str, Any], timeout: float) -> dict[str, Any]:
            with self.kernel_worker("roofs") as worker:
                return worker.call(method, params, timeout=timeout)

        return roofs.measured(call, gpu)

    def settings(self) -> Settings:
        """Gate 4's, as the configuration has them."""
        gates = self.config.gates
        return Settings(min_gain=gates.min_gain, metric=gates.metric, cache=gates.cache, no_regress=gates.no_regress,
                        confidence=gates.confidence, memory_limit=gates.memory_limit,
                        memory_slack_bytes=gates.memory_slack_mib << 20)

    def _trace(self, worker: str) -> Callable[[str, float, str], None]:
        """Writes where a search's time goes: a line a call into `calls.jsonl` of the run's folder."""
        path = self.folder / "calls.jsonl"

        def write(method: str, seconds: float, error: str) -> None:
            line = {"worker": worker, "method": method, "ended": round(time.time(), 3),
                    "seconds": round(seconds, 3)} | ({"error": error} if error else {})
            # A record for people; a full disk is the archive's to notice, and no empty file is left on it.
            with contextlib.suppress(OSError):
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                return
            with contextlib.suppress(OSError):
                if path.stat().st_size == 0:
                    path.unlink()

        return write

    @property
    def artifacts(self) -> Path:
        """Candidates rendered as artifacts, as they would ship; readable by every worker."""
        folder = self.folder / "artifacts"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def precision(self) -> dict[str, float]:
        """The precision rule's numbers, as workers take them."""
        gates = self.config.gates
        return {"m": gates.m, "k": gates.k, "m_half": gates.m_half}
