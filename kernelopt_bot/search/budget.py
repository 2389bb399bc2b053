"""What a search may spend: wall time, device time, candidates."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Left:
    """What is left, never negative."""

    wall_s: float
    device_s: float
    candidates: int


class Budget:
    """Counts down from its limits. Not thread-safe but for `stop`: one search, one budget.

    `wall_s` and `device_s` in seconds, `candidates` as a count; all at least 0 (ValueError otherwise). Wall time runs
    by itself from construction on, by a monotonic clock; device time and candidates are charged. A resumed search
    passes what the earlier one spent.
    """

    def __init__(
        self, wall_s: float, device_s: float, candidates: int, *, clock: Callable[[], float] = time.monotonic,
        spent_wall_s: float = 0.0, spent_device_s: float = 0.0, spent_candidates: int = 0,
    ) -> None:
        given = (wall_s, device_s, candidates, spent_wall_s, spent_device_s, spent_candidates)
        if not all(v >= 0 for v in given):
            raise ValueError("a budget's figures are at least 0")
        self._limits = Left(float(wall_s), float(device_s), int(candidates))
        self._clock, self._waited = clock, 0.0
        self._start = clock() - spent_wall_s
        self._device_s, self._candidates = float(spent_device_s), int(spent_candidates)
        self._search_s, self._search_limit, self._search_start = 0.0, math.inf, math.nan
        self._stopped = False

    def left(self) -> Left:
        return Left(
            max(0.0, min(self._limits.wall_s - self._wall(), self._search_limit - self._search())),
            max(0.0, self._limits.device_s - self._device_s),
            max(0, self._limits.candidates - self._candidates),
        )

    def now(self) -> float:
        """Seconds on a clock that stands still while others have their turn."""
        return self._clock() - self._waited

    def wait(self, seconds: float) -> None:
        """These were spent waiting for a turn on a shared device, and are nobody's. Raises ValueError if negative."""
        if not seconds >= 0:
            raise ValueError("what was waited is at least 0")
        self._waited += seconds

    def charge(self, *, device_s: float = 0.0, candidates: int = 0) -> None:
        """Book what was spent, also beyond the limit: what happened has happened. Raises ValueError if negative."""
        if not (device_s >= 0 and candidates >= 0):
            raise ValueError("what was spent is at least 0")
        self._device_s += device_s
        self._candidates += candidates

    @contextmanager
    def device(self) -> Iterator[None]:
        """Charges the wall time of the block as device time, also where it raises."""
        start = self.now()
        try:
            yield
        finally:
            self.charge(device_s=max(0.0, self.now() - start))

    @contextmanager
    def searching(self, limit_s: float) -> Iterator[None]:
        """The block is the search proper, which has a limit of its own within the wall time; once a budget."""
        self._search_start, self._search_limit = self.now(), limit_s
        try:
            yield
        finally:
            self._search_s, self._search_limit = self._search(), math.inf
            self._search_start = math.nan

    def spent(self) -> dict[str, float]:
        """`wall_s`, `search_s` of it, `device_s`, `candidates` as `TargetResult.spent` wants them."""
        return {"wall_s": self._wall(), "search_s": self._search(), "device_s": self._device_s,
                "candidates": float(self._candidates)}

    def exhausted(self) -> str:
        """Which limit is reached, in words; '' while there is something left of each."""
        left = self.left()
        if self._stopped:
            return "the run was interrupted"
        if left.wall_s <= 0 and self._search() >= self._search_limit:
            return f"the search time of {self._search_limit:g} s is spent"
        if left.wall_s <= 0:
            return f"the wall time of {self._limits.wall_s:g} s is spent"
        if left.candidates <= 0:
            return f"{self._limits.candidates} candidates were tried"
        if left.device_s <= 0 and self._limits.device_s > 0:
            return f"the device time of {self._limits.device_s:g} s is spent"
        return ""

    def stop(self) -> None:
        """From now on it is exhausted. The one method that another thread may call."""
        self._stopped = True

    def share(self, parts: int) -> float:
        """Wall seconds for one of `parts` equal remaining pieces of work."""
        return self.left().wall_s / max(1, parts)

    def _search(self) -> float:
        return self._search_s if math.isnan(self._search_start) else max(0.0, self.now() - self._search_start)

    def _wall(self) -> float:
        return max(0.0, self.now() - self._start)
