from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from kernelopt_bot.search.space import Descent

Point = tuple[int, int]


def grid(size: int) -> Callable[[Point], list[Point]]:
    def neighbours(p: Point) -> list[Point]:
        moves = [(1, 0), (-1, 0), (0, 1), (0, -1)]
        return [(p[0] + a, p[1] + b) for a, b in moves if 0 <= p[0] + a < size and 0 <= p[1] + b < size]
    return neighbours


def run(descent: Descent[Point], time: Callable[[Point], float]) -> list[Point]:
    asked: list[Point] = []
    while points := descent.ask():
        asked += points
        descent.tell({p: time(p) for p in points})
    return asked


@given(st.integers(0, 7), st.integers(0, 7), st.integers(0, 7), st.integers(0, 7))
def test_finds_the_minimum_of_a_bowl_and_asks_for_nothing_twice(a: int, b: int, x: int, y: int) -> None:
    descent = Descent([(x, y)], grid(8), lambda p: p, batch=3)
    asked = run(descent, lambda p: 10.0 + (p[0] - a) ** 2 + (p[1] - b) ** 2)
    assert descent.best == (10.0, (a, b))
    assert len(asked) == len(set(asked))


def test_noise_below_the_threshold_does_not_move_it() -> None:
    descent = Descent([(0, 0)], grid(4), lambda p: p, min_gain=1.01)
    run(descent, lambda p: 100.0 - 0.5 * (p[0] + p[1] > 0))
    assert descent.best == (100.0, (0, 0))


def test_failed_points_are_passed_over() -> None:
    descent = Descent([(0, 0), (2, 2)], grid(4), lambda p: p)
    run(descent, lambda p: float("inf") if p == (0, 0) else float("nan") if p == (1, 2) else 5.0 - p[1])
    assert descent.best is not None and descent.best[0] == 2.0


def test_ends_where_everything_fails() -> None:
    descent = Descent([(0, 0)], grid(4), lambda p: p)
    assert run(descent, lambda p: float("inf")) == [(0, 0)] and descent.best is None
