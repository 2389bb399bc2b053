"""All problems of a benchmark until they are done or the time is up, one or some at a time on each device."""

from __future__ import annotations

import contextlib
import math
import queue
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernelopt_bot.bench import child, store
from kernelopt_bot.bench.child import Settings, Stopped
from kernelopt_bot.bench.machine import cores
from kernelopt_bot.bench.problems import Problem
from kernelopt_bot.bench.record import Record
from kernelopt_bot.device.state import gpus, visible
from kernelopt_bot.sandbox.gpu import pick
from kernelopt_bot.search.progress import Silent
from kernelopt_bot.search.run import exclusive

FIRST_GUESS_S = 60.0
"""For a problem's loading and confirmation, on top of its search, as long as nothing is known."""
QUANTILE = 0.8
"""Of the earlier problems' times: what a next one is expected to take."""


class Expected:
    """How long a problem of a level takes, learnt from those that are done."""

    def __init__(self, search_s: Mapping[int, float], records: Sequence[Record]) -> None:
        self._search_s = search_s
        self._seen: dict[int, list[float]] = {}
        for record in records:
            self.learn(record)

    def learn(self, record: Record) -> None:
        if record.total_s is not None:
            self._seen.setdefault(record.level, []).append(record.total_s)

    def seconds(self, level: int) -> float:
        seen = sorted(self._seen.get(level, ()))
        return seen[math.ceil(QUANTILE * len(seen)) - 1] if seen else self._search_s[level] + FIRST_GUESS_S


def run(problems: Sequence[Problem], folder: Path, settings: Settings, devices: Sequence[str],
        environment: Mapping[str, str], *, deadline_s: float | None = None, retry: Sequence[str] = (),
        keep: bool = False, done: Callable[[Record], None] = lambda record: None) -> tuple[Problem, ...]:
    """Run what has no record in `folder` yet, or one whose status is in `retry`; the problems that are left over.

    A record is on disk before its device takes the next problem. With `deadline_s` no problem but each device's first
    is begun that is not expected to end in time, and what still runs then is ended. `keep` leaves each problem's own
    output. With `settings.together` over 1 this process holds the GPUs, and a problem that has too little memory beside
    others is tried again alone, at the end. Raises Unavailable: a device cannot be used; KeyboardInterrupt after the
    running problems were ended.
    """
    ends = time.monotonic() + deadline_s if deadline_s is not None else math.inf
    before = store.records(folder) if (folder / "records").is_dir() else ()
    finished = {r.key for r in before if r.status not in retry}
    wanted = [p for p in problems if (p.level, p.number) not in finished]
    work = _Work(folder, settings, devices, environment, ends, keep, done, finished,
                 Expected(settings.search_s, before))
    with contextlib.ExitStack() as held:
        if settings.together > 1:
            for device in devices:
                held.enter_context(exclusive(pick(device, visible(gpus())).uuid, "cuda", Silent()))
            work.turns = {d: _made(folder / "turns" / str(n)) for n, d in enumerate(devices)}
            crowded = work.run(wanted, settings.together)
            work.run(crowded, 1)
        else:
            work.run(wanted, 1)
    return tuple(p for p in problems if (p.level, p.number) not in finished)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


@dataclass
class _Work:
    """One call of `run`."""

    folder: Path
    settings: Settings
    devices: Sequence[str]
    environment: Mapping[str, str]
    ends: float
    keep: bool
    done: Callable[[Record], None]
    finished: set[tuple[int, int]]
    expected: Expected
    turns: Mapping[str, Path] = field(default_factory=dict)
    """Device -> folder of its turns' locks, where this process holds it."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, problems: Sequence[Problem], together: int) -> list[Problem]:
        """So many at a time on each device; those that had too little memory beside others, without a record."""
        left: queue.SimpleQueue[Problem] = queue.SimpleQueue()
        for problem in problems:
            left.put(problem)
        lanes, stop = [d for d in self.devices for _ in range(together)], threading.Event()
        crowded: list[Problem] = []

        def take(part: int) -> None:
            first = True
            while not stop.is_set():
                try:
                    problem = left.get_nowait()
                except queue.Empty:
                    return
                if time.monotonic() + self.expected.seconds(problem.level) > self.ends and not first:
                    continue
                first = False
                record = self.one(problem, lanes[part], cores(part, len(lanes)), together, stop)
                if record is None:
                    return
                if together > 1 and record.status == "out_of_memory":
                    crowded.append(problem)
                    continue
                with self.lock:
                    store.add(self.folder, record)
                    self.finished.add(record.key)
                    self.expected.learn(record)
                    self.done(record)

        with ThreadPoolExecutor(len(lanes), thread_name_prefix="kernelopt-bench") as pool:
            futures = [pool.submit(take, part) for part in range(len(lanes))]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                if not all(f.done() and f.exception() is None for f in futures):
                    stop.set()
        for future in futures:
            future.result()
        return crowded

    def one(self, problem: Problem, device: str, prefix: Sequence[str], together: int, stop: threading.Event,
            ) -> Record | None:
        """None: the benchmark ended before the problem did."""
        place = self.folder / "work" / problem.id
        settings = replace(self.settings, together=together, timeout_s=self.settings.timeout_s * together)
        try:
            return child.run(problem, place, settings, device, self.environment, ends=self.ends, stop=stop,
                             prefix=prefix, turns=self.turns.get(device))
        except Stopped:
            return None
        finally:
            if not self.keep:
                shutil.rmtree(place, ignore_errors=True)
