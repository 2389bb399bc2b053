from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kernelopt_bot.agents import strategy
from kernelopt_bot.agents.brain import Attempt, Experience, GateAnswer, PlaybookEntry, Proposal, Question, Reply
from kernelopt_bot.agents.builtin import FREE, Builtin
from kernelopt_bot.agents.council import Council
from kernelopt_bot.agents.strategy_settings import Strategy
from kernelopt_bot.contract.candidate import KernelCandidate, Plan
from tests.agents.facts import PLAN, SOURCE, Scripted, Workshop, candidate_text, spot

A, B = spot("aaaaaaaaaaaaaaaa"), spot("bbbbbbbbbbbbbbbb", steps=2)
RIGHT = GateAnswer("correctness", True)
WRONG = GateAnswer("correctness", False, "normal: out_ptr0: RMSE 0.25 is over 1e-07")


def plans(*named: tuple[str, str]) -> dict[str, Any]:
    return {"directions": [{"spot": s, "name": n, "idea": f"idea of {n}"} for s, n in named]}


def brain(directions: dict[str, Any], name: str = "scripted", **roles: Any) -> Scripted:
    """Plans `directions` every round; each candidate differs from the others by its text."""
    made = [0]

    def say(q: Question) -> Any:
        if q.role in roles:
            return roles[q.role]
        if q.role == "planner":
            return directions
        if q.role in ("executor", "fuser"):
            made[0] += 1
            return candidate_text(SOURCE.replace("    x =", f"    n = {made[0]}\n    x =", 1), why=f"try {made[0]}")
        return {"bottlenecks": [], "action": "skip"}

    return Scripted(say, name)


def fine(proposal: Proposal) -> tuple[GateAnswer, float | None]:
    return RIGHT, 2.0


def test_rounds_of_plans_go_to_executors_and_fusers() -> None:
    scripted = brain(plans((A.key, "tiles"), (B.key, "fuse them")))
    shop = Workshop([A, B], fine)
    outcome = strategy.run(Council([scripted]), shop, Strategy(rounds=2, plans=2))
    assert [(q.role, q.round) for q in scripted.asked if q.role in ("executor", "fuser")] == [
        ("executor", 0), ("fuser", 0), ("executor", 1), ("fuser", 1)]
    assert [(p.spot, p.direction) for p in shop.proposed] == [(A.key, "tiles"), (B.key, "fuse them")] * 2
    assert len(outcome.attempts) == 4 and outcome.ended == "2 rounds were searched"


def test_an_error_goes_back_with_its_evidence_k_times() -> None:
    reasons = iter(f"{word} is undefined" for word in ("tmp0", "tmpa", "tmpb", "tmpc", "tmpd"))
    scripted = brain(plans((A.key, "tiles")))
    shop = Workshop([A], lambda p: (GateAnswer("correctness", False, next(reasons)), None))
    outcome = strategy.run(Council([scripted]), shop, Strategy(rounds=1, plans=1, retries=2))
    asked = [q for q in scripted.asked if q.role == "executor"]
    assert [q.attempt for q in asked] == [0, 1, 2] and len(outcome.attempts) == 3
    assert [a.gates[-1].reason for a in asked[2].history] == ["tmp0 is undefined", "tmpa is undefined"]
    assert asked[2].history[-1].source == shop.proposed[1].source


def test_the_same_error_twice_ends_a_chain_whatever_its_figures() -> None:
    figures = iter(range(100))
    scripted = brain(plans((A.key, "tiles")))
    shop = Workshop([A], lambda p: (GateAnswer("correctness", False, f"RMSE 0.{next(figures)} is over 1e-7"), None))
    strategy.run(Council([scripted]), shop, Strategy(rounds=1, plans=1, retries=4))
    assert [q.attempt for q in scripted.asked if q.role == "executor"] == [0, 1]


@pytest.mark.parametrize("gate", [GateAnswer("race", False, "0.9x"), GateAnswer(
    "correctness", False, "out of time: zero did not run", measured=False)])
def test_what_is_no_error_is_not_sent_back(gate: GateAnswer) -> None:
    scripted = brain(plans((A.key, "tiles")))
    shop = Workshop([A], lambda p: (gate, 0.9))
    strategy.run(Council([scripted]), shop, Strategy(rounds=1, plans=1, retries=4))
    assert len(shop.proposed) == 1


def test_what_nobody_could_judge_is_no_pass_and_not_sent_back() -> None:
    scripted = brain(plans((A.key, "tiles")))
    shop = Workshop([A], lambda p: (GateAnswer("static", True), None))
    outcome = strategy.run(Council([scripted]), shop, Strategy(rounds=1, plans=1, retries=4))
    assert len(shop.proposed) == 1 and not outcome.attempts[0].passed


