"""Sources and their syntax trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelopt_bot.targets.git import open_repository
from kernelopt_bot.targets.source import LIMIT, CommitSource, FolderSource, Trees
from tests.targets.conftest import Scratch


def test_a_commit_and_a_folder_look_the_same(scratch: Scratch) -> None:
    commit = scratch.commit({"a/b.py": "x = 1", "c.txt": ""})
    for source in (CommitSource(open_repository(scratch.root), commit), FolderSource(scratch.root)):
        assert source.is_file("a/b.py")
        assert source.is_file("c.txt")
        assert not source.is_file("a")
        assert source.is_folder("a")
        assert not source.is_folder("b")
        assert source.read("a/b.py") == b"x = 1"
        with pytest.raises(KeyError):
            source.read("none.py")


def test_ghosts_are_empty_files(scratch: Scratch) -> None:
    commit = scratch.commit({"a.py": "x"})
    source = CommitSource(open_repository(scratch.root), commit, ["gone/b.py"])
    assert source.read("gone/b.py") == b""
    assert source.is_folder("gone")
    assert source.paths == ("a.py", "gone/b.py")


@pytest.mark.parametrize(("text", "reason"), [
    (b"def (:\n", "line 1: "), (b"x = 1\n\0", "null byte"), (b"# coding: klingon\n", "klingon"),
    (b"x = '\xff'\n", "utf-8"), (b"a = " + b"(" * 5000, "parenthes"), (b"#" * (LIMIT + 1), "longer than 2 MiB"),
    (b"x = " + b"-" * 200_000 + b"1", ""),
])
def test_what_does_not_parse_has_a_reason(tmp_path: Path, text: bytes, reason: str) -> None:
    (tmp_path / "a.py").write_bytes(text)
    trees = Trees(FolderSource(tmp_path))
    assert trees.get("a.py") is None
    assert reason in trees.broken["a.py"]
    assert trees.broken["a.py"]


def test_a_missing_file_has_a_reason(tmp_path: Path) -> None:
    trees = Trees(FolderSource(tmp_path))
    assert trees.get("a.py") is None
    assert trees.broken == {"a.py": "does not exist"}


def test_warnings_of_the_source_are_not_ours(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = '\\d' is 'y'\n")
    assert Trees(FolderSource(tmp_path)).get("a.py") is not None
