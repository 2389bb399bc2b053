"""What a worker may use of the machine, and the process trees that this is counted over.

RLIMIT_AS is no use for memory, since CUDA reserves far more address space than it uses; RLIMIT_NPROC counts all that a
user runs and does not hold for root. So the kernel counts where a control group can be made (`cgroup.py`; Docker has
its own), and a watch over the process tree (`watch.py`) counts everywhere.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from dataclasses import dataclass
from pathlib import Path

MEMORY_SHARE = 0.9
"""Of the memory that is available when the worker starts; the rest keeps the host alive."""
MEMORY_LEAST = 1 << 30
DISK_SHARE = 0.9
DISK_MOST = 64 << 30
DISK_LEAST = 1 << 30
"""A disk with less than this free is its own limit: a worker then gets the system's own error."""
TASKS = 4096
TASKS_FOR_EACH_CPU = 64
"""OpenMP and Inductor's compile processes start threads by the number of processors."""


@dataclass(frozen=True)
class Limits:
    """Sizes in bytes; 0 is no limit."""

    memory_bytes: int = 0
    """Host memory of the process and its descendants, shared memory and memory files included."""
    disk_bytes: int = 0
    """What lies in the scratch folder, and the largest file."""
    tasks: int = 0
    """Processes and threads."""


NO_LIMITS = Limits()


def machine_limits(scratch: Path) -> Limits:
    """What one worker with this (existing) scratch folder may use here at most."""
    disk = os.statvfs(scratch)
    free = disk.f_bavail * disk.f_frsize
    return Limits(
        memory_bytes=max(MEMORY_LEAST, int(MEMORY_SHARE * available_memory())),
        disk_bytes=min(DISK_MOST, int(DISK_SHARE * free)) if free >= DISK_LEAST else 0,
        tasks=TASKS + TASKS_FOR_EACH_CPU * (os.cpu_count() or 1),
    )


def meminfo(name: str, text: str = "") -> int:
    """A line of /proc/meminfo in bytes; 0 if it is not there."""
    found = re.search(rf"^{name}:\s+(\d+) kB", text or Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(found.group(1)) << 10 if found else 0


def available_memory() -> int:
    """Bytes that can be had without swapping: of the machine, or of this process's control group if that has less."""
    found = meminfo("MemAvailable") or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            folder, limit, used = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"
        elif not controllers:
            folder, limit, used = Path("/sys/fs/cgroup"), "memory.max", "memory.current"
        else:
            continue
        # Inside a container the path may be the host's, while the container's own group is mounted as the root.
        for place in (folder / path.lstrip("/"), folder):
            with contextlib.suppress(ValueError):
                found = min(found, max(0, int(_text(place / limit)) - int(_text(place / used))))
                break
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def children() -> dict[int, list[int]]:
    """Parent's process number -> its children's, of the whole machine as /proc shows it."""
    found: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{entry}/stat", "rb") as file:
                # The name in parentheses may hold spaces and parentheses itself.
                fields = file.read().rpartition(b")")[2].split()
                found.setdefault(int(fields[1]), []).append(int(entry))
    return found


def tree(root: int) -> list[int]:
    """The process and all its descendants."""
    by_parent, result = children(), [root]
    for number in result:
        result.extend(by_parent.get(number, ()))
    return result


def kill_tree(root: int) -> None:
    """SIGKILL to the group and to every descendant, also those that left the group or are being made meanwhile."""
    for _ in range(50):
        numbers = tree(root)
        with contextlib.suppress(OSError):
            os.killpg(root, signal.SIGKILL)
        for number in numbers:
            with contextlib.suppress(OSError):
                os.kill(number, signal.SIGKILL)
        if len(numbers) == 1:
            return
        time.sleep(0.01)