def test_what_passed_is_where_the_next_round_starts() -> None:
    scripted = brain(plans((A.key, "tiles")))
    shop = Workshop([A], fine)
    strategy.run(Council([scripted]), shop, Strategy(rounds=3, plans=1, exploration=0.0))
    parents = [q.parent.candidate if q.parent else None for q in scripted.asked if q.role == "executor"]
    assert parents == [None, "scripted-1", "scripted-1"]
    assert [p.parent for p in shop.proposed] == parents


def test_near_optimal_spots_are_not_planned_for() -> None:
    done = dataclasses.replace(A, bound="near-optimal")
    scripted = brain(plans((B.key, "fuse")))
    strategy.run(Council([scripted]), Workshop([done, B], fine), Strategy(rounds=1))
    (asked,) = [q for q in scripted.asked if q.role == "planner"]
    assert [s.key for s in asked.spots] == [B.key]


def test_a_profiler_s_words_go_to_the_planner_where_nothing_was_measured() -> None:
    unknown, known = dataclasses.replace(A, bound="unknown"), dataclasses.replace(B, bound="memory-bound")
    said = {"bottlenecks": [{"spot": s.key, "bound": "compute-bound", "evidence": "its exponentials"} for s in (A, B)]}
    scripted = brain(plans((A.key, "tiles")), profiler=said)
    strategy.run(Council([scripted]), Workshop([unknown, known], fine), Strategy(rounds=1, plans=1))
    (asked,) = [q for q in scripted.asked if q.role == "planner"]
    assert [(s.bound, s.remark) for s in asked.spots] == [("compute-bound", "its exponentials"), ("memory-bound", "")]


def test_a_meltdown_enforces_other_directions() -> None:
    """After a window of the same plan, the planner is told, and of its plans the new one is carried out."""
    scripted = brain(plans((A.key, "tiles"), (A.key, "split")))
    shop = Workshop([A], fine)
    settings = Strategy(rounds=4, plans=1, meltdown_window=3, meltdown_directions=1, exploration=0.0)
    strategy.run(Council([scripted]), shop, settings)
    assert [p.direction for p in shop.proposed] == ["tiles", "tiles", "tiles", "split"]
    assert [q.diversify for q in scripted.asked if q.role == "planner"] == [False, False, False, True]


def test_directions_that_keep_failing_are_avoided() -> None:
    scripted = brain(plans((A.key, "tiles"), (A.key, "split")))
    shop = Workshop([A], lambda p: (WRONG, None) if p.direction == "tiles" else (RIGHT, 2.0))
    strategy.run(Council([scripted]), shop, Strategy(rounds=4, plans=1, retries=0, avoid_after=3))
    assert [p.direction for p in shop.proposed] == ["tiles", "tiles", "tiles", "split"]
    assert [q.avoid for q in scripted.asked if q.role == "planner"][-1] == ("tiles",)


def test_the_plans_go_to_the_brain_that_gains_more() -> None:
    good = brain(plans(*((A.key, f"good {n}") for n in range(4))), "good")
    bad = brain(plans(*((A.key, f"bad {n}") for n in range(4))), "bad")
    shop = Workshop([A], lambda p: (RIGHT, 2.0) if p.author == "good" else (GateAnswer("race", False, "1x"), 1.0))
    council = Council([good, bad])
    strategy.run(council, shop, Strategy(rounds=3, plans=4, exploration=0.3))
    first, later = shop.proposed[:4], shop.proposed[4:]
    assert [p.author for p in first].count("good") == 2
    assert [p.author for p in later].count("good") > [p.author for p in later].count("bad")
    assert council.yields.of("bad").stopped == {"race": council.yields.of("bad").candidates}
    assert council.yields.of("good").gain_log2 == pytest.approx(council.yields.of("good").passed)


def test_a_spent_brain_leaves_the_search_to_the_built_in_one() -> None:
    idea = KernelCandidate("tiles-1", A.key, 0, (0,), SOURCE, _plan(), "tiles")
    entry = dataclasses.replace(A, playbook=(PlaybookEntry("tiles", 1.5, "facts"),))
    asked: list[str] = []

    def say(q: Question) -> Reply:
        asked.append(q.role)
        return Reply("spent", reason="0.50 USD", lasting=True)

    council = Council([Scripted(say, "llm"), Builtin(lambda key: iter([idea]))])
    shop = Workshop([entry], fine)
    outcome = strategy.run(council, shop, Strategy(rounds=3))
    assert asked == ["profiler"], "it was asked again"
    assert [p.author for p in shop.proposed] == ["builtin"]
    assert council.notes == ["llm: the budget is spent (0.50 USD); the search went on without"]
    assert outcome.ended == "no brain has a further idea"


