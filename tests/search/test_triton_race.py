"""Which configurations a race's times pick: the mix decides, and what was not timed everywhere never wins."""

from __future__ import annotations

import pytest

from kernelopt_bot.search.triton_race import Times

TIMES = Times(counts=(10, 1), before=(100.0, 1000.0), others=((90.0, 1500.0), (120.0, 500.0), (50.0, None),
                                                              (99.5, 999.0)))


def test_the_mix_is_weighed_by_how_often() -> None:
    assert TIMES.total(None) == 2000.0 and TIMES.total(0) == 2400.0 and TIMES.total(1) == 1700.0
    assert TIMES.total(2) is None


def test_one_configuration_for_all_launches_is_the_best_of_the_mix() -> None:
    assert TIMES.picked(single=True, without=set()) == [1, 1]
    assert TIMES.picked(single=True, without={1}) == [None, None]


def test_an_autotuner_gets_the_best_of_each_launch() -> None:
    assert TIMES.picked(single=False, without=set()) == [0, 1]
    assert TIMES.picked(single=False, without={0}) == [None, 1]
    assert TIMES.picked(single=False, without={0, 1}) == [None, None]


def test_a_trials_facts() -> None:
    facts = TIMES.facts(1)
    assert facts["step_speedup"] == pytest.approx(2000 / 1700) and facts["before_us"] == 2000.0
    assert facts["note"] == "" and TIMES.facts(0)["note"] == "not faster in the race of launches: 0.833x"
    assert "step_speedup" not in TIMES.facts(2) and "not timed" in TIMES.facts(2)["note"]
