"""What a report of the product becomes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kernelopt_bot.bench.record import BEST, SETS, from_json, shortened, status_of
from kernelopt_bot.gates.verdict import Status, Verdict
from kernelopt_bot.search.result import LeverGain
from tests.bench.conftest import adopted, recorded
from tests.report.results import comparison, failed_result, full_result


def test_sets_of_levers_and_the_best_baseline() -> None:
    record = recorded(adopted())
    assert record.status == "measured" and (record.metric, record.cache) == ("latency", "cold")
    assert {name: round(g.speedup, 3) for name, g in record.gains.items()} == {
        "kernel+dispatch": 1.1, "+launch": 1.33, "+region": 1.33, BEST: 1.21}
    assert record.times_us["default"] == pytest.approx(1330 * 1.2) and record.times_us["candidate"] == 1200
    assert set(record.times_us) == {"eager", "default", "reduce-overhead", "max-autotune", "candidate"}
    assert record.levers["launch"].gain is not None and record.levers["dispatch"].reason == "no candidate passed"
    assert [p["technique"] for p in record.pieces] == ["persistent reduction", "CUDA graphs"]
    assert (record.search_s, record.total_s, record.candidates) == (19.5, 74.0, 37) and record.note == ""
    assert record.gates == {"model": "pass", "performance": "pass"}


def test_without_launch_and_region_all_sets_are_the_whole() -> None:
    levers = (LeverGain("kernel", 1, comparison("default", 1.33)), LeverGain("launch", 0, None, "no gap"))
    record = recorded(adopted(levers=levers, sets={}))
    assert {record.gain(name) for name in SETS} == {1.33}


def test_launch_alone_gives_kernel_and_dispatch_nothing() -> None:
    record = recorded(adopted(levers=(LeverGain("launch", 1, comparison("default", 1.33)),), sets={}))
    assert "kernel+dispatch" not in record.gains and record.gain("kernel+dispatch") == 1.0
    assert record.gain("+launch") == 1.33 and record.note == ""


def test_a_set_that_could_not_be_built_counts_with_what_dispatch_gave() -> None:
    levers = (LeverGain("dispatch", 1, comparison("default", 1.05)), LeverGain("launch", 1, comparison("default", 1.2)),
              LeverGain("kernel", 1, comparison("default", 1.05)))
    record = recorded(adopted(levers=levers, sets={}))
    assert record.gain("kernel+dispatch") == 1.05 and "could not be built" in record.note
    record = recorded(adopted(levers=(levers[1], levers[0], levers[2]), sets={}))
    assert record.gain("kernel+dispatch") == 1.0 and "could not be built" in record.note


def test_where_nothing_was_adopted_every_baseline_is_kept_and_nothing_is_gained() -> None:
    result = replace(adopted(), levers=tuple(replace(g, adopted=0, comparison=None) for g in full_result().levers),
                     trials=(), stitched=(), headline=None, sets={})
    record = recorded(result)
    assert record.gains == {} and "candidate" not in record.times_us and record.times_us["eager"] > 0
    assert record.against["eager"].speedup == 2.4


def test_a_loss_at_the_confirmation_counts_as_that_loss() -> None:
    result = replace(
        adopted(against=(comparison("default", 0.9), comparison("eager", 0.8))), headline=None, sets={}, trials=(),
        levers=tuple(replace(g, adopted=0, comparison=None) for g in full_result().levers),
        stitched=(Verdict("performance", Status.FAIL, "slower"),))
    record = recorded(result)
    assert {record.gain(name) for name in SETS} == {0.9} and record.gain(BEST) == 0.8
    assert "taken back" in record.note


@pytest.mark.parametrize(("kind", "status"), [
    ("out_of_memory", "out_of_memory"), ("timeout", "timeout"), ("no_graphs", "unsupported"),
    ("non_deterministic", "unsupported"), ("crashed", "error"), ("lied", "error"), ("", "error")])
def test_status(kind: str, status: str) -> None:
    assert status_of("something", kind) == status and status_of("", "") == "measured"


def test_a_failed_target() -> None:
    record = recorded(replace(failed_result(), error_kind="target_import"))
    assert record.status == "unsupported" and record.gains == {} and "einops" in record.error
    assert (record.metric, record.cache) == ("", "")


def test_an_error_loses_the_traceback_but_not_what_to_do() -> None:
    text = "it failed\n  where: net.py\n    File secret\n    x = 1\n  what to do: mend it"
    assert shortened(text) == "it failed where: net.py what to do: mend it"


def test_json_and_back() -> None:
    record = recorded(adopted())
    data = json.loads(json.dumps(record.to_json(), allow_nan=False))
    again = from_json(data)
    assert again.to_json() == record.to_json() and again.gains == record.gains and again.levers == record.levers
    for broken in ({**data, "more": 1}, {k: v for k, v in data.items() if k != "gains"}, {**data, "status": "fine"},
                   {**data, "gains": {"+launch": {"speedup": 1.0}}}, {**data, "levers": {"kernel": {}}}):
        with pytest.raises(ValueError, match="not a record"):
            from_json(broken)
