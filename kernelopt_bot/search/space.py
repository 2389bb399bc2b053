"""Coordinate descent as a dialogue: what to measure next, given what was measured.

The search asks for a batch of configurations, times them (in one call of the worker), and tells the times. Ties go to
the earlier configuration; a configuration is never asked for twice; it stops at a local minimum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

_Point = TypeVar("_Point")


class Descent(Generic[_Point]):
    """`key` identifies a point, `neighbours` lists the points one step away, nearest to promising first."""

    def __init__(
        self, starts: Iterable[_Point], neighbours: Callable[[_Point], Iterable[_Point]],
        key: Callable[[_Point], Hashable], *, batch: int = 8, min_gain: float = 1.005,
    ) -> None:
        self._neighbours, self._key, self._batch, self._min_gain = neighbours, key, batch, min_gain
        self._queue = list({key(p): p for p in starts}.values())
        self._asked: dict[Hashable, _Point] = {}
        self._best: tuple[float, _Point] | None = None
        self._centre: Hashable | None = None

    def ask(self) -> tuple[_Point, ...]:
        """Up to `batch` points to measure; empty when the best point has no better neighbour."""
        if not self._queue and self._best is not None and self._key(self._best[1]) != self._centre:
            self._centre = self._key(self._best[1])
            fresh = {self._key(p): p for p in self._neighbours(self._best[1])}
            self._queue = [p for k, p in fresh.items() if k not in self._asked]
        taken, self._queue = self._queue[: self._batch], self._queue[self._batch:]
        self._asked |= {self._key(p): p for p in taken}
        return tuple(taken)

    def tell(self, times: Mapping[Hashable, float]) -> None:
        """Times by key in any one unit, infinite or NaN where a point failed; unknown keys are ignored. The best
        moves only if the gain is at least `min_gain`, so that noise does not lead the descent astray."""
        for key, time in times.items():
            if key in self._asked and math.isfinite(time) and (
                self._best is None or time * self._min_gain <= self._best[0]
            ):
                self._best = (time, self._asked[key])

    @property
    def best(self) -> tuple[float, _Point] | None:
        """Time and point, None before the first finite time."""
        return self._best
