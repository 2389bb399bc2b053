"""Records on disk, and one result of many."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kernelopt_bot.bench import store
from kernelopt_bot.bench.record import Record
from kernelopt_bot.errors import InputError
from tests.bench.conftest import ENVIRONMENT, measured


def folder(place: Path, *records: Record, problems: tuple[tuple[int, int], ...] = ((1, 1), (1, 3))) -> Path:
    store.begin(place, problems, "odd", "abc")
    for record in records:
        store.add(place, record)
    return place


def test_calls_on_several_machines_become_one_result(tmp_path: Path) -> None:
    one = folder(tmp_path / "a", measured(1, 2.0))
    two = folder(tmp_path / "b", measured(3, None), problems=((1, 3), (1, 5)))
    result = store.merge([one, two])
    assert result.problems == ((1, 1), (1, 3), (1, 5)) and [r.number for r in result.records] == [1, 3]
    assert (result.select, result.problem_set) == ("odd", "abc")
    assert result.summary["levels"]["1"]["statuses"] == {"measured": 2, "not run": 1}
    path = store.write(tmp_path / "result.json", result)
    assert store.load(path) == result and store.merge([path, two]) == result


def test_the_latest_record_of_a_problem_counts_whatever_the_order(tmp_path: Path) -> None:
    early = folder(tmp_path / "a", measured(1, 2.0))
    late = folder(tmp_path / "b", replace(measured(1, 0.9), date="2026-02-01T00:00:00+00:00"))
    for places in ([early, late], [late, early]):
        assert store.merge(places).records[0].gain("+launch") == 0.9


def test_asking_for_more_adds_to_what_was_asked_for(tmp_path: Path) -> None:
    place = folder(tmp_path, problems=((1, 1),))
    store.begin(place, [(2, 7)], "7", "abc")
    assert store.merge([place]).problems == ((1, 1), (2, 7)) and store.merge([place]).select == "7; odd"


@pytest.mark.parametrize(("changes", "what"), [
    ({"environment": {**ENVIRONMENT, "gpu": "NVIDIA A100"}}, "gpu is NVIDIA A100 and NVIDIA H200"),
    ({"environment": {**ENVIRONMENT, "torch": "2.13.0"}}, "torch is 2.11.0 and 2.13.0"),
    ({"environment": {**ENVIRONMENT, "release": "0.2.0"}}, "release"),
    ({"settings": {"levers": ["kernel"], "search_s": 20.0}}, "levers"),
    ({"settings": {"levers": ["kernel", "dispatch", "launch"], "search_s": 90.0}}, "search time in level 1"),
])
def test_what_does_not_belong_together_is_refused(tmp_path: Path, changes: dict[str, object], what: str) -> None:
    one = folder(tmp_path / "a", measured(1, 2.0))
    two = folder(tmp_path / "b", replace(measured(3, 2.0), **changes))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=what):
        store.merge([one, two])
    assert len(store.merge([one, two], mixed=True).records) == 2


def test_drivers_and_commits_may_differ(tmp_path: Path) -> None:
    one = folder(tmp_path / "a", measured(1, 2.0))
    other = {**ENVIRONMENT, "commit": "beef", "driver": "600.0"}
    two = folder(tmp_path / "b", replace(measured(3, 2.0), environment=other))
    assert store.merge([one, two]).environment["commit"] == ["beef", "c0ffee"]


def test_a_damaged_record_is_said_and_a_stray_folder_is_no_benchmark(tmp_path: Path) -> None:
    place = folder(tmp_path / "a", measured(1, 2.0))
    (place / "records" / "level1-001.json").write_text('{"level": 1}')
    with pytest.raises(InputError, match="no record"):
        store.merge([place])
    with pytest.raises(InputError, match="cannot be read"):
        store.merge([tmp_path])
    (tmp_path / "other.json").write_text(json.dumps({"problems": [[1]]}))
    with pytest.raises(InputError, match="no benchmark's folder"):
        store.merge([tmp_path / "other.json"])
