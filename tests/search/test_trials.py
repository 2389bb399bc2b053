from __future__ import annotations

from pathlib import Path

from kernelopt_bot.contract.candidate import OptionsCandidate
from kernelopt_bot.gates.verdict import Status, Verdict
from kernelopt_bot.search.archive import Archive
from kernelopt_bot.search.budget import Budget
from kernelopt_bot.search.trials import Trials

FIRST = OptionsCandidate("first", "dispatch", {"max_fusion_size": 8}, "max_fusion_size=8")
SECOND = OptionsCandidate("second", "launch", {"cpp_wrapper": True}, "cpp_wrapper")
PASSED, FAILED = Verdict("static", Status.PASS), Verdict("correctness", Status.FAIL, "off by 1")


def made(folder: Path, candidates: int = 5) -> tuple[Trials, Budget]:
    budget = Budget(100, 100, candidates)
    return Trials(Archive(folder), budget), budget


def test_a_candidate_is_charged_once_however_often_it_is_judged(tmp_path: Path) -> None:
    trials, budget = made(tmp_path)
    trial = trials.judged(FIRST, PASSED)
    trials.update(trial, FAILED)
    trials.judged(SECOND, PASSED)
    assert budget.left().candidates == 3


def test_an_update_adds_verdicts_and_keeps_the_place(tmp_path: Path) -> None:
    trials, _ = made(tmp_path)
    trial = trials.judged(FIRST, PASSED, note="looked fast")
    trials.judged(SECOND, PASSED)
    later = trials.update(trial, FAILED, step_speedup=1.5)
    assert later.verdicts == (PASSED, FAILED) and later.step_speedup == 1.5 and later.note == "looked fast"
    assert later.stopped_by == FAILED
    assert [t.candidate.id for t in trials.all()] == ["first", "second"] and trials.all()[0] == later


def test_every_record_is_on_disk_at_once(tmp_path: Path) -> None:
    trials, _ = made(tmp_path)
    trial = trials.judged(FIRST, PASSED)
    assert Archive(tmp_path).load() == (trial,)
    trials.update(trial, FAILED, adopted=False)
    assert Archive(tmp_path).load() == trials.all()
