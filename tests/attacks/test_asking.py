"""Who asks, and with what text: nothing of a comment, a name or a branch becomes a command, a mention or an output."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.search.result import RunResult
from tests.cli.conftest import CONFIG, Case
from tests.github_stand_in.checks_api import add_comment

OUTPUTS = {"execute", "proceed", "artifact", "head-sha", "source", "reason"}
COMMANDS = re.compile(r"^\s*::|##\[", re.MULTILINE)


def asked(case: Case, body: str, **changes: Any) -> dict[str, str]:
    """The outputs of authorise for a comment."""
    payload = case.comment(body)
    payload["comment"] |= changes
    assert case.run("authorise", event="issue_comment", payload=payload) == 0
    assert set(case.outputs) == OUTPUTS, "one line each, and no others"
    return case.outputs


def answers(case: Case) -> list[str]:
    return [c["body"] for i, c in case.repo.comments.items() if i != case.asking]


@pytest.mark.parametrize("changes", [
    {"user": {"login": "helper[bot]", "type": "Bot"}}, {"user": {"login": "helper[bot]", "type": "User"}},
    {"performed_via_github_app": {"id": 1, "slug": "helper"}}, {"user": None}],
    ids=["a bot", "by its name", "a program in a person's name", "a deleted account"])
def test_a_bots_command(case: Case, changes: dict[str, Any]) -> None:
    if changes.get("user"):
        changes = {"user": case.comment("")["comment"]["user"] | changes["user"]}
        case.repo.permissions[changes["user"]["login"]] = "admin"
    said = asked(case, "/kernelopt optimize", **changes)
    assert said["execute"] == "false" and "bot" in said["reason"]
    assert not answers(case) and not case.repo.reactions and not case.repo.checks


@pytest.mark.parametrize("status", [403, 404, 500])
def test_a_permission_that_cannot_be_read(case: Case, status: int) -> None:
    case.hub.fail("repos/get-collaborator-permission-level", status, times=9)
    said = asked(case, "/kernelopt optimize")
    assert said["execute"] == "false" and "cannot be read" in said["reason"]
    assert not answers(case) and not case.repo.checks


TEXTS = (
    "${{ secrets.GITHUB_TOKEN }}", "@octocat/everyone", "$(touch${IFS}canary)", "`touch canary`", "a;touch canary",
    "<img src=x onerror=alert(1)>", "::set-output name=execute::true", "##[set-output name=execute]true",
    "[x](https://example.invalid)", "x%0Aexecute=true", "--sha=\u202eabc", "fixes #1", "'; DROP")


def test_the_text_of_a_command(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    for text in TEXTS:
        said = asked(case, f"/kernelopt {text}\nexecute=true\n::set-output name=execute::true")
        assert said["execute"] == "false" and said["reason"] == "the command was not understood"
        [answer] = answers(case)
        outside = re.sub(r"`[^`]*`", "", answer.partition("| command |")[0])
        assert not re.search(r"[@#<\[$]|::|%0A", outside.partition("-->")[2]), outside
        out, err = capsys.readouterr()
        for stream in (out, err.partition("\n")[2]):
            first, _, rest = stream.partition("\n")
            assert first.startswith("::stop-commands::") and not COMMANDS.search(rest)
        case.repo.comments = {case.asking: case.repo.comments[case.asking]}


@pytest.mark.parametrize("body", [
    "<!-- kernelopt:comment -->\n/kernelopt optimize", "/kernelopt optimize\n<!-- kernelopt:reply 1 -->",
    "/kernelopt optimize\n\n<!-- kernelopt key=" + "0" * 64 + " state=done -->", "> /kernelopt optimize"])
def test_a_forged_marker_fires_nothing(case: Case, body: str) -> None:
    assert asked(case, body)["execute"] == "false"
    assert not answers(case)


def test_forged_markers_of_a_stranger_change_and_silence_nothing(case: Case, made: tuple[RunResult, Path]) -> None:
    """A stranger wrote what our comments begin or end with, before we did."""
    forged = [add_comment(case.hub, case.repo, case.number, "stranger", body)["id"] for body in (
        "<!-- kernelopt:comment -->\nAll is well, merge it.", f"<!-- kernelopt:reply {case.asking} -->\nno")]
    before = [dict(case.repo.comments[i]) for i in forged]
    asked(case, "/kernelopt help")
    assert len([a for a in answers(case) if a.startswith("<!-- kernelopt:reply") and "optimize" in a]) == 1
    case.run("authorise")
    case.execute(*made)
    assert case.publish() == 0
    assert [case.repo.comments[i] for i in forged] == before
    branch = f"kernelopt-pr-{case.number}"
    theirs = case.repo.commit(branch, {"notes.md": "mine\n"})
    number = next(n for n in case.repo.pulls if n != case.number)
    add_comment(case.hub, case.repo, number, "stranger", f"hello\n<!-- kernelopt stopped at={theirs} -->")
    for _ in range(2):
        assert case.publish() == 0
    said = [c for c in case.repo.comments.values() if f"stopped at={theirs}" in c["body"]]
    assert [c["user"]["login"] for c in said] == ["stranger", case.hub.login], "said once, whoever said it before"


@pytest.mark.parametrize("name", ["x;$(touch${IFS}canary)`id`", "a'b\"c&&x|y>z", "@octocat/#1<b>x</b>",
                                  "--upload-pack=x", "%0Aexecute=true\u202e", "refs/heads/main"])
def test_a_branch_with_shell_characters(case: Case, made: tuple[RunResult, Path], name: str) -> None:
    case.repo.git("update-ref", f"refs/heads/{name}", case.head)
    case.repo.pulls[case.number]["head"] |= {"ref": name, "label": f"acme:{name}"}
    payload = case.pull_request()
    payload["pull_request"]["head"]["ref"] = name
    assert case.run("authorise", payload=payload) == 0
    assert set(case.outputs) == OUTPUTS and case.outputs["execute"] == "true", case.outputs
    case.execute(*made)
    assert case.publish() == 0
    assert case.outputs["operation"] == "created"
    ours = next(p for n, p in case.repo.pulls.items() if n != case.number)
    assert (ours["base"]["ref"], ours["head"]["ref"]) == (name, f"kernelopt-pr-{case.number}")
    assert "@octocat/#1" not in re.sub(r"`[^`\n]*`", "", ours["body"]) and "<b>" not in ours["body"]


def test_a_pull_request_of_a_fork(case: Case) -> None:
    """It brings a policy that would let itself run: the default branch's counts."""
    case.repo.commit("faster-models", {".kernelopt.yml": f"{CONFIG}runner: {{ ephemeral: true }}\nsandbox: process\n"})
    payload = case.pull_request()
    head = payload["pull_request"]["head"]
    head["repo"] |= {"id": 99, "full_name": "stranger/kernels"}
    case.repo.pulls[case.number]["head"]["repo"] |= {"id": 99, "full_name": "stranger/kernels"}
    assert case.run("authorise", payload=payload) == 0
    assert case.outputs["execute"] == "false" and "comes from a fork" in case.outputs["reason"]
    for command in ("optimize", f"optimize --sha {case.head}"):
        said = asked(case, f"/kernelopt {command}")
        assert said["execute"] == "false" and "runner.ephemeral" in said["reason"]
    assert not case.job.exists() and not case.repo.checks


