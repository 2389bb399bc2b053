from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from kernelopt_bot.errors import InputError, UserError
from kernelopt_bot.publish.key import key_of
from kernelopt_bot.publish.local import LocalForge
from tests.publish.conftest import KERNEL, publication

BRANCH = "kernelopt-pr-7"


class Checkout:
    """A clone with a work tree, an uncommitted edit, and hooks that leave a trace."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self.git("init", "-q", "-b", "main")
        (path / "model.py").write_text("x = 1\n")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "first")
        (path / "model.py").write_text("x = 'edited'\n")
        self.trace = path.parent / "trace"
        for hook in ("pre-commit", "commit-msg", "reference-transaction", "post-index-change"):
            script = path / ".git" / "hooks" / hook
            script.parent.mkdir(exist_ok=True)
            script.write_text(f"#!/bin/sh\necho {hook} >> {self.trace}\n")
            script.chmod(0o755)

    def git(self, *command: str) -> str:
        who = {
            f"GIT_{who}_{what}": "dev@example.invalid" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
        }
        quiet = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.hooksPath", "GIT_CONFIG_VALUE_0": os.devnull}
        done = subprocess.run(
            ["git", "-C", str(self.path), *command],
            env={**os.environ, **who, **quiet},
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "clone")


@pytest.fixture
def forge(checkout: Checkout, tmp_path: Path) -> LocalForge:
    return LocalForge(checkout.path, tmp_path / "out")


def test_makes_a_branch_without_touching_the_work_tree(checkout: Checkout, forge: LocalForge, tmp_path: Path) -> None:
    head, status = checkout.git("rev-parse", "HEAD"), checkout.git("status", "--porcelain")
    done = forge.publish(publication(head))
    assert (done.operation, done.branch) == ("created", BRANCH)
    assert done.head_sha == checkout.git("rev-parse", BRANCH)
    assert checkout.git("rev-parse", f"{BRANCH}^") == head
    assert checkout.git("show", f"{BRANCH}:{KERNEL}") == "def norm(): ..."
    assert checkout.git("show", f"{BRANCH}:model.py") == "x = 1"
    assert key_of(checkout.git("log", "-1", "--format=%B", BRANCH)) == "1" * 64
    assert (checkout.git("rev-parse", "HEAD"), checkout.git("status", "--porcelain")) == (head, status)
    assert not checkout.trace.exists()
    assert (tmp_path / "out" / "pull-request-title.txt").read_text() == "perf: faster\n"
    assert (tmp_path / "out" / "pull-request.md").read_text() == publication(head).body
    assert {Path(f).name for f in done.files} == {"pull-request-title.txt", "pull-request.md"}


def test_the_same_twice_is_unchanged_and_more_goes_on_top(checkout: Checkout, forge: LocalForge) -> None:
    head = checkout.git("rev-parse", "HEAD")
    first = forge.publish(publication(head))
    assert forge.publish(publication(head)) == replace(first, operation="unchanged")
    second = forge.publish(publication(head, "2" * 64, b"other\n"))
    assert second.operation == "updated"
    assert checkout.git("rev-parse", f"{BRANCH}^") == first.head_sha


def test_a_moved_base_becomes_a_second_parent(checkout: Checkout, forge: LocalForge) -> None:
    first = forge.publish(publication(checkout.git("rev-parse", "HEAD")))
    checkout.git("commit", "-q", "-a", "-m", "second")
    head = checkout.git("rev-parse", "HEAD")
    forge.publish(publication(head, "2" * 64))
    assert checkout.git("rev-parse", f"{BRANCH}^1", f"{BRANCH}^2").split() == [first.head_sha, head]


def test_a_persons_branch_is_left_alone(checkout: Checkout, forge: LocalForge) -> None:
    checkout.git("branch", BRANCH)
    head = checkout.git("rev-parse", "HEAD")
    done = forge.publish(publication(head))
    assert (done.operation, done.head_sha) == ("reported", head)
    assert "not ours" in done.reason


def test_a_branch_that_is_checked_out_is_left_alone(checkout: Checkout, forge: LocalForge) -> None:
    head = checkout.git("rev-parse", "HEAD")
    forge.publish(publication(head))
    checkout.git("stash", "-q")
    checkout.git("checkout", "-q", BRANCH)
    with pytest.raises(UserError, match="checked out"):
        forge.publish(publication(head, "2" * 64, b"other\n"))


def test_a_users_file_in_the_way_is_an_error(checkout: Checkout, forge: LocalForge) -> None:
    (checkout.path / "kernelopt_kernels").write_text("mine\n")
    checkout.git("add", "kernelopt_kernels")
    checkout.git("commit", "-q", "-m", "a file")
    with pytest.raises(UserError, match="git failed"):
        forge.publish(publication(checkout.git("rev-parse", "HEAD")))
    assert checkout.git("branch", "--list", BRANCH) == ""


def test_files_that_are_there_already_make_no_commit(checkout: Checkout, forge: LocalForge) -> None:
    for path, content in publication("").files.items():
        (checkout.path / path).parent.mkdir(parents=True, exist_ok=True)
        (checkout.path / path).write_bytes(content)
    checkout.git("add", "kernelopt_kernels")
    checkout.git("commit", "-q", "-m", "merged")
    assert forge.publish(publication(checkout.git("rev-parse", "HEAD"))).operation == "unchanged"
    assert checkout.git("branch", "--list", BRANCH) == ""


@pytest.mark.parametrize(
    "change", [{"base_sha": "0" * 40}, {"base_sha": "--all"}, {"branch": "-x"}, {"branch": "a..b"}]
)
def test_nonsense_changes_nothing(checkout: Checkout, forge: LocalForge, change: dict[str, str]) -> None:
    before = checkout.git("for-each-ref")
    with pytest.raises(UserError):
        forge.publish(replace(publication(checkout.git("rev-parse", "HEAD")), **change))
    assert checkout.git("for-each-ref") == before


def test_filters_of_the_repository_are_not_run(checkout: Checkout, forge: LocalForge) -> None:
    """A clean filter is a command of the user's repository."""
    checkout.git("config", "filter.loud.clean", f"sh -c 'echo filter >> {checkout.trace}; cat'")
    (checkout.path / ".git" / "info").mkdir(exist_ok=True)
    (checkout.path / ".git" / "info" / "attributes").write_text("*.py filter=loud\n")
    assert forge.publish(publication(checkout.git("rev-parse", "HEAD"))).operation == "created"
    assert not checkout.trace.exists()


