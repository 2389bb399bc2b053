"""Times of one step: the compiler's kernel and candidates, interleaved, each measurement alone on the device.

Diagnostic only: the model-level gain decides. Before each measurement in-out buffers get their contents back, the L2 is
overwritten (`cache` cold) and the device is kept busy, so that the host's launch overhead is not part of the time: a
measurement during which the host took longer than the device was kept busy does not count.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from kernelopt_bot.contract.candidate import Plan
from kernelopt_bot.sandbox.worker import families, seeds
from kernelopt_bot.sandbox.worker.buffers import Arena, Slot
from kernelopt_bot.sandbox.worker.check_step import step_arguments
from kernelopt_bot.sandbox.worker.compile import words
from kernelopt_bot.sandbox.worker.device import Device
from kernelopt_bot.sandbox.worker.lane import need_lane
from kernelopt_bot.sandbox.worker.launchers import LOST, Candidate, Runner, lost, run
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from kernelopt_bot.sandbox.worker.roofs import event
from kernelopt_bot.sandbox.worker.run_baseline import RunBaseline, open_baseline
from kernelopt_bot.sandbox.worker.tensors import Scratch

BUSY_S, LONGEST_BUSY_S = 100e-6, 20e-3
"""Of spinning on the device before a measurement: longer than most launches take the host, and the most for others."""
BUSY_FACTOR = 3.0
"""Of the host's time of a launch that the spinning did not cover."""
TRIES = 4
WARM_UPS = 3
HOPELESS = 1.25
"""tune_step drops a candidate that is slower than the baseline by this factor after `TRIAL_PAIRS` pairs."""
TRIAL_PAIRS = 4


@dataclass
class _Arm:
    who: str
    runner: Runner
    arena: Arena
    us: list[float] = field(default_factory=list)
    busy_s: float = BUSY_S
    error: WorkerFault | None = None
    stopped: bool = False


class Timer:
    """Measures launches on one device. Times in microseconds."""

    def __init__(self, device: torch.device, cold: bool) -> None:
        self.device, self.cold = Device(device), cold

    def measure(self, arm: _Arm, arguments: Mapping[str, Any]) -> float | None:
        """None where the host was slower than the device was busy: the next measurement of this arm spins longer."""
        start, end = event(), event()
        if self.cold:
            self.device.flush()
        begin = time.perf_counter()
        self.device.busy(arm.busy_s)
        start.record()
        arm.runner(arguments)
        end.record()
        host_s = time.perf_counter() - begin
        self.device.wait()
        if (longer := uncovered(arm.busy_s, host_s)) is not None:
            arm.busy_s = longer
            return None
        return float(start.elapsed_time(end)) * 1000.0


def uncovered(busy_s: float, host_s: float) -> float | None:
    """For how long the device has to be busy instead, where `busy_s` did not cover the host's time; else None."""
    return None if host_s <= busy_s else min(LONGEST_BUSY_S, max(busy_s, BUSY_FACTOR * host_s))


