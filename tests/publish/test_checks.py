from __future__ import annotations

from typing import Any

import pytest

from kernelopt_bot.errors import InputError, UserError
from kernelopt_bot.publish.checks import NAME, Annotation, CheckRun, notes_of
from kernelopt_bot.publish.github_errors import Denied
from kernelopt_bot.publish.seen import Seen, finished
from kernelopt_bot.report.summary import summarise
from tests.github_stand_in import Hub, Repo
from tests.publish import seen_runs
from tests.publish.seen_client import Killed, Mortal, writes

NOTES = tuple(Annotation(f"models/m{i}.py", i + 1, "notice", f"note {i}", "faster") for i in range(120))


@pytest.fixture
def head(repo: Repo) -> str:
    return repo.sha("faster-models")


def check(hub: Hub, external_id: str = "run-1", app: str = "", **more: Any) -> CheckRun:
    return CheckRun(Mortal(hub, **more), app or hub.app, external_id)


def only(repo: Repo) -> dict[str, Any]:
    assert len(repo.checks) == 1
    return next(iter(repo.checks.values()))


def test_one_check_from_queued_to_its_end(hub: Hub, repo: Repo, head: str) -> None:
    ids = {check(hub).show(Seen("queued", head))}
    assert (only(repo)["status"], only(repo)["name"]) == ("queued", NAME)
    ids.add(check(hub).show(Seen("running", head)))
    assert only(repo)["status"] == "in_progress"
    ids.add(check(hub).show(seen_runs.gained(head, run_url="https://github.com/acme/kernels/actions/runs/1")))
    assert len(ids) == 1
    assert (only(repo)["status"], only(repo)["conclusion"]) == ("completed", "success")
    assert only(repo)["output"]["title"] == "1 of 3 targets faster, 1 could not be handled"
    assert only(repo)["details_url"] == "https://github.com/acme/kernels/actions/runs/1"


@pytest.mark.parametrize(
    ("made", "conclusion"),
    [
        (seen_runs.gained, "success"),
        (seen_runs.nothing, "neutral"),
        (lambda head: Seen("nothing", head), "neutral"),
        (lambda head: Seen("refused", head, "a fork"), "neutral"),
        (seen_runs.failed, "failure"),
        (lambda head: finished(None, head_sha=head), "failure"),
        (lambda head: finished(None, head_sha=head, cancelled=True), "cancelled"),
    ],
    ids=["gained", "nothing", "no target", "refused", "error", "lost", "cancelled"],
)
def test_only_a_gain_is_green(hub: Hub, repo: Repo, head: str, made: Any, conclusion: str) -> None:
    check(hub).show(made(head))
    assert only(repo)["conclusion"] == conclusion


def test_annotations_come_in_batches_and_before_the_conclusion(hub: Hub, repo: Repo, head: str) -> None:
    i = check(hub).show(seen_runs.gained(head), NOTES)
    assert [a["title"] for a in repo.annotations[i]] == [n.title for n in NOTES]
    assert hub.log.count(("checks/update", 200)) == 3


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(6))
def test_killed_at_any_request_it_converges(hub: Hub, repo: Repo, head: str, at: int, after: bool) -> None:
    with pytest.raises(Killed):
        check(hub, at=at, after=after).show(seen_runs.gained(head), NOTES)
    # Look-up, creation, three batches; the conclusion is the last one's.
    assert [c["conclusion"] for c in repo.checks.values()].count("success") == (at + after > 4)
    i = check(hub).show(seen_runs.gained(head), NOTES)
    assert only(repo)["conclusion"] == "success"
    assert [a["title"] for a in repo.annotations[i]] == [n.title for n in NOTES]


def test_shown_twice_it_is_written_once(hub: Hub, repo: Repo, head: str) -> None:
    check(hub).show(seen_runs.gained(head), NOTES)
    before = writes(hub)
    check(hub).show(seen_runs.gained(head), NOTES)
    assert writes(hub) == before


def test_an_answer_that_got_lost_makes_no_second_check(hub: Hub, repo: Repo, head: str) -> None:
    hub.fail("checks/create", 502, after=True)
    check(hub, attempts=3).show(seen_runs.nothing(head))
    assert only(repo)["conclusion"] == "neutral"


def test_a_look_up_that_fails_makes_nothing(hub: Hub, repo: Repo, head: str) -> None:
    hub.fail("checks/list-for-ref", 502)
    with pytest.raises(UserError, match="looking for the check run"):
        check(hub).show(seen_runs.nothing(head))
    assert repo.checks == {}


def test_what_an_earlier_run_left_unfinished_is_concluded(hub: Hub, repo: Repo, head: str) -> None:
    stale = check(hub, "run-0").show(Seen("running", head))
    check(hub, "run-1").show(Seen("queued", head))
    assert repo.checks[stale]["status"] == "in_progress"
    check(hub, "run-1").show(seen_runs.nothing(head))
    assert (repo.checks[stale]["status"], repo.checks[stale]["conclusion"]) == ("completed", "cancelled")


def test_the_check_of_another_app_is_left_alone(hub: Hub, repo: Repo, head: str) -> None:
    hub.app = "other"
    other = check(hub).show(Seen("running", head))
    hub.app = "kernelopt"
    made = check(hub).show(seen_runs.nothing(head))
    assert made != other
    assert repo.checks[other]["status"] == "in_progress"


def test_a_late_phase_does_not_open_a_finished_check_again(hub: Hub, repo: Repo, head: str) -> None:
    check(hub).show(seen_runs.gained(head))
    check(hub).show(Seen("running", head))
    assert only(repo)["conclusion"] == "success"


def test_the_longest_check_is_taken(hub: Hub, repo: Repo, head: str) -> None:
    seen = seen_runs.many(400)
    seen = finished(seen.run, head_sha=head, reason="an endless log\n" * 20_000)
    i = check(hub).show(seen, notes_of(seen))
    assert only(repo)["conclusion"] == "success"
    assert len(repo.annotations[i]) == 200


def test_a_missing_permission_is_named(hub: Hub, repo: Repo, head: str) -> None:
    hub.fail("checks/create", 403, "Resource not accessible by integration")
    with pytest.raises(Denied, match="`checks: write`"):
        check(hub).show(seen_runs.nothing(head))


def test_annotations_stand_at_the_models_class() -> None:
    found = seen_runs.data()
    found["targets"][0]["line"] = 7
    del found["targets"][2]["line"]  # As an earlier release wrote it.
    notes = notes_of(finished(summarise(found), head_sha="b" * 40))
    assert [(n.path, n.line, n.level, n.title) for n in notes] == [
        ("models/block.py", 7, "notice", "Block can be faster"),
        ("models/block.py", 1, "warning", "Block could not be optimised"),
    ]
    assert notes[0].message == (
        "1.210x (95% interval 1.190x to 1.240x) against max-autotune. "
        "The files that do it are in kernelopt_kernels/transformer_block."
    )
    assert "ModuleNotFoundError: einops" in notes[1].message
    assert notes_of(Seen("queued", "b" * 40)) == ()


@pytest.mark.parametrize("line", [0, -3, 10**9, "7", True, None, float("nan")])
def test_a_line_that_is_none_is_refused(line: object) -> None:
    found = seen_runs.data()
    found["targets"][0]["line"] = line
    with pytest.raises(InputError):
        summarise(found)


def test_annotations_hold_no_control_characters() -> None:
    made = [n.to_json() for n in notes_of(seen_runs.evil())]
    assert made
    assert all("\x1b" not in n["message"] + n["title"] and "\u202e" not in n["message"] + n["title"] for n in made)
    assert all(len(n["title"]) <= 255 for n in made)
