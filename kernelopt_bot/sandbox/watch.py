"""The watch over one worker: it kills the whole process tree once a limit is passed.

It looks four times a second; where that takes long, less often, so that it takes at most a fiftieth of one processor.
Between two looks a process can take more than it may, by what it can write in that time. The sum of each look is an
upper bound and cheap; only where that is over the limit is the exact one taken (proportional shares of pages, and files
in memory that nobody maps), for which the kernel walks the page tables. Not counted: what drivers pin for themselves.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import threading
import time
from pathlib import Path

from kernelopt_bot.sandbox.limits import Limits, kill_tree, meminfo, tree

INTERVAL_S = 0.25
MOST_OF_A_PROCESSOR = 1 / 50
_STATUS = re.compile(rb"^(RssAnon|RssShmem|VmSwap|Threads):\s+(\d+)", re.MULTILINE)
_ROLLUP = re.compile(rb"^(Pss_Anon|Pss_Shmem|SwapPss):\s+(\d+)", re.MULTILINE)


def status(number: int) -> tuple[int, int]:
    """(bytes of memory that is no file's, threads) of one process; (0, 0) if it is gone."""
    try:
        with open(f"/proc/{number}/status", "rb") as file:
            found = {name: int(value) for name, value in _STATUS.findall(file.read())}
    except OSError:
        return 0, 0
    threads = found.pop(b"Threads", 1)
    return sum(found.values()) << 10, threads


def memory_exactly(numbers: list[int]) -> int:
    """Bytes of the processes together: pages that several map are counted once, and files in memory by their size."""
    total = 0
    files: dict[tuple[int, int], int] = {}
    for number in numbers:
        try:
            with open(f"/proc/{number}/smaps_rollup", "rb") as file:
                shares = {name: int(value) << 10 for name, value in _ROLLUP.findall(file.read())}
        except OSError:
            total += status(number)[0]
            continue
        shared = shares.pop(b"Pss_Shmem", 0)
        total += sum(shares.values())
        own = _memory_files(number)
        # A file in memory that is also mapped must not be counted twice.
        total += max(0, shared - sum(own.values()))
        files |= own
    return total + sum(files.values())


def _memory_files(number: int) -> dict[tuple[int, int], int]:
    """(device, inode) -> bytes of the open files that have no name: `memfd_create`'s, and deleted ones."""
    found: dict[tuple[int, int], int] = {}
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{number}/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(entry.path).startswith("/memfd:"):
                    facts = os.stat(entry.path)
                    found[facts.st_dev, facts.st_ino] = facts.st_blocks * 512
    return found


def disk_bytes(folder: Path) -> int:
    """What the regular files of a folder take on the disk; links are not followed, hard links counted once."""
    seen: dict[tuple[int, int], int] = {}
    waiting = [str(folder)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    facts = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(facts.st_mode):
                        waiting.append(entry.path)
                    else:
                        seen[facts.st_dev, facts.st_ino] = facts.st_blocks * 512
    return sum(seen.values())


class Watch:
    """Kills the tree of `root` once it is over one of the limits; `exceeded` then says which, in words."""

    def __init__(self, root: int, limits: Limits, scratch: Path) -> None:
        self.exceeded = ""
        self._root, self._limits, self._scratch, self._done = root, limits, scratch, threading.Event()
        self._free = self._free_bytes()
        self._unnamed = meminfo("Shmem")
        self._thread = threading.Thread(target=self._run, daemon=True, name="kernelopt-watch")
        self._thread.start()

    def _run(self) -> None:
        pause = INTERVAL_S
        while not self._done.wait(pause):
            begin = time.thread_time()
            self.exceeded = self._look()
            if self.exceeded:
                kill_tree(self._root)
                return
            pause = max(INTERVAL_S, (time.thread_time() - begin) / MOST_OF_A_PROCESSOR)

    def _look(self) -> str:
        limits, numbers = self._limits, tree(self._root)
        each = [status(number) for number in numbers]
        tasks = sum(threads for _, threads in each)
        if 0 < limits.tasks < tasks:
            return f"it had {tasks} processes and threads, more than {limits.tasks}"
        # What is in memory files shows in no process that does not map them, but in the machine's sum.
        most = sum(size for size, _ in each) + max(0, meminfo("Shmem") - self._unnamed)
        if 0 < limits.memory_bytes < most and memory_exactly(numbers) > limits.memory_bytes:
            return f"it used more than {limits.memory_bytes} bytes of memory"
        if 0 < limits.disk_bytes < self._free - self._free_bytes() and disk_bytes(self._scratch) > limits.disk_bytes:
            return f"it wrote more than {limits.disk_bytes} bytes of files"
        return ""

    def _free_bytes(self) -> int:
        try:
            disk = os.statvfs(self._scratch)
        except OSError:
            return 0
        return disk.f_bavail * disk.f_frsize

    def stop(self) -> None:
        self._done.set()
        self._thread.join(2.0)