def test_a_fork_on_an_ephemeral_runner_becomes_a_report_and_no_branch(case: Case, made: tuple[RunResult, Path]) -> None:
    case.repo.commit("main", {".kernelopt.yml": f"{CONFIG}runner: {{ ephemeral: true }}\n"})
    case.repo.pulls[case.number]["head"]["repo"] |= {"id": 99, "full_name": "stranger/kernels"}
    assert asked(case, f"/kernelopt optimize --sha {case.head[:12]}")["execute"] == "false"
    assert asked(case, f"/kernelopt optimize --sha {case.head}")["execute"] == "true"
    case.execute(*made)
    assert case.publish() == 0
    assert case.outputs["operation"] == "reported" and len(case.repo.pulls) == 1
    assert case.repo.git("branch", "--list", "kernelopt-*") == ""


def test_what_a_command_costs(case: Case, made: tuple[RunResult, Path]) -> None:
    """The dearest way to a pull request: a comment, which is reacted to, with its permission read twice."""
    case.hub.log.clear()
    assert asked(case, "/kernelopt optimize --budget 20m")["execute"] == "true"
    case.execute(*made)
    assert case.publish() == 0 and case.outputs["operation"] == "created"
    assert [r["content"] for r in case.repo.reactions] == ["eyes", "rocket", "hooray"]
    assert len(case.hub.log) <= 40, [name for name, _ in case.hub.log]
