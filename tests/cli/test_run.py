from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kernelopt_bot.cli import run as command
from kernelopt_bot.cli.main import main
from kernelopt_bot.cli.searching import refuse_committed_interpreter
from kernelopt_bot.config import Config
from kernelopt_bot.errors import InputError
from kernelopt_bot.events.job import Job
from kernelopt_bot.search.result import RunResult
from kernelopt_bot.search.sweep import Proposal, Swept, Verified
from kernelopt_bot.targets.git import open_repository
from tests.targets.conftest import Scratch


@pytest.mark.parametrize("tracked", [
    ".venv/bin/python", ".venv/pyvenv.cfg", ".venv", ".venv/lib/python3.11/site-packages/x.pth", ".venv/bin/activate",
])
def test_an_environment_that_the_commit_holds_is_refused(tmp_path: Path, tracked: str) -> None:
    """Whoever writes pyvenv.cfg says what the jail may read."""
    with pytest.raises(InputError, match="committed") as e:
        refuse_committed_interpreter(".venv/bin/python", tmp_path, ["net/model.py", tracked])
    assert e.value.where == tracked


@pytest.mark.parametrize("python", [".venv/bin/python", "/usr/bin/python3", "python3", "../other/bin/python", ""])
def test_other_interpreters_are_not(tmp_path: Path, python: str) -> None:
    refuse_committed_interpreter(python, tmp_path, ["net/model.py", "venv/readme", "bin/tool"])


@pytest.mark.parametrize("base", ["checkout", "alias"])
def test_an_absolute_path_into_the_checkout_counts(tmp_path: Path, base: str) -> None:
    (tmp_path / "checkout/env/bin").mkdir(parents=True)
    (tmp_path / "alias").symlink_to(tmp_path / "checkout")
    with pytest.raises(InputError, match="committed"):
        refuse_committed_interpreter(str(tmp_path / base / "env/bin/python"), tmp_path / "checkout", ["env/pyvenv.cfg"])


def test_a_folder_that_begins_with_two_dots_is_inside(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="committed"):
        refuse_committed_interpreter("..env/bin/python", tmp_path, ["..env/pyvenv.cfg"])


def test_what_was_found_becomes_a_branch_here(tmp_path: Path, made: tuple[RunResult, Path],
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = Scratch(tmp_path / "project")
    head = scratch.commit({"models/block.py": "x = 1\n", "kernelopt_kernels/old/manifest.json": "{}"})
    shutil.copytree(made[1], tmp_path / "run/bundle")
    monkeypatch.chdir(scratch.root)
    job = Job("schedule", "", "acme/kernels", head, head, source_branch="main", sweep=True)
    old = "kernelopt_kernels/old"
    swept = Swept((Verified(old, "stale"),), proposals=(Proposal(old, "stale", "remove", "other torch"),))
    run = replace(made[0], head_sha=head, pull_request=None)
    done = command._published("local", None, open_repository(scratch.root), job, Config(), run, tmp_path / "run", swept,
                              tmp_path / "out")
    assert (done.operation, done.branch) == ("created", "kernelopt-sweep-main")
    assert done.notes == (f"{old} is not removed: that takes a pull request on GitHub",)
    files = scratch.git("ls-tree", "-r", "--name-only", done.branch).splitlines()
    assert f"{old}/manifest.json" in files and "kernelopt_kernels/transformer_block/manifest.json" in files


def test_the_policy_is_that_of_the_default_branch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scratch = Scratch(tmp_path)
    base = scratch.commit({"a.py": "x = 1\n"})
    newer = scratch.commit({"a.py": "x = 2\n"})
    repository, job = open_repository(tmp_path), Job("push", "", "acme/kernels", newer, base, default_branch="trunk")
    assert command._policy_commit(repository, job, None) == base
    assert "the branch trunk is not in this clone, so the policy is that of" in capsys.readouterr().err
    scratch.git("update-ref", "refs/remotes/origin/trunk", newer)
    assert command._policy_commit(repository, job, None) == newer


def test_one_process_says_what_it_does_not_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                              capsys: pytest.CaptureFixture[str]) -> None:
    scratch = Scratch(tmp_path)
    head = scratch.commit({"a.py": "x = 1\n"})
    (tmp_path / "event.json").write_text(json.dumps({
        "inputs": {"command": "verify"}, "sender": {"login": "octocat", "type": "User"}, "ref": "refs/heads/main",
        "repository": {"id": 1, "full_name": "acme/kernels", "default_branch": "main"}}))
    for name, value in {"EVENT_NAME": "workflow_dispatch", "EVENT_PATH": str(tmp_path / "event.json"), "SHA": head,
                        "REF": "refs/heads/main", "REPOSITORY": "acme/kernels"}.items():
        monkeypatch.setenv(f"GITHUB_{name}", value)
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--publish", "report", "--output", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert "verify is not handled in one process; use the three phases: copy docs/workflows/comment.yml" in out


@pytest.mark.parametrize(("pushes", "said"), [
    ("[trunk]", "nothing to do: pushes to main start no run: events.push does not name it"),
    ("[main]", "not published: publication is switched off")])
def test_what_the_policy_does_not_want_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pushes: str,
                                                  said: str, capsys: pytest.CaptureFixture[str]) -> None:
    scratch = Scratch(tmp_path)
    base = scratch.commit({"a.py": "x = 1\n", ".kernelopt.yml": f"version: 1\nevents: {{ push: {pushes} }}\n"})
    head = scratch.commit({"a.py": "x = 2\n"})
    scratch.git("update-ref", "refs/remotes/origin/main", head)
    event = tmp_path / "event.json"
    event.write_text(json.dumps({
        "ref": "refs/heads/main", "before": base, "after": head, "commits": [], "sender": {"login": "octocat"},
        "repository": {"id": 1, "full_name": "acme/kernels", "default_branch": "main"}}))
    monkeypatch.setenv("GITHUB_EVENT_NAME", "push")
    monkeypatch.setenv("GITHUB_EVENT_PATH", str(event))
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--publish", "report", "--output", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == said
