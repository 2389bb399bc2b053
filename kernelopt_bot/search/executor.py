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


class Place(Protocol):
    """One device that is held for the run."""

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
        if len(places) == 1:
            return _finished(targets, [_in_turn(_Queue(targets), places[0])])
        queue = _Queue(targets)
        ends: list[_Ended] = []
        threads = [threading.Thread(target=lambda p=p: ends.append(_in_turn(queue, p)),
                                    name="kernelopt-place") for p in places]
        for thread in threads:
            thread.start()
        try:
            _join(threads)
        except KeyboardInterrupt:
            queue.close()
            for place in places:
                place.stop()
            _join(threads)
            return dataclasses.replace(_finished(targets, ends), stopped="interrupted", interrupted=True)
        return _finished(targets, ends)


class _Queue:
    """The targets that no place has taken yet."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._targets, self._lock = list(targets), threading.Lock()

    def take(self) -> Target | None:
        with self._lock:
            return self._targets.pop(0) if self._targets else None

    def close(self) -> None:
        with self._lock:
            self._targets.clear()


@dataclass(frozen=True)
class _Ended:
    results: tuple[TargetResult, ...]
    stopped: str = ""
    interrupted: bool = False
    bug: Exception | None = None


def _in_turn(queue: _Queue, place: Place) -> _Ended:
    results: list[TargetResult] = []
    while (target := queue.take()) is not None:
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
    return _Ended(tuple(results))


def _finished(targets: Sequence[Target], ends: Sequence[_Ended]) -> Finished:
    order = {t.name: i for i, t in enumerate(targets)}
    results = sorted((r for e in ends for r in e.results), key=lambda r: order[r.target.name])
    # A bug is raised by the caller, so that it is the reason that is told.
    early = sorted((e for e in ends if e.stopped), key=lambda e: e.bug is None)
    first = early[0] if early else _Ended(())
    return Finished(tuple(results), first.stopped, any(e.interrupted for e in ends), first.bug)


def _join(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        # In slices: a wait without end would not see an interruption.
        while thread.is_alive():
            thread.join(0.2)
