from __future__ import annotations

import math
from typing import Any

import pytest

from kernelopt_bot.agents.analyst import bound
from kernelopt_bot.agents.answers import SummaryAnswer
from kernelopt_bot.agents.brain import Attempt, GateAnswer, StepFacts
from kernelopt_bot.agents.memory import Memory, diverse
from kernelopt_bot.agents.strategy_settings import Strategy
from kernelopt_bot.agents.yields import Yields, reward, ucb
from tests.agents.facts import DEVICE

RIGHT = GateAnswer("correctness", True)


def attempt(name: str, speedup: float | None = 1.5, direction: str = "tiles", *, gates: Any = (RIGHT,),
            author: str = "llm") -> Attempt:
    return Attempt(name, "s", direction, author, gates, speedup, f"source of {name}")


def test_diverse_select_takes_each_chain_s_best_first() -> None:
    found = [attempt("a1", 1.9), attempt("a2", 2.0), attempt("b1", 1.2), attempt("c1", 1.1)]
    chains = {"a1": "a", "a2": "a", "b1": "b", "c1": "c"}
    assert [a.candidate for a in diverse(found, chains, 3)] == ["a2", "b1", "c1"]
    assert [a.candidate for a in diverse(found, chains, 4)] == ["a2", "b1", "c1", "a1"]


def test_a_beam_holds_what_is_right_even_if_slow() -> None:
    memory = Memory(Strategy(beam=2))
    slow = attempt("slow", 0.9, gates=(RIGHT, GateAnswer("race", False)))
    wrong = attempt("wrong", 3.0, gates=(GateAnswer("correctness", False),))
    unchecked = attempt("unchecked", 0.5, gates=(GateAnswer("static", True), GateAnswer("race", False)))
    for one in (slow, wrong, unchecked, attempt("fast", 1.5), attempt("faster", 2.0)):
        memory.tried(one, None)
    assert [a.candidate for a in memory.beam("s")] == ["faster", "fast"]
    assert [a.candidate for a in Memory(Strategy(), [slow, wrong, unchecked]).beam("s")] == ["slow"]


def test_chains_follow_parents_to_their_first_candidate() -> None:
    memory = Memory(Strategy())
    memory.tried(attempt("a"), None)
    memory.tried(attempt("b"), "a")
    memory.tried(attempt("c"), "b")
    memory.tried(attempt("loop"), "loop")
    assert [memory.chain(c) for c in ("a", "b", "c", "loop", "unknown")] == ["a", "a", "a", "loop", "unknown"]


def test_seldom_tried_beginnings_get_their_turn() -> None:
    memory = Memory(Strategy(exploration=1.4))
    assert memory.parent("s") is None
    memory.tried(attempt("a", 4.0), None)
    first = memory.parent("s")
    assert first is not None and first.candidate == "a"
    for n in range(6):
        memory.tried(attempt(f"child{n}", None, gates=(GateAnswer("correctness", False),)), "a")
    assert memory.parent("s") is None


def test_experiences_are_appended_replaced_skipped_and_the_oldest_goes() -> None:
    memory = Memory(Strategy(memory=2))
    for n in range(3):
        assert memory.sum_up(attempt(f"c{n}"), SummaryAnswer(action="append", lesson=f"l{n}"), "memory-bound")
    assert [e.lesson for e in memory.experiences] == ["l1", "l2"]
    assert memory.sum_up(attempt("c3"), SummaryAnswer(action="replace", replaces=0, lesson="l3"), "memory-bound")
    assert [e.lesson for e in memory.experiences] == ["l3", "l2"]
    assert not memory.sum_up(attempt("c4"), SummaryAnswer(action="skip"), "memory-bound")
    memory.sum_up(attempt("c5", 0.5, gates=(GateAnswer("race", False),)),
                  SummaryAnswer(action="replace", replaces=99, lesson="loss"), "unknown")
    assert memory.experiences[-1].lesson == "loss" and memory.experiences[-1].source == ""


@pytest.mark.parametrize(("speedup", "worth"), [
    (1.05, True), (1.04, False), (0.83, True), (0.84, False), (None, False)])
def test_thresholds_of_gain_and_loss(speedup: float | None, worth: bool) -> None:
    assert Memory(Strategy()).noteworthy(attempt("a", speedup)) is worth


def test_nothing_passes_that_gate_2_was_not_asked_about() -> None:
    """Of the search's own pass only the fastest are checked."""
    raced = attempt("a", 3.0, gates=(GateAnswer("static", True), GateAnswer("race", True)))
    assert not raced.passed and reward(raced) == 0.0 and not attempt("b", gates=()).passed
    assert Memory(Strategy(), [raced]).beam("s") == []


def test_a_meltdown_is_few_directions_in_a_whole_window() -> None:
    memory = Memory(Strategy(meltdown_window=6, meltdown_directions=2))
    memory.plans = ["a", "b", "a", "b", "a"]
    assert not memory.melted()
    memory.plans.append("b")
    assert memory.melted()
    memory.plans.append("c")
    assert not memory.melted()


def test_upper_confidence_bounds() -> None:
    assert ucb(0.0, 0, 10, 1.4) == math.inf
    assert ucb(3.0, 4, 16, 1.4) == pytest.approx(0.75 + 1.4 * math.sqrt(math.log(16) / 4))
    assert reward(attempt("a", 4.0)) == 2.0 and reward(attempt("a", 0.5)) == 0.0 and reward(attempt("a", None)) == 1.0
    assert reward(attempt("a", 4.0, gates=(GateAnswer("correctness", False),))) == 0.0


def test_shares_explore_first_and_follow_the_gain_then() -> None:
    yields = Yields()
    assert yields.shares(["a", "b"], 4, 1.4) == {"a": 2, "b": 2}
    assert yields.shares([], 4, 1.4) == {}
    for n in range(20):
        yields.tried(attempt(f"a{n}", 2.0, author="a"), 0)
        yields.tried(attempt(f"b{n}", 1.0, author="b"), 1)
    assert yields.shares(["a", "b"], 4, 0.1)["a"] == 4
    assert yields.of("b").retries == 20 and yields.of("b").mended == 20
    assert yields.to_json()["a"]["passed"] == 20


@pytest.mark.parametrize(("time_us", "size", "flops", "said"), [
    (None, 4300, None, "unknown"), (1.0, 4_000_000, None, "near-optimal"), (2.0, 4_300_000, None, "memory-bound"),
    (2.0, 43_000, 51_000_000, "compute-bound"), (100.0, 43_000, None, "underutilised"),
])
def test_the_analyst_s_rule(time_us: float | None, size: int, flops: int | None, said: str) -> None:
    """4.3 MB/us and 51 Mflop/us are the device's roofs."""
    step = StepFacts("k0", "pointwise", "", (), time_us, None, size, flops=flops)
    assert bound((step,), DEVICE, 0.8) == said
