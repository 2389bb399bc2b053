"""Figures over all problems: nothing is dropped, nothing is flattered."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelopt_bot.bench.headroom import captured, load
from kernelopt_bot.bench.record import Gain, LeverResult
from kernelopt_bot.bench.summary import geomean, summarise
from kernelopt_bot.errors import InputError
from tests.bench.conftest import BEGUN, measured

KEYS = [(1, 1), (1, 3), (1, 5), (1, 7)]


def test_every_problem_counts() -> None:
    records = [measured(1, 2.0), measured(3, None), replace(BEGUN, number=5, status="out_of_memory")]
    found = summarise(KEYS, records)["levels"]["1"]
    assert found["geomean"]["+launch"] == pytest.approx(2.0 ** 0.25)
    assert (found["problems"], found["coverage"], found["improved"], found["worse"]) == (4, 0.5, 1, 0)
    assert found["statuses"] == {"measured": 2, "out_of_memory": 1, "not run": 1}
    assert found["captured"] is None and found["search_s"] == 20.0


def test_losses_count_and_an_interval_over_one_is_no_improvement() -> None:
    found = summarise(KEYS[:2], [measured(1, 0.5), measured(3, 1.01)])["levels"]["1"]
    assert found["geomean"]["best_baseline"] == pytest.approx(math.sqrt(0.5 * 1.01))
    assert (found["improved"], found["worse"]) == (0, 1)


def test_levels_are_apart() -> None:
    found = summarise([(1, 1), (3, 1)], [measured(1, 2.0), measured(1, 3.0, level=3)])["levels"]
    assert [found[n]["geomean"]["+region"] for n in ("1", "3")] == pytest.approx([2.0, 3.0])


def test_the_kernel_lever_by_itself() -> None:
    lever = LeverResult(1, Gain(2.0, 1.9, 2.1), "")
    records = [measured(1, 3.0, levers={"kernel": lever}), measured(3, None)]
    found = summarise(KEYS[:2], records, {(1, 1): 4.0, (1, 3): 1.0})["levels"]["1"]
    assert found["captured_kernel"] == pytest.approx(0.5)
    assert found["captured"] == pytest.approx(math.log(3) / math.log(4))


def test_captured_counts_each_gain_up_to_its_own_ceiling() -> None:
    ceilings = {(1, 1): 4.0, (1, 3): 2.0}
    assert captured({(1, 1): 1.0, (1, 3): 50.0}, ceilings) == pytest.approx(1 / 3)
    assert captured({(1, 1): 0.5, (1, 3): 2.0}, ceilings) == pytest.approx(0.0)
    assert captured({(1, 1): 4.0, (1, 3): 2.0, (1, 5): 9.0}, ceilings) == pytest.approx(1.0)
    assert captured({(1, 1): 2.0}, {(1, 1): 1.0}) is None and captured({}, ceilings) is None


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=30))
def test_a_geometric_mean_lies_between_its_values(gains: list[float]) -> None:
    assert min(gains) * (1 - 1e-9) <= geomean(gains) <= max(gains) * (1 + 1e-9)
    assert geomean([1 / g for g in gains]) == pytest.approx(1 / geomean(gains))


def test_no_gains_have_no_mean() -> None:
    with pytest.raises(ValueError, match="no gains"):
        geomean([])


def test_a_table_of_headroom(tmp_path: Path) -> None:
    path = tmp_path / "headroom.tsv"
    path.write_text("level\tproblem\teager_ms\tkernel_ceiling_x\n1\t19_Something\t2.0\t1.6\n3\t5\t2.0\t0.9\n")
    assert load(path) == {(1, 19): 1.6, (3, 5): 1.0}
    for broken in ("level\tproblem\n1\t19\n", "level\tproblem\tkernel_ceiling_x\n1\tx\t1.5\n",
                   "level\tproblem\tkernel_ceiling_x\n1\t19\tnan\n"):
        path.write_text(broken)
        with pytest.raises(InputError) as caught:
            load(path)
        assert caught.value.where == f"{path}:2"
    with pytest.raises(InputError, match="cannot be read"):
        load(tmp_path / "none.tsv")
