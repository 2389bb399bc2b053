"""What a jail is: it turns a command that must not be trusted into one that can be started on the host.

Paths inside are the paths outside. A jail lets the process read the system's programs, the interpreter and `readable`,
write `scratch`, use the named device nodes, and nothing else; `ProcessJail` is the exception, by choice only.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kernelopt_bot.sandbox import launcher
from kernelopt_bot.sandbox.limits import DISK_MOST, NO_LIMITS, Limits


@dataclass(frozen=True)
class Box:
    """One process to jail."""

    python: str
    """Absolute path of the interpreter."""
    arguments: tuple[str, ...]
    """The interpreter's arguments."""
    environment: Mapping[str, str]
    """The whole environment inside."""
    scratch: Path
    """The only place it may write."""
    readable: tuple[Path, ...] = ()
    """Folders it may read besides the system and the interpreter."""
    devices: tuple[Path, ...] = ()
    """Device nodes it may use; none without a GPU."""
    limits: Limits = NO_LIMITS
    group: str = ""
    """File of a control group to enter (`cgroup.Group.entrance`); '' for none."""


@dataclass(frozen=True)
class Launch:
    """What to start on the host. `finish` closes descriptors and removes what is left; called once, at the end."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    pass_fds: tuple[int, ...] = ()
    finish: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class ProbeResult:
    jail: str
    works: bool
    reason: str
    """Why it works or not, one line."""
    fix: str = ""
    """How to get it."""
    seconds: float = 0.0
    weaker: tuple[str, ...] = field(default=())
    """What this jail does not separate on this machine."""


class Jail(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def connects(self) -> bool:
        """Whether a process inside can connect to another one inside."""

    def missing(self) -> tuple[str, str] | None:
        """What the jail needs and this machine lacks: (reason, fix), found without starting anything inside."""

    def wrap(self, box: Box) -> Launch: ...


def launch_through(settings: dict[str, Any], command: tuple[str, ...]) -> tuple[str, ...]:
    """The command behind `launcher.py`, which sets limits (and for Landlock the jail) and then becomes the command.

    It runs in this process's interpreter, isolated and without site packages.
    """
    return (sys.executable, "-I", "-S", "-B", launcher.__file__, json.dumps(settings), *command)


def limits_of(box: Box) -> dict[str, Any]:
    fsize = box.limits.disk_bytes or DISK_MOST
    return {"rlimits": {"core": 0, "nofile": 8192, "fsize": fsize}, "scratch": str(box.scratch), "group": box.group}


class ProcessJail:
    """No isolation but a process of its own, a cleared environment and limits: only where it is chosen by name."""

    name = "process"
    connects = True

    def missing(self) -> tuple[str, str] | None:
        return None

    def wrap(self, box: Box) -> Launch:
        settings = limits_of(box) | {"orphans": "kill"}
        return Launch(launch_through(settings, (box.python, *box.arguments)), box.environment)


def close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)
