"""One run a GPU: an exclusive file lock by the GPU's UUID, shared by every user of the machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from kernelopt_bot.errors import Unavailable

FOLDERS = (Path("/run/lock"), Path("/var/lock"))
INTERVAL_S = 0.2


def lock_folder() -> Path:
    """A folder that all users share: the system's for locks where it may be written, else that for temporary files."""
    for folder in FOLDERS:
        if folder.is_dir() and os.access(folder, os.W_OK):
            return folder
    return Path(tempfile.gettempdir())


@contextlib.contextmanager
def gpu_lock(
    uuid: str,
    *,
    timeout: float,
    folder: Path | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    waiting: Callable[[str], None] | None = None,
) -> Iterator[None]:
    """Hold the lock of one GPU. Waits up to `timeout` seconds; `waiting` is told once by whom it is held.

    The kernel lets go of it when this process ends, however it ends. Raises Unavailable, naming the holder.
    """
    path = (folder or lock_folder()) / f"kernelopt-{re.sub(r'[^A-Za-z0-9-]', '_', uuid)}.lock"
    descriptor = _open(path)
    try:
        deadline, told = clock() + timeout, False
        while not _try(descriptor):
            holder = _holder(descriptor)
            if clock() >= deadline:
                raise Unavailable(
                    f"GPU {uuid} is in use by another KernelOPT run{holder}", where=str(path),
                    fix="wait for that run, end it, or choose another GPU",
                )
            if waiting is not None and not told:
                waiting(f"waiting for GPU {uuid}, in use by another KernelOPT run{holder}")
                told = True
            sleep(INTERVAL_S)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        # The file stays: removing it would let two runs hold locks on two files of one name.
        os.close(descriptor)


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        try:
            # Without O_CREAT first: the kernel may forbid that on another user's file in a shared folder.
            return os.open(path, flags)
        except FileNotFoundError:
            descriptor = os.open(path, flags | os.O_CREAT, 0o666)
            os.fchmod(descriptor, 0o666)
            return descriptor
    except OSError as e:
        raise Unavailable(f"the GPU's lock file cannot be opened: {e.strerror}", where=str(path),
                          fix="make the folder writable for this user, or remove the file") from e


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(descriptor: int) -> str:
    text = os.pread(descriptor, 32, 0).strip()
    return f" (process {int(text)})" if text.isdigit() else ""
