"""Problems one after the other in real processes: of files that are declined at once, so that little time is needed."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kernelopt_bot.bench import child, machine, runner, store
from kernelopt_bot.bench.child import Settings, Stopped
from kernelopt_bot.bench.problems import Problem, find, selection
from kernelopt_bot.bench.record import Record
from kernelopt_bot.errors import Unavailable
from tests.bench.conftest import ENVIRONMENT, measured

SETTINGS = Settings(("dispatch",), {1: 20.0, 3: 90.0}, "process", 60.0)


@pytest.fixture
def problems(clone: Path) -> tuple[Problem, ...]:
    return find(clone, (1,), selection("odd"))


def test_a_record_a_problem_and_none_is_run_again(tmp_path: Path, problems: tuple[Problem, ...]) -> None:
    seen: list[Record] = []
    store.add(tmp_path, measured(5, 2.0))
    left = runner.run(problems, tmp_path, SETTINGS, ["cpu"], ENVIRONMENT, done=seen.append)
    assert left == () and [r.number for r in seen] == [1, 3]
    assert all(r.status == "unsupported" and "has no class Model" in r.error for r in seen)
    assert seen[0].environment == ENVIRONMENT and seen[0].settings["search_s"] == 20.0 and seen[0].total_s
    assert [r.number for r in store.records(tmp_path)] == [1, 3, 5] and not list((tmp_path / "work").iterdir())
    assert runner.run(problems, tmp_path, SETTINGS, ["cpu"], ENVIRONMENT, done=seen.append) == () and len(seen) == 2


def test_what_is_to_be_retried_is(tmp_path: Path, problems: tuple[Problem, ...]) -> None:
    store.add(tmp_path, replace(measured(1, None), status="timeout"))
    store.add(tmp_path, measured(3, None))
    seen: list[Record] = []
    runner.run(problems[:2], tmp_path, SETTINGS, ["cpu"], ENVIRONMENT, retry=["timeout"], done=seen.append)
    assert [(r.number, r.status) for r in seen] == [(1, "unsupported")]


def test_two_devices_share_the_problems(tmp_path: Path, problems: tuple[Problem, ...]) -> None:
    assert runner.run(problems, tmp_path, SETTINGS, ["cpu", "cpu"], ENVIRONMENT) == ()
    assert [r.number for r in store.records(tmp_path)] == [1, 3, 5]


class Told(runner._Work):
    """Problems whose records are known beforehand."""

    def one(self, problem: Problem, device: str, prefix: Sequence[str], together: int, stop: threading.Event) -> Record:
        crowded = problem.number == 3 and together > 1
        return replace(measured(problem.number, None), status="out_of_memory" if crowded else "measured",
                       settings={"together": together})


def work(kind: type[runner._Work], folder: Path) -> runner._Work:
    return kind(folder, SETTINGS, ["cpu"], ENVIRONMENT, math.inf, False, lambda record: None, set(),
                runner.Expected(SETTINGS.search_s, []))


def test_what_has_too_little_memory_beside_others_is_tried_alone(
        tmp_path: Path, problems: tuple[Problem, ...]) -> None:
    told = work(Told, tmp_path)
    crowded = told.run(problems, 2)
    assert [p.number for p in crowded] == [3] and [r.number for r in store.records(tmp_path)] == [1, 5]
    assert told.run(crowded, 1) == []
    assert [r.settings["together"] for r in store.records(tmp_path)] == [2, 1, 2]


def test_what_a_problem_is_started_with_names_the_turns(tmp_path: Path) -> None:
    code = "import os; print(os.environ.get('KERNELOPT_GPU_TURNS'), os.environ['CI'])"
    for turns in (tmp_path, None):
        found = child._wait([sys.executable, "-c", code], tmp_path, time.monotonic() + 30, threading.Event(), turns)
        assert found == (0, f"{turns} true\n")


def test_some_at_a_time_share_the_problems(tmp_path: Path, problems: tuple[Problem, ...]) -> None:
    real = work(runner._Work, tmp_path)
    real.turns = {"cpu": tmp_path / "turns"}
    assert real.run(problems, 2) == []
    found = store.records(tmp_path)
    assert [(r.number, r.status, r.settings["together"], r.settings["timeout_s"]) for r in found] == [
        (n, "unsupported", 2, 120.0) for n in (1, 3, 5)]


def test_a_problem_that_does_not_end_is_a_timeout(tmp_path: Path, problems: tuple[Problem, ...]) -> None:
    short = replace(SETTINGS, timeout_s=0.2)
    record = child.run(problems[0], tmp_path / "work", short, "cpu", ENVIRONMENT, ends=time.monotonic() + 60,
                       stop=threading.Event())
    assert record.status == "timeout" and record.error == "not done after 0.2 s"


def test_at_the_deadline_what_runs_is_ended_and_not_recorded(tmp_path: Path, problems: tuple[Problem, ...]) -> None:
    store.add(tmp_path, replace(measured(99, None), total_s=1000.0))
    left = runner.run(problems, tmp_path, SETTINGS, ["cpu"], ENVIRONMENT, deadline_s=0.2)
    assert left == problems and [r.number for r in store.records(tmp_path)] == [99]


def test_no_problem_but_the_first_is_begun_that_would_not_end_in_time(
        tmp_path: Path, problems: tuple[Problem, ...]) -> None:
    store.add(tmp_path, replace(measured(99, None), total_s=1000.0))
    left = runner.run(problems, tmp_path, SETTINGS, ["cpu"], ENVIRONMENT, deadline_s=100.0)
    done = [r for r in store.records(tmp_path) if r.number != 99]
    # The first teaches that two seconds are enough, but of two records the larger is what four fifths need.
    assert [r.number for r in done] == [1] and [p.number for p in left] == [3, 5]


def test_ended_at_once_when_told(tmp_path: Path, problems: tuple[Problem, ...]) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        child.run(problems[0], tmp_path / "work", SETTINGS, "cpu", ENVIRONMENT, ends=time.monotonic() + 60, stop=stop)


def test_a_machine_in_the_way_ends_the_benchmark_and_blames_no_problem(
        tmp_path: Path, problems: tuple[Problem, ...]) -> None:
    text = problems[0].path.read_text()
    problems[0].path.write_text(f"from torch import nn\n\n\nclass Model(nn.Module):\n    pass\n\n\n{text}")
    with pytest.raises(Unavailable, match=r"level1-001 could not be tried: .*cuda:99"):
        runner.run(problems, tmp_path, SETTINGS, ["cuda:99"], ENVIRONMENT)
    assert store.records(tmp_path) == ()


def test_the_expected_time_is_what_four_fifths_of_a_level_need() -> None:
    expected = runner.Expected({1: 20.0, 3: 90.0}, [])
    assert expected.seconds(1) == 80.0 and expected.seconds(3) == 150.0
    for seconds in (50.0, 10.0, 30.0, 20.0, 40.0):
        expected.learn(replace(measured(1, None), total_s=seconds))
    assert expected.seconds(1) == 40.0 and expected.seconds(3) == 150.0


def test_the_environment_is_known_before_any_problem() -> None:
    found = machine.environment("cpu")
    assert found["gpu"].startswith("CPU ") and found["torch"] and found["release"]
    with pytest.raises(Unavailable):
        machine.environment("cuda:99")


def test_searches_side_by_side_have_cores_of_their_own() -> None:
    assert machine.cores(0, 1) == ()
    first, second = (machine.cores(part, 2) for part in (0, 1))
    if first:
        assert first[:2] == ("taskset", "-c") and not set(first[2].split(",")) & set(second[2].split(","))
