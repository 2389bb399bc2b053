"""The agents' search on a GPU, with a worker that answers by what is written in a candidate's text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from kernelopt_bot.agents.brain import Exchange, Question
from kernelopt_bot.agents.party import Party
from kernelopt_bot.agents.strategy_settings import Strategy
from kernelopt_bot.config import Config
from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.sandbox.jail import Jail
from kernelopt_bot.search import agents_lever
from kernelopt_bot.search.deadline import NEVER
from kernelopt_bot.search.kernel_lever import Kept, KernelSearch
from kernelopt_bot.search.progress import Silent
from kernelopt_bot.search.proposing import Compiler
from kernelopt_bot.search.run import Device
from kernelopt_bot.search.sites import Place
from kernelopt_bot.search.spots import of_place
from kernelopt_bot.search.trials import Trials
from kernelopt_bot.targets.target import Target
from tests.agents.facts import Scripted
from tests.playbook.sites import calls, site

FACTS = {"registers": 30, "spills": 0, "shared": 0, "cubin_bytes": 1000, "instructions": {}}
BODY = """import triton
import triton.language as tl


@triton.jit
def f(in_ptr0, in_ptr1, out_ptr1, COLUMNS: tl.constexpr):
    takes = TIME
    wrong = WRONG
    x = tl.load(in_ptr0 + tl.arange(0, COLUMNS))
    tl.store(out_ptr1 + tl.arange(0, COLUMNS), x * tl.load(in_ptr1 + tl.arange(0, COLUMNS)))