class _Race:
    """The baseline and the candidates of one call, each with memory of its own."""

    def __init__(self, params: Mapping[str, Any], scratch: Scratch, folder: str) -> None:
        self.device = need_lane("cuda")
        self.kernel = open_baseline(params["baseline"], folder, "cuda")
        if isinstance(self.kernel, RunBaseline):
            self.kernel.copies = False
        self.slots, self.scalars = step_arguments(
            self.kernel, params["arguments"], params["baseline"].get("integers", {}))
        generator = seeds.generator(str(params.get("secret", "time")), "time_step", 0, self.device)
        self.values: dict[str, Tensor] = {}
        for slot in (s for s in self.slots if s.loaded):
            recorded = slot.recorded(scratch)
            like = recorded if recorded.device.type == "meta" else recorded.to(self.device)
            self.values[slot.name] = families.make("captured", like, slot.stats, generator)
        self.timer = Timer(self.device, params.get("cache", "cold") == "cold")
        self.baseline = self._arm("the baseline", self.kernel)
        if self.baseline.error is not None:
            raise self.baseline.error
        self.candidates: list[_Arm] = []
        for i, candidate in enumerate(params["candidates"]):
            self.candidates.append(self._candidate(f"candidate {i}", candidate))

    def _candidate(self, who: str, data: Mapping[str, Any]) -> _Arm:
        if self.lost:
            return _Arm(who, _absent, Arena([], self.device), error=_not_run(who))
        try:
            return self._arm(who, Candidate(
                data["source"], Plan.from_json(data["plan"]), self.kernel, self.scalars, self.device))
        except WorkerFault as e:
            return _Arm(who, _absent, Arena([], self.device), error=e)

    def _arm(self, who: str, runner: Runner) -> _Arm:
        arm = _Arm(who, runner, Arena(self.slots, self.device))
        try:
            for slot in self.slots:
                self._restore(arm, slot)
            for _ in range(WARM_UPS):
                run(runner, self._arguments(arm), self.device, who)
        except WorkerFault as e:
            arm.error = e
        return arm

    def _restore(self, arm: _Arm, slot: Slot) -> None:
        if slot.loaded:
            families.writable(arm.arena.view(slot)).copy_(families.writable(self.values[slot.name]))

    def _arguments(self, arm: _Arm) -> dict[str, Any]:
        return {**self.scalars, **{s.name: arm.arena.view(s) for s in self.slots}}

    def pair(self) -> None:
        """Every live arm once in order and once in reverse: A B B A."""
        live = [a for a in (self.baseline, *self.candidates) if a.error is None and not a.stopped]
        for arm in (*live, *reversed(live)):
            if arm.error is None and not self.lost:
                self._once(arm)

    def _once(self, arm: _Arm) -> None:
        try:
            for _ in range(TRIES):
                for slot in (s for s in self.slots if s.name in self.kernel.changed):
                    self._restore(arm, slot)
                if (us := self.timer.measure(arm, self._arguments(arm))) is not None:
                    arm.us.append(us)
                    break
        except Exception as e:
            gone = lost(self.device)
            arm.error = WorkerFault("runtime_failed", f"{arm.who}: {words(e)}", LOST if gone else "")
            if arm is self.baseline:
                raise arm.error from e

    @property
    def lost(self) -> bool:
        return any(a.error is not None and a.error.detail == LOST for a in self.candidates)

    def result(self) -> dict[str, Any]:
        def one(arm: _Arm) -> dict[str, Any]:
            error = arm.error or (None if arm.us else _not_run(arm.who) if self.lost else _uncovered(arm.who))
            if error is not None:
                return {"error": error.message, "kind": error.kind}
            return {"us": arm.us, "stopped": arm.stopped}

        return {"baseline_us": self.baseline.us, "candidates": [one(a) for a in self.candidates], "restart": self.lost}


def _not_run(who: str) -> WorkerFault:
    return WorkerFault("runtime_failed", f"{who}: not run: {LOST}", LOST)


def _uncovered(who: str) -> WorkerFault:
    return WorkerFault("unsupported", f"{who}: the host takes longer to launch it than the device can be kept busy")


def _absent(arguments: Mapping[str, Any]) -> None:
    raise WorkerFault("bad_request", "this candidate was never loaded")


def time_step(params: Mapping[str, Any], scratch: Scratch, folder: str) -> dict[str, Any]:
    """Method `time_step`: {baseline_us, candidates: [{us, stopped} | {error, kind}], restart}.

    `pairs` (default 25) measures each arm twice per pair; `cache` is cold (default) or warm. `restart` true: a
    candidate broke the GPU context, what was measured before stands, and this worker must be started anew.
    Raises WorkerFault (unsupported) where the host is too slow to time the baseline.
    """
    return _race(params, scratch, folder, give_up=False)


def tune_step(params: Mapping[str, Any], scratch: Scratch, folder: str) -> dict[str, Any]:
    """Method `tune_step`: as `time_step`, but a hopeless candidate is `stopped` after a few pairs."""
    return _race(params, scratch, folder, give_up=True)


def _race(params: Mapping[str, Any], scratch: Scratch, folder: str, *, give_up: bool) -> dict[str, Any]:
    race = _Race(params, scratch, folder)
    for number in range(1, int(params.get("pairs", 25)) + 1):
        if race.lost:
            break
        race.pair()
        if not race.baseline.us:
            raise _uncovered(race.baseline.who)
        if give_up and number == TRIAL_PAIRS:
            _drop(race.candidates, statistics.median(race.baseline.us))
    return race.result()


def _drop(candidates: Sequence[_Arm], baseline_us: float) -> None:
    for arm in candidates:
        if arm.error is None and arm.us and statistics.median(arm.us) > HOPELESS * baseline_us:
            arm.stopped = True
