from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelopt_bot.search.budget import Budget, Left


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_counts_down_each_of_its_limits() -> None:
    clock = Clock()
    budget = Budget(10.0, 5.0, 3, clock=clock)
    clock.now += 4
    budget.charge(device_s=1.5, candidates=2)
    assert budget.left() == Left(6.0, 3.5, 1)
    assert budget.spent() == {"wall_s": 4.0, "search_s": 0.0, "device_s": 1.5, "candidates": 2.0}
    assert budget.exhausted() == ""


def test_waiting_for_a_turn_is_nobodys_time() -> None:
    clock = Clock()
    budget = Budget(10.0, 5.0, 3, clock=clock)
    with budget.searching(4.0), budget.device():
        clock.now += 30
        budget.wait(29.0)
        assert budget.left().wall_s == 3.0 and budget.exhausted() == ""
    assert budget.spent() == {"wall_s": 1.0, "search_s": 1.0, "device_s": 1.0, "candidates": 0.0}
    clock.now += 9
    assert budget.exhausted() == "the wall time of 10 s is spent"
    with pytest.raises(ValueError, match="waited"):
        budget.wait(-1.0)


def test_the_search_has_a_limit_of_its_own_within_the_wall_time() -> None:
    clock = Clock()
    budget = Budget(100.0, 5.0, 3, clock=clock)
    clock.now += 30
    with budget.searching(20.0):
        clock.now += 5
        assert budget.left().wall_s == 15.0 and budget.exhausted() == ""
        clock.now += 16
        assert budget.left().wall_s == 0.0 and budget.exhausted() == "the search time of 20 s is spent"
    assert budget.exhausted() == "" and budget.left().wall_s == 49.0
    assert budget.spent()["search_s"] == 21.0 and budget.spent()["wall_s"] == 51.0


def test_the_wall_time_ends_a_search_too() -> None:
    clock = Clock()
    budget = Budget(10.0, 5.0, 3, clock=clock)
    with budget.searching(20.0):
        clock.now += 10
        assert budget.exhausted() == "the wall time of 10 s is spent"


@pytest.mark.parametrize(("seconds", "device", "candidates", "words"), [
    (10.0, 0.0, 0, "wall time of 10 s"), (0.0, 5.0, 0, "device time of 5 s"), (0.0, 0.0, 3, "3 candidates")])
def test_says_which_limit_ended_it(seconds: float, device: float, candidates: int, words: str) -> None:
    clock = Clock()
    budget = Budget(10.0, 5.0, 3, clock=clock)
    clock.now += seconds
    budget.charge(device_s=device, candidates=candidates)
    assert words in budget.exhausted()


def test_no_device_time_is_no_reason_to_stop_where_none_was_given() -> None:
    assert Budget(10.0, 0.0, 3, clock=Clock()).exhausted() == ""


def test_device_time_is_charged_also_when_the_work_fails() -> None:
    clock = Clock()
    budget = Budget(10.0, 5.0, 3, clock=clock)
    with pytest.raises(OSError), budget.device():
        clock.now += 2
        raise OSError
    assert budget.left().device_s == 3.0


def test_resumes_with_what_was_spent() -> None:
    budget = Budget(10.0, 5.0, 3, clock=Clock(), spent_wall_s=4.0, spent_device_s=1.0, spent_candidates=1)
    assert budget.left() == Left(6.0, 4.0, 2)


@given(st.floats(0, 1e6), st.lists(st.floats(0, 1e6), max_size=5))
def test_is_never_negative(limit: float, charges: list[float]) -> None:
    clock = Clock()
    budget = Budget(limit, limit, 2, clock=clock)
    for charge in charges:
        clock.now += charge
        budget.charge(device_s=charge, candidates=1)
        left = budget.left()
        assert left.wall_s >= 0 and left.device_s >= 0 and left.candidates >= 0


@pytest.mark.parametrize("bad", [-1.0, float("nan")])
def test_refuses_negative_figures(bad: float) -> None:
    with pytest.raises(ValueError):
        Budget(bad, 1.0, 1)
    with pytest.raises(ValueError):
        Budget(1.0, 1.0, 1).charge(device_s=bad)


def test_a_stopped_budget_is_exhausted() -> None:
    budget = Budget(100, 100, 100)
    assert budget.exhausted() == ""
    budget.stop()
    assert budget.exhausted() == "the run was interrupted"
