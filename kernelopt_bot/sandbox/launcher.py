"""Runs before the jailed program, as its own process: sets limits, and with `landlock` settings the jail; then exec.

Standard library only, started by path with the host's interpreter: `launcher.py SETTINGS COMMAND...`, the settings
being JSON: {"rlimits": {"core": 0, ...}, "scratch": path}.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from typing import Any

PR_SET_PDEATHSIG = 1


def set_limits(rlimits: dict[str, int]) -> None:
    for name, value in rlimits.items():
        kind = getattr(resource, f"RLIMIT_{name.upper()}")
        hard = resource.getrlimit(kind)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(kind, (value, value))


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def main(arguments: list[str]) -> None:
    settings: dict[str, Any] = json.loads(arguments[0])
    command = arguments[1:]
    die_with_parent()
    set_limits(settings["rlimits"])
    os.chdir(settings["scratch"])
    try:
        os.execv(command[0], command)
    except OSError as e:
        os.write(2, f"kernelopt launcher: {command[0]} cannot be started: {e}\n".encode())
        os._exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
