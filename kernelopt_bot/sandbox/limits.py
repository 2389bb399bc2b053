"""The memory limit of a worker: a watch over its process tree.

RLIMIT_AS is no use, since CUDA reserves far more address space than it uses. Resident memory is summed from /proc.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
INTERVAL_S = 0.2


def children() -> dict[int, list[int]]:
    """Parent's process number -> its children's, of the whole machine as /proc shows it."""
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # The name in parentheses may hold spaces and parentheses itself.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                found.setdefault(int(fields[1]), []).append(int(entry.name))
    return found


def tree(root: int) -> list[int]:
    """The process and all its descendants."""
    by_parent, result = children(), [root]
    for number in result:
        result.extend(by_parent.get(number, ()))
    return result


def resident_bytes(root: int) -> int:
    """Resident memory of the process and its descendants, less the pages shared with files."""
    total = 0
    for number in tree(root):
        with contextlib.suppress(OSError, ValueError, IndexError):
            _, resident, shared = (int(x) for x in Path(f"/proc/{number}/statm").read_text().split()[:3])
            total += max(0, resident - shared) * PAGE
    return total


def kill_tree(root: int) -> None:
    """SIGKILL to the group and to every descendant, also those that left the group."""
    numbers = tree(root)
    with contextlib.suppress(OSError):
        os.killpg(root, signal.SIGKILL)
    for number in numbers:
        with contextlib.suppress(OSError):
            os.kill(number, signal.SIGKILL)


class MemoryWatch:
    """Kills the tree of `root` once it holds more than `limit` bytes."""

    def __init__(self, root: int, limit: int) -> None:
        self.exceeded = False
        self._root, self._limit, self._done = root, limit, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="kernelopt-memory")
        self._thread.start()

    def _run(self) -> None:
        while not self._done.wait(INTERVAL_S):
            if resident_bytes(self._root) > self._limit:
                self.exceeded = True
                kill_tree(self._root)
                return

    def stop(self) -> None:
        self._done.set()
        self._thread.join(2.0)