def test_no_repository_and_no_permission(tmp_path: Path, checkout: Checkout) -> None:
    with pytest.raises(InputError, match="not a git repository"):
        LocalForge(tmp_path, tmp_path)
    assert LocalForge(checkout.path, tmp_path).can_write() == ""


def test_an_output_that_cannot_be_written_stops_before_the_branch(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(InputError, match="can't be written"):
        LocalForge(checkout.path, tmp_path / "out").publish(publication(checkout.git("rev-parse", "HEAD")))
    assert checkout.git("branch", "--list", BRANCH) == ""


def test_kernels_of_an_earlier_merge_go_and_other_files_stay(checkout: Checkout, forge: LocalForge) -> None:
    old, note = "kernelopt_kernels/block/kernels/old.py", "kernelopt_kernels/block/NOTES.md"
    mine, manifest = "kernelopt_kernels/block/kernels/mine.py", "kernelopt_kernels/block/manifest.json"
    for path in (old, note, KERNEL, mine, manifest):
        (checkout.path / path).parent.mkdir(parents=True, exist_ok=True)
        (checkout.path / path).write_text('{"runs": [{"kernel": "kernels/old.py"}]}\n')
    checkout.git("add", "kernelopt_kernels")
    checkout.git("commit", "-q", "-m", "merged")
    p = replace(
        publication(checkout.git("rev-parse", "HEAD")), replaced=("kernelopt_kernels/block/kernels", "absent/kernels")
    )
    assert forge.publish(p).operation == "created"
    names = checkout.git("ls-tree", "-r", "--name-only", BRANCH).split()
    assert (old in names, note in names, mine in names, KERNEL in names) == (False, True, True, True)


def test_a_package_of_a_person_is_not_written_over(checkout: Checkout, forge: LocalForge) -> None:
    (checkout.path / "kernelopt_kernels/block").mkdir(parents=True)
    (checkout.path / "kernelopt_kernels/block/__init__.py").write_text("mine\n")
    checkout.git("add", "kernelopt_kernels")
    checkout.git("commit", "-q", "-m", "mine")
    p = replace(publication(checkout.git("rev-parse", "HEAD")), replaced=("kernelopt_kernels/block/kernels",))
    with pytest.raises(UserError, match="did not write"):
        forge.publish(p)


def test_the_environment_cannot_redirect_git(
    checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Checkout(tmp_path / "other")
    monkeypatch.setenv("GIT_DIR", str(other.path / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other.path / ".git" / "index"))
    head = (checkout.path / ".git" / "refs" / "heads" / "main").read_text().strip()
    assert LocalForge(checkout.path, tmp_path / "out").publish(publication(head)).operation == "created"
    monkeypatch.undo()
    assert checkout.git("branch", "--list", BRANCH)
    assert not other.git("branch", "--list", BRANCH)
