"""What others do between the phases, or at the same time: nothing is lost, overwritten or published twice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelopt_bot.cli.phases import read_order
from kernelopt_bot.publish import bundle
from kernelopt_bot.publish.content import publication
from kernelopt_bot.publish.github import GitHub, GitHubForge
from kernelopt_bot.report.build import build
from kernelopt_bot.search.result import RunResult
from tests.cli.conftest import Case
from tests.github_stand_in import TOKEN

Made = tuple[RunResult, Path]


def moved(case: Case) -> None:
    case.repo.commit("faster-models", {"models/block.py": "x = 3\n"})


def deleted(case: Case) -> None:
    case.repo.git("update-ref", "-d", "refs/heads/faster-models")


def closed(case: Case) -> None:
    case.repo.pulls[case.number]["state"] = "closed"


def labelled(case: Case, name: str) -> None:
    github = GitHub(case.repo.full_name, TOKEN, base_url=case.hub.url)
    github.request("POST", f"issues/{case.number}/labels", {"labels": [name]})


def opted_out(case: Case) -> None:
    labelled(case, "no-kernelopt")


def retargeted(case: Case) -> None:
    case.repo.commit("release", {"other.py": "y = 1\n"})
    case.repo.pulls[case.number]["base"] |= {"ref": "release", "sha": case.repo.sha("release")}


def drafted(case: Case) -> None:
    case.repo.pulls[case.number]["draft"] = True


@pytest.mark.parametrize(("race", "said"), [
    (moved, "moved from"), (deleted, "faster-models is gone"), (closed, "is closed"), (opted_out, "no-kernelopt"),
    (retargeted, "the base"), (drafted, "draft")], ids=lambda x: getattr(x, "__name__", ""))
def test_between_authorisation_and_publication(case: Case, made: Made, race: Callable[[Case], None],
                                               said: str) -> None:
    assert case.run("authorise") == 0
    case.execute(*made)
    race(case)
    assert case.publish() == 0
    assert case.outputs["operation"] == "reported" and len(case.repo.pulls) == 1
    assert not case.repo.sha(f"kernelopt-pr-{case.number}")
    # The branch is looked at after the bundle: by then a gain was shown, which has no place to go to.
    assert case.check["status"] == "completed"
    assert case.check["conclusion"] == ("success" if race is deleted else "neutral")
    assert said in (case.folder / "summary.md").read_text().replace("\\", "")


def test_the_label_that_asked_is_removed(case: Case, made: Made) -> None:
    labelled(case, "kernelopt")
    opened, example = case.pull_request(), case.payload("pull_request", "labeled")
    payload = example | {key: opened[key] for key in ("number", "pull_request", "repository")}
    payload["label"]["name"] = "kernelopt"
    payload["sender"] |= {"login": "octocat", "type": "User"}
    assert case.run("authorise", payload=payload) == 0
    assert case.outputs["execute"] == "true", case.outputs
    case.execute(*made)
    case.repo.issue_labels[case.number] = []
    assert case.publish() == 0
    assert case.outputs["operation"] == "reported" and len(case.repo.pulls) == 1
    assert "was removed" in (case.folder / "summary.md").read_text()


def test_the_permission_of_who_asked_is_taken_away(case: Case, made: Made) -> None:
    assert case.run("authorise", event="issue_comment", payload=case.comment("/kernelopt optimize")) == 0
    case.execute(*made)
    case.repo.permissions["octocat"] = "read"
    assert case.publish() == 0
    assert case.outputs["operation"] == "reported" and len(case.repo.pulls) == 1


def test_a_person_pushed_to_our_branch(case: Case, made: Made) -> None:
    case.run("authorise")
    case.execute(*made)
    assert case.publish() == 0
    theirs = case.repo.commit(f"kernelopt-pr-{case.number}", {"notes.md": "mine\n"})
    assert case.publish() == 0
    assert case.outputs["operation"] == "reported"
    assert case.repo.sha(f"kernelopt-pr-{case.number}") == theirs, "left alone"
    [word] = [c["body"] for c in case.repo.comments.values() if "stopped at=" in c["body"]]
    assert theirs in word


def test_two_runs_publish_at_once(case: Case, made: Made) -> None:
    """Two workflow runs with one result, which is what a second push button or a repeated event makes."""
    case.run("authorise")
    case.execute(*made)
    job = read_order(case.job).job
    (case.folder / "scratch").mkdir()
    held = bundle.read(case.folder / "bundle", case.folder / "scratch", job, "kernelopt_kernels")
    wanted = publication(held.run, build(held.run), held.root, base_ref=job.source_branch, base_sha=job.head_sha)
    assert wanted is not None
    failed: list[BaseException] = []
    together = threading.Barrier(2)

    def publish() -> None:
        try:
            together.wait()
            GitHubForge(case.repo.full_name, TOKEN, base_url=case.hub.url).publish(wanted)
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=publish) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed, failed
    assert len(case.repo.pulls) == 2, "the cause and one of ours"
    assert case.repo.git("rev-list", "--count", f"faster-models..kernelopt-pr-{case.number}") == "1"


def test_the_branch_of_a_dispatched_command_is_deleted_meanwhile(case: Case, made: Made) -> None:
    example = case.payload("pull_request", "opened")
    payload = {"ref": "refs/heads/faster-models", "inputs": {"command": "optimize block"},
               "repository": example["repository"], "sender": example["sender"]}
    assert case.run("authorise", event="workflow_dispatch", payload=payload, branch="faster-models") == 0
    assert case.outputs["execute"] == "true", case.outputs
    case.execute(*made)
    deleted(case)
    assert case.publish() == 0
    assert case.outputs["operation"] == "reported" and len(case.repo.pulls) == 1
    assert "was deleted" in (case.folder / "summary.md").read_text()
