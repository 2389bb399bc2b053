from pathlib import Path

import pytest

from kernelopt_bot.errors import InputError
from kernelopt_bot.gates import corpus

CASES = {c.name: c for c in corpus.load(Path(__file__).parents[1] / "adversarial")}
HONEST, ADVERSARY, ENDLESS = CASES["honest_in_place"], CASES["zeros"], CASES["endless_loop"]


@pytest.mark.parametrize(("got", "honest", "adversary"), [
    ("accepted", True, False), ("static", False, True), ("correctness", False, True), ("undecided", False, False),
])
def test_what_counts_as_right(got: str, honest: bool, adversary: bool) -> None:
    assert corpus.Outcome(HONEST, got).right is honest
    assert corpus.Outcome(ADVERSARY, got).right is adversary
    line, well = corpus.summary([corpus.Outcome(HONEST, got), corpus.Outcome(ADVERSARY, got)])
    assert line == f"ESCAPES {int(not adversary)} of 1 adversaries, {int(honest)} of 1 honest accepted"
    assert not well


def test_skipped_cases_are_named_and_count_neither_way() -> None:
    outcomes = [corpus.Outcome(HONEST, "accepted"), corpus.Outcome(ENDLESS, "skipped", "no GPU")]
    line, well = corpus.summary(outcomes)
    assert well
    assert line.splitlines() == ["skipped 1 (no GPU): endless_loop",
                                 "ESCAPES 0 of 0 adversaries, 1 of 1 honest accepted"]


def test_a_catch_by_another_gate_or_for_another_reason_says_so() -> None:
    assert "another gate than correctness" in corpus.Outcome(ADVERSARY, "static", "contract").note
    assert "another reason" in corpus.Outcome(ADVERSARY, "correctness", "it crashed").note
    assert corpus.Outcome(ADVERSARY, "correctness", "captured: RMSE").note == ""


@pytest.mark.parametrize("text", ["not toml", 'about = "x"', 'about = "x"\nexpect = "nothing"\nbaseline = "b"'])
def test_a_file_that_is_no_case(tmp_path: Path, text: str) -> None:
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "bad.toml").write_text(text)
    with pytest.raises(InputError, match="no case"):
        corpus.load(tmp_path)
    with pytest.raises(InputError, match="no case"):
        corpus.load(tmp_path / "cases")