"""


class FakeWorker:
    """`takes` of a candidate's text is its time in microseconds (the baseline takes 10, others 12), 0: it crashes;
    `wrong` 1 fails gate 2."""

    alive = True

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.called: list[str] = []

    def restart(self) -> None:
        raise AssertionError("it never dies")

    def call(self, method: str, params: dict[str, Any], **more: Any) -> dict[str, Any]:
        self.called.append(method)
        if method == "compile_each":
            config = {"constexprs": {"R0_BLOCK": 1024, "XBLOCK": 1}, "num_warps": 8, "num_stages": 1, "facts": FACTS}
            return {"answers": [{"result": {"configs": [config]} if params["method"] == "compile_baseline" else {
                "launches": [FACTS] * len(p["plan"]["launches"])}} for p in params["params"]]}
        if method == "tune_step":
            return {"baseline_us": [10.0], "restart": False, "candidates": [
                {"us": [t]} if (t := self.number(c, "takes")) else {"error": "illegal memory access", "kind": "crash"}
                for c in params["candidates"]]}
        assert method == "check_step"
        right = not self.number(params["candidate"], "wrong")
        output = {"name": "out_ptr1", "passed": right, "reason": "" if right else "RMSE 0.5 is over 1e-07"}
        families = [{"family": f, "seed": 1, "outputs": [output], "passed": right, "reason": ""} for f in (
            params["families"])]
        return {"families": families, "inputs_untouched": True, "guards_intact": True, "covered": True}

    @staticmethod
    def number(candidate: dict[str, Any], name: str) -> float:
        line = next((x for x in candidate["source"].splitlines() if f"{name} =" in x), "")
        return float(line.partition("=")[2]) if line else 12.0 if name == "takes" else 0.0


def answer(time: float, wrong: int = 0) -> str:
    plan = {"parameters": [], "launches": [{"function": "f", "grid": ["2"], "arguments": [
        "in_ptr0", "in_ptr1", "out_ptr1"], "constexprs": {"COLUMNS": 4096}, "num_warps": 8, "num_stages": 1}]}
    return json.dumps({"source": BODY.replace("TIME", str(time)).replace("WRONG", str(wrong)), "plan": plan})


def search(tmp_path: Path, brain: Scripted, **numbers: Any) -> tuple[list[Kept], Trials, FakeWorker, list[Exchange]]:
    made = site(calls("rmsnorm_2x4096")[0])
    recorded = {"arguments": [{"tensor": {"shape": [1]}, "stats": None, "saved": None} if a.tensor else {"value": 1}
                              for a in made.step.arguments]}
    kept: list[Exchange] = []
    party = Party((brain,), kept.append, Strategy(**{"rounds": 1, "plans": 1, "retries": 2, **numbers}))
    session = Device(
        Config(), tmp_path, tmp_path / "run", tmp_path / "run" / "scratch", cast(Jail, None), "python", "cuda:0",
        "cuda", Silent(), None, NEVER, 60.0, lambda folder: party).begin(Target("net", "net.py", "Model", "get_inputs"))
    trials = Trials(session.archive, session.budget)
    worker = FakeWorker(tmp_path)
    work = KernelSearch(session, cast(Worker, worker), trials, tmp_path)
    found = agents_lever.search(work, party, Compiler(cast(Worker, worker), 90), [of_place(Place(made, recorded, 2))])
    return found, trials, worker, kept


def planned(*texts: str) -> Scripted:
    """A brain with one plan a round, whose executor gives the texts one after the other."""
    left = list(texts)

    def say(q: Question) -> Any:
        if q.role == "planner":
            return {"directions": [{"spot": q.spots[0].key, "name": "one row a program", "idea": "no mask"}]}
        return left.pop(0) if q.role in ("executor", "fuser") and left else {}

    return Scripted(say)


def executors(brain: Scripted) -> list[Question]:
    return [q for q in brain.asked if q.role == "executor" and q.repair is None]


def test_a_faster_candidate_that_is_right_is_kept_with_what_it_saves(tmp_path: Path) -> None:
    brain = planned(answer(5.0))
    (kept,), trials, _, _ = search(tmp_path, brain)
    assert kept.saved_us == pytest.approx(2 * (10.0 - 5.0)) and kept.trial.step_speedup == 2.0
    assert [v.gate for v in kept.trial.verdicts] == ["static", "correctness"]
    assert kept.trial.candidate.author == "scripted" and kept.trial.candidate.technique == "one row a program"
    assert kept.trial in trials.all()


def test_a_wrong_answer_and_a_crash_go_back_with_their_evidence(tmp_path: Path) -> None:
    brain = planned(answer(5.0, wrong=1), answer(0), answer(4.0))
    (kept,), _, _, _ = search(tmp_path, brain)
    assert kept.trial.after_us == 4.0
    failures = [next(g for g in q.history[-1].gates if not g.passed) for q in executors(brain)[1:]]
    assert [f.gate for f in failures] == ["correctness", "run"]
    assert "RMSE 0.5" in failures[0].reason and "illegal memory access" in failures[1].reason


def test_a_slow_candidate_is_checked_only_where_another_may_start_from_it(tmp_path: Path) -> None:
    brain = planned(answer(11.0))
    found, trials, worker, _ = search(tmp_path, brain)
    (trial,) = [t for t in trials.all() if t.candidate.author == "scripted"]
    assert found == [] and trial.stopped_by is None and "not faster" in trial.note
    assert worker.called.count("check_step") == 1 and len(executors(brain)) == 1


def test_a_hopelessly_slow_candidate_is_not_checked(tmp_path: Path) -> None:
    _, _, worker, _ = search(tmp_path, planned(answer(20.0)))
    assert worker.called.count("tune_step") == 1 and worker.called.count("check_step") == 0


def test_of_several_the_one_that_saves_most_is_kept(tmp_path: Path) -> None:
    brain = planned(answer(5.0), answer(2.5))
    (kept,), trials, _, _ = search(tmp_path, brain, rounds=2, plans=2)
    assert kept.trial.after_us == 2.5
    second = next(t.candidate for t in trials.all() if t.after_us == 2.5)
    assert second.parent is not None and executors(brain)[1].parent is not None


def test_the_built_in_brain_goes_on_with_further_ideas_of_the_playbook(tmp_path: Path) -> None:
    """The other brain has no plan and no candidate; what the playbook proposes is judged like any other."""
    brain = Scripted(lambda q: {})
    _, trials, _, kept = search(tmp_path, brain, plans=2, retries=0)
    authors = {e.brain for e in kept if e.role == "executor" and e.candidates}
    assert authors == {"builtin"} and {t.candidate.author for t in trials.all()} == {"builtin"}
    assert any(t.after_us == 12.0 for t in trials.all())


def test_what_the_brain_is_told_is_measured_and_scrubbed(tmp_path: Path) -> None:
    brain = planned(answer(5.0))
    search(tmp_path, brain)
    (asked,) = executors(brain)
    (spot,) = asked.spots
    assert asked.device.measured and asked.device.name == "NVIDIA H200"
    assert [(s.name, s.type, s.written) for s in spot.slots][:3] == [
        ("in_ptr0", "*fp32", False), ("in_ptr1", "*fp32", False), ("out_ptr1", "*fp32", True)]
    assert spot.steps[0].source.startswith("@triton.jit\ndef k0(in_ptr0") and spot.steps[0].bytes > 0
    assert spot.playbook and "fused" not in spot.steps[0].source