def test_without_a_plan_a_brain_is_asked_for_its_own_choice() -> None:
    scripted = brain({}, planner=Reply("refused"))
    shop = Workshop([A, B], fine)
    strategy.run(Council([scripted]), shop, Strategy(rounds=1, plans=2))
    assert [(p.spot, p.direction) for p in shop.proposed] == [(A.key, FREE), (B.key, FREE)]


def test_a_plan_for_a_spot_that_is_not_there_is_left_out() -> None:
    scripted = brain(plans(("no such spot", "tiles"), (A.key[:8], "by its beginning"), (B.signature, "by signature")))
    shop = Workshop([A, B], fine)
    strategy.run(Council([scripted]), shop, Strategy(rounds=1))
    assert [(p.spot, p.direction) for p in shop.proposed] == [(A.key, "by its beginning"), (B.key, "by signature")]


def test_a_brain_that_owes_an_answer_rests() -> None:
    """Its next questions would depend on what it owes."""
    scripted = brain(plans((A.key, "tiles")), executor=Reply("pending"))
    outcome = strategy.run(Council([scripted]), Workshop([A], fine), Strategy(rounds=5))
    assert [q.round for q in scripted.asked] == [0, 0, 0]
    assert outcome.ended == "1 questions wait for their answers"


def test_gains_and_losses_become_experiences_in_the_author_s_words() -> None:
    scripted = brain(plans((A.key, "tiles")), summarizer={"action": "append", "lesson": "Tiles pay for wide rows."})
    council = Council([scripted])
    outcome = strategy.run(council, Workshop([A], fine), Strategy(rounds=1, plans=1))
    (kept,) = outcome.experiences
    assert (kept.lesson, kept.factor, kept.kept) == ("Tiles pay for wide rows.", 2.0, True)
    assert kept.source.startswith("import triton")


@pytest.mark.parametrize(("settings", "spots", "words"), [
    (Strategy(rounds=0), [A], "0 rounds were searched"), (Strategy(), [], "no step is worth a plan")])
def test_nothing_is_asked_where_nothing_is_to_do(settings: Strategy, spots: list[Any], words: str) -> None:
    scripted = brain(plans((A.key, "tiles")))
    assert strategy.run(Council([scripted]), Workshop(spots, fine), settings).ended == words
    assert scripted.asked == []


def test_the_search_s_own_limit_ends_it() -> None:
    scripted = brain(plans((A.key, "tiles")))
    shop = Workshop([A], fine)
    shop.spent = "200 candidates were tried"
    assert strategy.run(Council([scripted]), shop, Strategy()).ended == "200 candidates were tried"
    assert shop.proposed == []


def test_what_the_search_tried_before_counts() -> None:
    before = [Attempt(f"old{n}", A.key, "tiles", "builtin", (RIGHT, GateAnswer("race", False)), 0.9) for n in range(3)]
    scripted = brain(plans((A.key, "tiles"), (A.key, "split")))
    shop = Workshop([A], fine)
    council = Council([scripted])
    strategy.run(council, shop, Strategy(rounds=1, plans=1), before)
    assert [p.direction for p in shop.proposed] == ["split"]
    assert council.yields.of("builtin").candidates == 3


def _plan() -> Plan:
    launches = [{**one, "constexprs": {"BLOCK": 64}} for one in PLAN["launches"]]
    return Plan.from_json({**PLAN, "launches": launches})


def test_a_search_begins_with_what_is_known_and_gives_what_it_learnt() -> None:
    known = Experience("Tiles pay for wide rows.", "tiles", 1.5, True, "memory-bound", SOURCE)
    said = {"planner": {"directions": [{"spot": spot().key, "name": "tiles", "idea": "i"}]},
            "executor": candidate_text(), "summarizer": {"action": "append", "lesson": "new"}}
    brain = Scripted(lambda q: said.get(q.role, {}))
    shop = Workshop([spot()], lambda p: (GateAnswer("correctness", True), 2.0))
    outcome = strategy.run(Council([brain]), shop, Strategy(rounds=1, plans=1), known=[known])
    assert [q.experiences for q in brain.asked if q.role == "planner"] == [(known,)]
    ((key, learnt),) = outcome.learnt
    assert key == spot().key and (learnt.lesson, learnt.factor) == ("new", 2.0)
