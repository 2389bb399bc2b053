"""Who searches which target where: targets are handed to places, each of which is one device with its workers.

In this process, one place after another target in the caller's thread, or a thread a place. A distributed engine has to
bring places of its own and an `Executor` over them; nothing else of the search knows how many there are.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kernelopt_bot.errors import UserError
from kernelopt_bot.search.result import TargetResult
from kernelopt_bot.targets.target import Target


@dataclass(frozen=True)
class Finished:
    results: tuple[TargetResult, ...]
    """In the order of the targets."""
    stopped: str
    """Why the run ended early ('' if it did not)."""
    interrupted: bool = False
    bug: Exception | None = None
    """What ended the run unexpectedly: to be raised once the finished results are written."""
    limited: bool = False
    """It ended early by a limit that it was given, and by nothing that went wrong."""


class Place(Protocol):
    """One device that is held for the run."""

    def refuses(self) -> str:
        """The limit for which it takes no further target, in words; '' while it takes one."""

    def search(self, target: Target) -> TargetResult:
        """Everything about one target. Raises UserError where the run cannot go on."""

    def stop(self) -> None:
        """Let a search that runs in another thread end with what it has verified."""


class Executor(Protocol):
    def run(self, targets: Sequence[Target], places: Sequence[Place]) -> Finished:
        """Every target at some place. What is finished survives whatever happens to another target."""


class InProcess:
    """One place: the targets in turn, in the caller's thread, which an interruption ends at once. Several: a thread
    each, and an interruption (once) lets every search end with what it has verified."""

    def run(self, targets: Sequence[Target], places: Sequence[Place]) -> Finished:
        queue = _Queue(targets)
        if len(places) == 1:
            return _finished(targets, [_in_turn(queue, places[0])], queue)
        ends: list[_Ended] = []
        done = [threading.Event() for _ in places]

        def work(place: Place, end: threading.Event) -> None:
            try:
                ends.append(_in_turn(queue, place))
            finally:
                end.set()

        for place, end in zip(places, done, strict=True):
            threading.Thread(target=work, args=(place, end), name="kernelopt-place").start()
        try:
            _wait(done)
        except KeyboardInterrupt:
            queue.close()
            for place in places:
                place.stop()
            _wait(done)
            return dataclasses.replace(_finished(targets, ends, queue), stopped="interrupted", interrupted=True)
        return _finished(targets, ends, queue)


class _Queue:
    """The targets that no place has taken yet."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._targets, self._lock = list(targets), threading.Lock()

    def take(self) -> Target | None:
        with self._lock:
            return self._targets.pop(0) if self._targets else None

    def close(self) -> str:
        """Nothing is taken any more. Names of what was not taken."""
        with self._lock:
            left = ", ".join(t.name for t in self._targets)
            self._targets.clear()
        return left


@dataclass(frozen=True)
class _Ended:
    results: tuple[TargetResult, ...]
    stopped: str = ""
    interrupted: bool = False
    bug: Exception | None = None
    limited: bool = False


def _in_turn(queue: _Queue, place: Place) -> _Ended:
    results: list[TargetResult] = []
    while True:
        if limit := place.refuses():
            # What is left is for the other places, if there are any.
            return _Ended(tuple(results), limit, limited=True)
        if (target := queue.take()) is None:
            return _Ended(tuple(results))
        try:
            results.append(place.search(target))
            if not results[-1].interrupted:
                continue
            end = _Ended((), f"interrupted while optimising {target.name}", interrupted=True)
        except UserError as e:
            end = _Ended((), f"{target.name}: {e.what}")
        except KeyboardInterrupt:
            end = _Ended((), f"interrupted while optimising {target.name}", interrupted=True)
        except Exception as e:
            end = _Ended((), f"{target.name}: a bug in KernelOPT: {type(e).__name__}", bug=e)
        queue.close()
        return dataclasses.replace(end, results=tuple(results))


def _finished(targets: Sequence[Target], ends: Sequence[_Ended], queue: _Queue) -> Finished:
    order = {t.name: i for i, t in enumerate(targets)}
    results = sorted((r for e in ends for r in e.results), key=lambda r: order[r.target.name])
    left = queue.close()
    # A bug is raised by the caller, so that it is the reason that is told; a limit counts where it left something over.
    early = sorted((e for e in ends if e.stopped and (left or not e.limited)), key=lambda e: (e.bug is None, e.limited))
    first = early[0] if early else _Ended(())
    stopped = f"{first.stopped}; not begun: {left}" if first.limited else first.stopped
    return Finished(tuple(results), stopped, any(e.interrupted for e in ends), first.bug, first.limited)


def _wait(done: Sequence[threading.Event]) -> None:
    """Not by joining the threads: Python 3.11 takes a thread for ended whose `join` was interrupted, and what it has
    found would be lost."""
    for event in done:
        # In slices: a wait without end would not see an interruption.
        while not event.wait(0.2):
            pass
