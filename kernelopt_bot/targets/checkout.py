"""A clean copy of a commit for the worker: plain files and links that stay inside, written without git's filters."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kernelopt_bot.errors import InputError, Unavailable
from kernelopt_bot.targets.git import Entry, Repository, shown

_LFS = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True)
class Checkout:
    root: Path
    commit: str
    skipped: tuple[tuple[str, str], ...] = ()
    """(path, reason) of what was not written, or was written otherwise than a person's clone has it."""


def checkout(repository: Repository, commit: str, destination: Path) -> Checkout:
    """Write the files of `commit` to `destination`, which must be empty or absent; nothing is left there on failure.

    Left out, with the reason: symbolic links that lead out of the folder, submodules, paths that no file may have.
    Raises InputError (destination not empty, object missing) and Unavailable (disk full, not writable).
    """
    if destination.exists() and any(destination.iterdir()):
        raise InputError("the folder of the checkout is not empty", where=str(destination), fix="give a new folder")
    try:
        destination.mkdir(parents=True, exist_ok=True)
        return Checkout(destination, commit, tuple(_write(repository, commit, destination)))
    except OSError as error:
        shutil.rmtree(destination, ignore_errors=True)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        what = "the disk is full" if full else f"the checkout cannot be written: {error.strerror}"
        raise Unavailable(what, where=str(destination),
                          fix="free some space" if full else "give a writable folder") from error
    except BaseException:
        shutil.rmtree(destination, ignore_errors=True)
        raise


def _write(repository: Repository, commit: str, destination: Path) -> list[tuple[str, str]]:
    skipped: list[tuple[str, str]] = []
    entries: list[Entry] = []
    found = repository.entries(commit)
    paths = {entry.path for entry in found}
    for entry in found:
        reason = _refused(entry)
        # A tree made by hand can hold both a link and files "below" it, which would then be written through the link.
        if not reason and any(str(parent) in paths for parent in PurePosixPath(entry.path).parents):
            reason = "not a path that a repository may hold"
        if reason:
            skipped.append((shown(entry.path), reason))
        else:
            entries.append(entry)
    links: list[tuple[Path, str, str]] = []
    for entry, content in repository.blobs(entries):
        path = destination / entry.path
        if entry.mode == "120000":
            links.append((path, os.fsdecode(content), entry.path))
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(path, flags, 0o755 if entry.mode == "100755" else 0o644), "wb") as file:
            file.write(content)
        if content.startswith(_LFS) and len(content) < 1024:
            skipped.append((entry.path, "kept in Git LFS: only its pointer is here"))
    return skipped + _link(destination, links)


def _refused(entry: Entry) -> str:
    if entry.mode == "160000":
        return "a submodule: its files are not fetched"
    parts = PurePosixPath(entry.path).parts
    if entry.path.startswith("/") or any(p in ("", ".", "..") or p.lower() == ".git" for p in parts):
        return "not a path that a repository may hold"
    if not entry.path.isprintable():
        return "its name is not printable UTF-8"
    return ""


def _link(destination: Path, links: list[tuple[Path, str, str]]) -> list[tuple[str, str]]:
    """Make the links after all files, so that no file is written through one; then take back those that leave."""
    skipped = []
    for path, goal, name in links:
        if not goal or "\0" in goal or os.path.isabs(goal):
            skipped.append((name, "a symbolic link to an absolute path"))
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(goal)
    # A link can lead out by way of another one, so where it leads is asked of the file system; and taking one back
    # changes where others lead, so until none is left.
    inside = os.path.realpath(destination)
    removed = True
    while removed:
        removed = False
        for path, _, name in links:
            if path.is_symlink() and not _within(os.path.realpath(path), inside):
                path.unlink()
                skipped.append((name, "a symbolic link that leads out of the repository"))
                removed = True
    return skipped


def _within(path: str, folder: str) -> bool:
    return os.path.commonpath([path, folder]) == folder
