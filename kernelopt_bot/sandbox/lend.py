"""Tensors that one worker saved, handed to another by copying: no two workers share a writable file.

Both folders belong to processes that may be running and are not trusted: names are resolved without following links,
and what is looked at is the very file that is read or written.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from kernelopt_bot.errors import Unavailable
from kernelopt_bot.sandbox.client import WorkerLied

DEEPEST = 64
"""Levels of nested values."""
CHUNK = 1 << 20
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def lend(value: Any, source: Path, destination: Path, *, _depth: int = 0) -> Any:
    """`value` with every `TensorRef` in it copied from one scratch folder to another, under the same name.

    Raises WorkerLied where a name leaves its folder or is a link, where the file is not a regular one of the size that
    the worker says, or where the value is nested too deep; Unavailable if the copy cannot be written.
    """
    if _depth > DEEPEST:
        raise WorkerLied("the worker's answer is nested too deep")
    if isinstance(value, Mapping):
        if "file" in value and "storage_bytes" in value:
            _copy(value["file"], value["storage_bytes"], source, destination)
        return {k: lend(v, source, destination, _depth=_depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [lend(v, source, destination, _depth=_depth + 1) for v in value]
    return value


def _copy(name: object, size: object, source: Path, destination: Path) -> None:
    parts = PurePosixPath(name).parts if isinstance(name, str) else ()
    if not parts or any(p in ("/", "..") or "\0" in p for p in parts):
        raise WorkerLied(f"the worker names a file outside its folder: {name!r}")
    with _folder(source, parts[:-1], name) as folder, _opened(folder, parts[-1], name) as old:
        facts = os.fstat(old)
        if not stat.S_ISREG(facts.st_mode) or isinstance(size, bool) or facts.st_size != size:
            raise WorkerLied(f"the worker's file {name!r} does not have the {size!r} bytes that it says")
        try:
            with _folder(destination, parts[:-1], name, make=True) as place:
                _place(old, facts, place, parts[-1])
        except OSError as e:
            raise Unavailable(f"recorded tensors could not be copied: {e.strerror}", where=str(destination),
                              fix="free disk space; nothing verified was lost", kind="disk_full") from e


def _place(old: int, facts: os.stat_result, folder: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        new = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISREG(new.st_mode) and new.st_size == facts.st_size and new.st_mtime_ns >= facts.st_mtime_ns:
            return
        os.unlink(name, dir_fd=folder)
    # Made anew: whatever bears the name meanwhile is not written through.
    target = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=folder)
    with os.fdopen(target, "wb") as out, os.fdopen(os.dup(old), "rb") as file:
        left = facts.st_size
        # The file may grow while it is read.
        while left and (chunk := file.read(min(left, CHUNK))):
            left -= len(chunk)
            out.write(chunk)


@contextlib.contextmanager
def _folder(root: Path, parts: tuple[str, ...], name: object, *, make: bool = False) -> Iterator[int]:
    """A descriptor of the folder below `root`, no part of which is a link."""
    at = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=at)
            try:
                deeper = os.open(part, _FOLDER, dir_fd=at)
            except OSError as e:
                raise _refused(e, name) from e
            os.close(at)
            at = deeper
        yield at
    finally:
        os.close(at)


@contextlib.contextmanager
def _opened(folder: int, part: str, name: object) -> Iterator[int]:
    try:
        # Not blocking: the name may be a pipe's.
        file = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as e:
        raise _refused(e, name) from e
    try:
        yield file
    finally:
        os.close(file)


def _refused(error: OSError, name: object) -> WorkerLied:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return WorkerLied(f"the worker names a file outside its folder: {name!r} is a link")
    return WorkerLied(f"the worker's file {name!r} cannot be read: {error.strerror}")
