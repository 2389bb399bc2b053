"""The worker's copy of a commit: exact, and confined."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelopt_bot.errors import InputError, Unavailable
from kernelopt_bot.targets.checkout import checkout
from kernelopt_bot.targets.git import open_repository
from tests.targets.conftest import Scratch


def test_files_modes_and_inner_links_are_as_committed(scratch: Scratch, tmp_path: Path) -> None:
    scratch.write({"pkg/net.py": "x = 1\n", "run.sh": "#!/bin/sh\n", "data": b"\0\r\n"})
    (scratch.root / "run.sh").chmod(0o755)
    (scratch.root / "pkg" / "alias.py").symlink_to("net.py")
    (scratch.root / "all").symlink_to("pkg")
    commit = scratch.commit({})
    scratch.write({"pkg/net.py": "edited\n"})
    copy = checkout(open_repository(scratch.root), commit, tmp_path / "copy")
    assert copy.skipped == ()
    assert (copy.root / "pkg" / "net.py").read_text() == "x = 1\n"
    assert (copy.root / "all" / "alias.py").read_text() == "x = 1\n"
    assert (copy.root / "data").read_bytes() == b"\0\r\n"
    assert os.access(copy.root / "run.sh", os.X_OK)
    assert not (copy.root / ".git").exists()


@pytest.mark.parametrize("goal", ["/etc/passwd", "../../outside", "pkg/../../outside", "..", ".git/../.."])
def test_links_that_leave_are_left_out(scratch: Scratch, tmp_path: Path, goal: str) -> None:
    scratch.write({"pkg/net.py": ""})
    (scratch.root / "link").symlink_to(goal)
    commit = scratch.commit({})
    copy = checkout(open_repository(scratch.root), commit, tmp_path / "copy")
    assert [path for path, _ in copy.skipped] == ["link"]
    assert "symbolic link" in copy.skipped[0][1]
    assert not (copy.root / "link").is_symlink()


def test_a_link_that_leaves_by_way_of_another_is_left_out(scratch: Scratch, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hidden")
    scratch.write({"a/b/net.py": ""})
    (scratch.root / "a" / "b" / "up").symlink_to("../..")
    (scratch.root / "a" / "b" / "out").symlink_to("up/../secret")
    commit = scratch.commit({})
    copy = checkout(open_repository(scratch.root), commit, tmp_path / "copy")
    assert [path for path, _ in copy.skipped] == ["a/b/out"]
    assert (copy.root / "a" / "b" / "up").resolve() == copy.root


def test_links_in_a_circle_do_no_harm(scratch: Scratch, tmp_path: Path) -> None:
    (scratch.root / "x").symlink_to("y")
    (scratch.root / "y").symlink_to("x")
    commit = scratch.commit({})
    assert checkout(open_repository(scratch.root), commit, tmp_path / "copy").root.is_dir()


def test_submodules_and_lfs_pointers_are_told(scratch: Scratch, make_scratch: Callable[[str], Scratch], tmp_path: Path
                                              ) -> None:
    other = make_scratch("other")
    other.commit({"x.py": ""})
    scratch.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other.root), "vendor")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 12\n"
    commit = scratch.commit({"weights.bin": pointer})
    copy = checkout(open_repository(scratch.root), commit, tmp_path / "copy")
    reasons = dict(copy.skipped)
    assert "submodule" in reasons["vendor"]
    assert "Git LFS" in reasons["weights.bin"]
    assert not (copy.root / "vendor").exists()


def hostile_tree(scratch: Scratch, *entries: tuple[str, str, str]) -> str:
    """A commit whose tree holds what `git add` would refuse: (mode, name, content or tree hash)."""
    raw = b""
    for mode, name, content in entries:
        if mode != "40000":
            scratch.write({"blob.tmp": content})
            content = scratch.git("hash-object", "-w", "blob.tmp")
        raw += f"{mode} {name}\0".encode() + bytes.fromhex(content)
    scratch.write({"tree.tmp": raw})
    tree = scratch.git("hash-object", "-t", "tree", "-w", "--literally", "tree.tmp")
    return scratch.git("commit-tree", tree, "-m", "hostile")


def test_hostile_paths_are_left_out(scratch: Scratch, tmp_path: Path) -> None:
    inner = scratch.git("rev-parse", hostile_tree(scratch, ("100644", "evil.py", "x")) + "^{tree}")
    commit = hostile_tree(scratch, ("40000", "..", inner), ("40000", ".GIT", inner), ("100644", "good.py", "x"),
                          ("100644", "new\nline.py", "x"))
    copy = checkout(open_repository(scratch.root), commit, tmp_path / "copy")
    assert sorted(path for path, _ in copy.skipped) == ["../evil.py", ".GIT/evil.py", "new\nline.py"]
    assert [p.name for p in copy.root.iterdir()] == ["good.py"]
    assert not (tmp_path / "evil.py").exists()


def test_nothing_is_written_through_a_link(scratch: Scratch, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    inner = scratch.git("rev-parse", hostile_tree(scratch, ("120000", "evil", "x"), ("100644", "y", "x")) + "^{tree}")
    commit = hostile_tree(scratch, ("120000", "a", "../outside"), ("40000", "a", inner))
    copy = checkout(open_repository(scratch.root), commit, tmp_path / "copy")
    assert list((tmp_path / "outside").iterdir()) == []
    assert {path for path, _ in copy.skipped} == {"a", "a/evil", "a/y"}


def test_the_destination_must_be_empty(scratch: Scratch, tmp_path: Path) -> None:
    commit = scratch.commit({"a.py": ""})
    (tmp_path / "mine.txt").write_text("keep me")
    with pytest.raises(InputError, match="not empty"):
        checkout(open_repository(scratch.root), commit, tmp_path)
    assert (tmp_path / "mine.txt").exists()


def test_an_unwritable_destination_leaves_nothing(scratch: Scratch, tmp_path: Path) -> None:
    commit = scratch.commit({"a.py": ""})
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="cannot be written") as caught:
        checkout(open_repository(scratch.root), commit, tmp_path / "file" / "copy")
    assert caught.value.exit_code == 1
    assert "writable" in caught.value.fix


def test_a_full_disk_leaves_nothing(scratch: Scratch, tmp_path: Path) -> None:
    commit = scratch.commit({"a/b.py": "", "big.bin": b"x" * 3_000_000})
    destination = tmp_path / "copy"
    resource = pytest.importorskip("resource")
    import signal
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    repository = open_repository(scratch.root)
    entries = repository.entries(commit)
    contents = list(repository.blobs(entries))

    class Limited(type(repository)):  # type: ignore[misc]
        """The same repository; a limit on file sizes stands in for the end of the disk while files are written."""

        def blobs(self, wanted: object) -> object:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
            yield from contents

    try:
        with pytest.raises(Unavailable) as caught:
            checkout(Limited(repository.root), commit, destination)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.where == str(destination)
    assert not destination.exists()
