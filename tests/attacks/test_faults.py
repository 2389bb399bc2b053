"""GitHub fails in the middle of a phase: it is waited for or said, and the next run converges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.search.result import RunResult
from tests.attacks.conftest import Clock
from tests.cli.conftest import Case
from tests.github_stand_in import TOKEN

PASSING: dict[str, dict[str, Any]] = {
    "403, primary limit": {"status": 403, "headers": (("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "{soon}"))},
    "403, secondary limit": {"status": 403, "message": "You have exceeded a secondary rate limit"},
    "429": {"status": 429, "headers": (("Retry-After", "9"),)},
    "500": {"status": 500},
    "502 after the work": {"status": 502, "after": True},
    "dropped": {"status": 502, "drop": True},
    "dropped after the work": {"status": 502, "drop": True, "after": True},
}
LASTING: dict[str, dict[str, Any]] = {
    "401": {"status": 401}, "403": {"status": 403, "message": "Resource not accessible by integration"},
    "404": {"status": 404}, "409": {"status": 409}, "422": {"status": 422},
}


def fail(case: Case, clock: Clock, operation: str, fault: dict[str, Any]) -> None:
    headers = tuple((k, v.format(soon=int(clock.now) + 20)) for k, v in fault.get("headers", ()))
    case.hub.fail(operation, **fault | {"headers": headers})


def ours(case: Case) -> list[int]:
    return [n for n in case.repo.pulls if n != case.number]


@pytest.mark.parametrize("name", PASSING)
def test_what_passes_is_waited_for(case: Case, made: tuple[RunResult, Path], clock: Clock, name: str) -> None:
    fail(case, clock, "checks/create", PASSING[name])
    assert case.run("authorise") == 0
    fail(case, clock, "pulls/create", PASSING[name])
    fail(case, clock, "issues/create-comment", PASSING[name])
    case.execute(*made)
    assert case.publish() == 0
    assert case.outputs["operation"] == "created" and len(ours(case)) == 1
    assert (case.check["status"], case.check["conclusion"]) == ("completed", "success")
    assert sum("<!-- kernelopt:comment -->" in c["body"] for c in case.repo.comments.values()) == 1
    assert sum(clock.slept) > 0


@pytest.mark.parametrize("name", LASTING)
def test_what_lasts_is_said_and_the_next_run_converges(case: Case, made: tuple[RunResult, Path], clock: Clock,
                                                       name: str, capsys: pytest.CaptureFixture[str]) -> None:
    fail(case, clock, "checks/create", LASTING[name])
    assert case.run("authorise") == 0, "a check that cannot be shown stops nothing"
    case.execute(*made)
    fail(case, clock, "pulls/create", LASTING[name])
    denied = LASTING[name]["status"] == 403
    assert case.publish() == (0 if denied else 1)
    assert case.outputs["operation"] == "reported" and not ours(case)
    assert case.check["conclusion"] == ("success" if denied else "failure")
    said = "".join(capsys.readouterr())
    assert name[:3] in said and "Traceback" not in said and TOKEN not in said.replace(f"::add-mask::{TOKEN}", "")
    assert case.publish() == 0
    assert case.outputs["operation"] == "created" and len(ours(case)) == 1
    assert case.check["conclusion"] == "success"


def test_a_token_that_is_refused_everywhere_is_one_error(case: Case, clock: Clock,
                                                         capsys: pytest.CaptureFixture[str]) -> None:
    case.hub.fail("*", 401, "Bad credentials", times=1000)
    assert case.run("authorise") == 1
    said = capsys.readouterr().err
    assert "401" in said and "GITHUB_TOKEN" in said and "Traceback" not in said


def test_a_limit_that_lasts_ends_the_phase(case: Case, clock: Clock) -> None:
    case.hub.fail("*", 429, headers=(("Retry-After", "3600"),), times=1000)
    assert case.run("authorise") == 1
    assert sum(clock.slept) == 0, "nobody pays for a runner that waits an hour"


def test_slow_answers_are_waited_for(case: Case, made: tuple[RunResult, Path]) -> None:
    case.hub.fail("*", 0, delay_s=0.05, times=1000)
    assert case.run("authorise") == 0
    case.execute(*made)
    assert case.publish() == 0 and len(ours(case)) == 1


@pytest.mark.parametrize("times", [1, 2])
def test_a_check_that_is_not_taken_as_it_is_ends_all_the_same(case: Case, made: tuple[RunResult, Path], clock: Clock,
                                                              times: int) -> None:
    case.run("authorise")
    case.execute(*made)
    case.hub.fail("checks/update", 422, "path is invalid", times=times)
    assert case.publish() == 0
    assert (case.check["status"], case.check["conclusion"]) == ("completed", "success" if times == 1 else "failure")
    assert not any(case.repo.annotations.values())


def test_a_policy_that_cannot_be_read_any_more_ends_the_check(case: Case, made: tuple[RunResult, Path], clock: Clock,
                                                              ) -> None:
    case.run("authorise")
    case.execute(*made)
    case.hub.fail("git/get-tree", 404)
    assert case.publish() == 1
    assert (case.check["status"], case.check["conclusion"]) == ("completed", "failure")
    assert ours(case) == []


def test_an_answer_of_another_shape_ends_the_check_and_is_told(case: Case, made: tuple[RunResult, Path], clock: Clock,
                                                               capsys: pytest.CaptureFixture[str]) -> None:
    case.run("authorise")
    case.execute(*made)
    case.hub.fail("git/get-tree", 200)
    assert case.publish() == 3
    assert (case.check["status"], case.check["conclusion"]) == ("completed", "failure")
    assert "KeyError" in case.check["output"]["summary"] and "Traceback" in capsys.readouterr().err


def test_a_job_that_was_lost_on_its_way_ends_the_check(case: Case) -> None:
    case.run("authorise")
    head = case.outputs["head-sha"]
    case.job.unlink()
    assert case.run("publish", "--execute-result", "skipped", "--head-sha", head) == 2
    assert (case.check["status"], case.check["conclusion"]) == ("completed", "failure")
    assert "lost" in case.check["output"]["summary"] and len(case.repo.pulls) == 1
    assert case.run("publish", "--head-sha", "HEAD; x") == 2, "what is no commit is not looked for"
