"""Reading repositories: revisions, changes, contents, and that nothing in them can start a program."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelopt_bot.errors import InputError, Unavailable, UserError
from kernelopt_bot.targets.git import Repository, environment, open_repository
from tests.targets.conftest import Scratch


def refused(call: Callable[[], object]) -> UserError:
    with pytest.raises(InputError) as caught:
        call()
    assert caught.value.exit_code == 2
    assert caught.value.where
    assert caught.value.fix
    return caught.value


def test_a_repository_is_opened_from_any_folder_inside(scratch: Scratch) -> None:
    scratch.commit({"a/b/c.py": ""})
    assert open_repository(scratch.root / "a" / "b") == Repository(scratch.root)


def test_not_a_git_repository(tmp_path: Path) -> None:
    error = refused(lambda: open_repository(tmp_path))
    assert error.what == "this is not a git repository"
    assert error.where == str(tmp_path)
    assert "kernelopt optimize PATH" in error.fix


def test_no_such_folder(tmp_path: Path) -> None:
    assert "no such folder" in refused(lambda: open_repository(tmp_path / "none")).what


def test_a_bare_repository(scratch: Scratch, tmp_path: Path) -> None:
    scratch.commit({"a.py": ""})
    scratch.git("clone", "-q", "--bare", str(scratch.root), str(tmp_path / "bare.git"))
    assert "bare" in refused(lambda: open_repository(tmp_path / "bare.git")).what


def test_a_bare_repository_hidden_in_the_work_tree_is_not_entered(scratch: Scratch) -> None:
    scratch.commit({"a.py": ""})
    hidden = scratch.root / "data"
    scratch.git("clone", "-q", "--bare", str(scratch.root), str(hidden))
    (hidden / "config").write_text("[core]\n\tbare = false\n\tworktree = /tmp\n\tfsmonitor = touch /tmp/pwned\n")
    error = refused(lambda: open_repository(hidden))
    assert "bare" in error.what


def test_a_repository_without_commits(scratch: Scratch) -> None:
    repository = open_repository(scratch.root)
    error = refused(lambda: repository.commit("HEAD"))
    assert error.what == "the repository has no commit yet"


def test_revisions(scratch: Scratch) -> None:
    first = scratch.commit({"a.py": "1"})
    second = scratch.commit({"a.py": "2"})
    scratch.git("branch", "feature", first)
    repository = open_repository(scratch.root)
    assert repository.commit("HEAD") == second
    assert repository.commit("feature") == first
    assert repository.commit(first[:10]) == first


@pytest.mark.parametrize(("revision", "fix"), [
    ("featuer", "did you mean feature?"),
    ("zzz", "`git branch -a` lists what there is"),
    ("0123456789012345678901234567890123456789", "git fetch origin 0123456789012345678901234567890123456789"),
])
def test_unknown_revisions(scratch: Scratch, revision: str, fix: str) -> None:
    scratch.commit({"a.py": ""})
    scratch.git("branch", "feature")
    repository = open_repository(scratch.root)
    error = refused(lambda: repository.commit(revision))
    assert revision in error.what
    assert error.fix.endswith(fix)


@pytest.mark.parametrize("revision", ["", "--upload-pack=touch x", "a\nb"])
def test_what_is_no_revision(scratch: Scratch, revision: str) -> None:
    scratch.commit({"a.py": ""})
    assert "is not a revision" in refused(lambda: open_repository(scratch.root).commit(revision)).what


def test_a_shallow_clone_without_the_base_commit(scratch: Scratch, tmp_path: Path) -> None:
    base = scratch.commit({"a.py": "1"})
    head = scratch.commit({"a.py": "2"})
    scratch.git("clone", "-q", "--depth", "1", f"file://{scratch.root}", str(tmp_path / "shallow"))
    repository = open_repository(tmp_path / "shallow")
    assert repository.commit("HEAD") == head
    error = refused(lambda: repository.commit(base))
    assert error.what == f"the commit {base} is not in this shallow clone"
    assert "fetch-depth: 0" in error.fix
    assert "git fetch --unshallow" in error.fix


def test_changes_start_at_the_merge_base(scratch: Scratch) -> None:
    scratch.commit({"a.py": "1", "b.py": "1", "gone.py": "", "old.py": "a long enough text to be seen as a rename\n"})
    scratch.git("checkout", "-q", "-b", "feature")
    head = scratch.commit({"a.py": "2", "gone.py": None, "old.py": None,
                           "new name\n.py": "a long enough text to be seen as a rename\n"})
    scratch.git("checkout", "-q", "main")
    base = scratch.commit({"b.py": "2"})
    repository = open_repository(scratch.root)
    start = repository.merge_base(base, head)
    assert repository.changed(start, head) == ("a.py", "gone.py", "new name\n.py", "old.py")
    assert "b.py" in repository.changed(base, head)


def test_histories_without_a_common_commit_have_no_merge_base(scratch: Scratch) -> None:
    first = scratch.commit({"a.py": "1"})
    scratch.git("checkout", "-q", "--orphan", "other")
    second = scratch.commit({"a.py": "2"})
    assert open_repository(scratch.root).merge_base(first, second) == ""


def test_contents_come_from_the_commit_and_not_from_the_work_tree(scratch: Scratch) -> None:
    commit = scratch.commit({"a.py": "committed", "binary": b"\0\n\xff\n", "empty": ""})
    scratch.write({"a.py": "edited", "untracked.py": ""})
    repository = open_repository(scratch.root)
    found = {entry.path: content for entry, content in repository.blobs(repository.entries(commit))}
    assert found == {"a.py": b"committed", "binary": b"\0\n\xff\n", "empty": b""}


def test_many_files_are_read_in_batches(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = scratch.commit({f"{i}.txt": str(i) * 10 for i in range(20)})
    repository = open_repository(scratch.root)
    monkeypatch.setattr("kernelopt_bot.targets.git.BATCH_BYTES", 45)
    found = {entry.path: content for entry, content in repository.blobs(repository.entries(commit))}
    assert found == {f"{i}.txt": str(i).encode() * 10 for i in range(20)}


def test_a_partial_clone_says_what_is_missing(scratch: Scratch, tmp_path: Path) -> None:
    commit = scratch.commit({"a.py": "1"})
    scratch.git("config", "uploadpack.allowFilter", "true")
    partial = tmp_path / "partial"
    scratch.git("clone", "-q", "--no-checkout", "--filter=blob:none", f"file://{scratch.root}", str(partial))
    repository = open_repository(partial)
    error = refused(lambda: list(repository.blobs(repository.entries(commit))))
    assert error.what == "this is a partial clone: some of its files were never fetched"
    whole = open_repository(scratch.root)
    error = refused(lambda: list(repository.blobs(whole.entries(commit))))
    assert "partial clone" in error.what


@pytest.mark.parametrize("setting", [
    "core.fsmonitor", "core.hooksPath", "diff.external", "core.pager", "core.sshCommand", "core.attributesFile"])
def test_settings_of_the_repository_start_no_program(scratch: Scratch, tmp_path: Path, setting: str) -> None:
    base = scratch.commit({"a.py": "1"})
    head = scratch.commit({"a.py": "2", ".gitattributes": "*.py diff=evil filter=evil\n"})
    mark = tmp_path / "started"
    program = tmp_path / "hooks" / "post-checkout"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    scratch.git("config", setting, str(program.parent if setting == "core.hooksPath" else program))
    for key in ("diff.evil.command", "diff.evil.textconv", "filter.evil.smudge", "filter.evil.clean"):
        scratch.git("config", key, str(program))
    repository = open_repository(scratch.root)
    assert repository.commit("HEAD") == head
    assert repository.changed(repository.merge_base(base, head), head) == (".gitattributes", "a.py")
    assert [content for entry, content in repository.blobs(repository.entries(head)) if entry.path == "a.py"] == [b"2"]
    assert not mark.exists()


def test_the_environment_of_this_process_does_not_reach_git(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = scratch.commit({"a.py": ""})
    # As in a git hook, and as a workflow that passes its token on by configuration.
    for key, value in {"GIT_DIR": "/nonexistent", "GIT_INDEX_FILE": "/nonexistent", "GIT_WORK_TREE": "/nonexistent",
                       "GIT_OBJECT_DIRECTORY": "/nonexistent", "GITHUB_TOKEN": "ghs_secretsecret"}.items():
        monkeypatch.setenv(key, value)
    assert open_repository(scratch.root).commit("HEAD") == commit
    assert not any("secret" in value for value in environment().values())


def test_git_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "env").symlink_to("/usr/bin/env")
    monkeypatch.setenv("PATH", str(bin_folder))
    with pytest.raises(Unavailable, match="git is not installed") as caught:
        open_repository(tmp_path)
    assert "install git" in caught.value.fix


def test_somebody_elses_repository(scratch: Scratch) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder to another user")
    scratch.commit({"a.py": ""})
    for path in (scratch.root, scratch.root / ".git"):
        os.chown(path, 65534, 65534)
    error = refused(lambda: open_repository(scratch.root))
    assert error.what == "the repository belongs to another user"


def test_a_damaged_repository(scratch: Scratch) -> None:
    commit = scratch.commit({"a.py": "text"})
    repository = open_repository(scratch.root)
    entry = repository.entries(commit)[0]
    loose = scratch.root / ".git" / "objects" / entry.oid[:2] / entry.oid[2:]
    loose.chmod(0o644)
    loose.write_bytes(b"garbage")
    error = refused(lambda: list(repository.blobs([entry])))
    assert "git fsck" in error.fix or "fetch" in error.fix
