"""All problems of a benchmark, one at a time on each device, until they are done or the time is up."""

from __future__ import annotations

import math
import queue
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

from kernelopt_bot.bench import child, store
from kernelopt_bot.bench.child import Settings, Stopped
from kernelopt_bot.bench.machine import cores
from kernelopt_bot.bench.problems import Problem
from kernelopt_bot.bench.record import Record

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
    output. Raises Unavailable: a device cannot be used; KeyboardInterrupt after the running problems were ended.
    """
    begun = time.monotonic()
    ends = begun + deadline_s if deadline_s is not None else math.inf
    before = store.records(folder) if (folder / "records").is_dir() else ()
    finished = {r.key for r in before if r.status not in retry}
    left: queue.SimpleQueue[Problem] = queue.SimpleQueue()
    for problem in problems:
        if (problem.level, problem.number) not in finished:
            left.put(problem)
    expected, lock, stop = Expected(settings.search_s, before), threading.Lock(), threading.Event()

    def work(part: int) -> None:
        prefix, first = cores(part, len(devices)), True
        while not stop.is_set():
            try:
                problem = left.get_nowait()
            except queue.Empty:
                return
            if time.monotonic() + expected.seconds(problem.level) > ends and not first:
                continue
            first = False
            place = folder / "work" / problem.id
            try:
                record = child.run(problem, place, settings, devices[part], environment, ends=ends, stop=stop,
                                   prefix=prefix)
            except Stopped:
                return
            finally:
                if not keep:
                    shutil.rmtree(place, ignore_errors=True)
            with lock:
                store.add(folder, record)
                finished.add(record.key)
                expected.learn(record)
                done(record)

    with ThreadPoolExecutor(len(devices), thread_name_prefix="kernelopt-bench") as pool:
        futures = [pool.submit(work, part) for part in range(len(devices))]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            if not all(f.done() and f.exception() is None for f in futures):
                stop.set()
    for future in futures:
        future.result()
    return tuple(p for p in problems if (p.level, p.number) not in finished)
