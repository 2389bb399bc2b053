"""A control group (version 2) of its own for a worker, where this process may make one.

That is where systemd delegates a subtree to the user, or to root. The kernel then keeps the limits of memory and tasks
without a gap, and ends all members at once. Nothing depends on it: the watch counts beside it.

Source: the kernel's Documentation/admin-guide/cgroup-v2.rst.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from pathlib import Path

from kernelopt_bot.sandbox.limits import Limits

CONTROLLERS = frozenset({"memory", "pids"})


def delegated(proc: Path = Path("/proc/self")) -> Path | None:
    """The nearest group above this process in which one with `CONTROLLERS` can be made and entered; None without."""
    try:
        mounts, own = (proc / "mountinfo").read_text(), (proc / "cgroup").read_text()
    except OSError:
        return None
    mounted = re.search(r"^\S+ \S+ \S+ (/\S*) (\S+) .* - cgroup2 ", mounts, re.MULTILINE)
    path = re.search(r"^0::(/.*)$", own, re.MULTILINE)
    if mounted is None or path is None:
        return None
    top, at = Path(mounted.group(2)), path.group(1)
    if mounted.group(1) != "/":
        at = "/" + os.path.relpath(at, mounted.group(1))
    here = top / at.lstrip("/")
    for group in (here, *here.parents):
        if not group.is_relative_to(top) or ".." in group.parts:
            return None
        with contextlib.suppress(OSError):
            # To move a process, both groups' common ancestor must be ours to write.
            controllers = set((group / "cgroup.subtree_control").read_text().split())
            if controllers >= CONTROLLERS and all(os.access(p, os.W_OK) for p in (group, group / "cgroup.procs")):
                return group
    return None


class Group:
    """One worker's group. `make` gives None where it cannot be had."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def make(cls, limits: Limits, parent: Path | None) -> Group | None:
        if parent is None:
            return None
        group = cls(parent / f"kernelopt-{secrets.token_hex(8)}")
        try:
            group.folder.mkdir()
            for name, value in (("memory.max", limits.memory_bytes), ("pids.max", limits.tasks)):
                if value:
                    (group.folder / name).write_text(str(value))
            (group.folder / "memory.oom.group").write_text("1")
        except OSError:
            group.end()
            return None
        with contextlib.suppress(OSError):
            (group.folder / "memory.swap.max").write_text("0")
        return group

    @property
    def entrance(self) -> str:
        """The file to which a process writes 0 to enter."""
        return str(self.folder / "cgroup.procs")

    def exceeded(self) -> str:
        """What the kernel ended or refused, in words; '' if nothing."""
        for file, event, words in (("memory.events", "oom_kill", "it used more memory than it may"),
                                   ("pids.events", "max", "it had more processes and threads than it may")):
            with contextlib.suppress(OSError):
                found = re.search(rf"^{event} (\d+)$", (self.folder / file).read_text(), re.MULTILINE)
                if found and int(found.group(1)):
                    return words
        return ""

    def end(self) -> None:
        """Kill all members and remove the group."""
        with contextlib.suppress(OSError):
            (self.folder / "cgroup.kill").write_text("1")
        for _ in range(100):
            try:
                self.folder.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.01)
            else:
                return
