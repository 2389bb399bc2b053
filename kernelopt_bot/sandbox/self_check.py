"""Runs inside a jail, by path or as text: tries what must not work and prints what did, as one line of JSON.

Standard library only. Its argument is JSON: {"scratch", "canary_file", "canary_folder", "port", "pid", "variable",
"cuda": bool}. In "canary_folder" a socket named `SOCKET` listens.
The answer: {"python", "breaches": [...], "cuda": null or cuInit's code, "cuda_error": text}.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

SOCKET = "socket"


def succeeds(action: Callable[[], Any]) -> bool:
    try:
        action()
    except (OSError, ValueError):
        return False
    return True


def write(path: str) -> None:
    with open(path, "w") as file:
        file.write("x")


def read(path: str) -> None:
    with open(path, "rb") as file:
        file.read(1)


@contextlib.contextmanager
def short(folder: str) -> Iterator[str]:
    """A name of the socket in `folder` that fits an address, which holds 108 bytes."""
    descriptor = os.open(folder, os.O_PATH)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)


def reach(folder: str) -> None:
    with short(folder) as address, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.connect(address)


def breaches(wanted: dict[str, Any]) -> list[str]:
    attempts: dict[str, Callable[[], Any]] = {
        "reads a file outside": lambda: read(wanted["canary_file"]),
        "writes outside scratch": lambda: write(os.path.join(wanted["canary_folder"], "breach")),
        "reaches the host's network": lambda: socket.create_connection(("127.0.0.1", wanted["port"]), 2).close(),
        "reaches the host's services": lambda: reach(wanted["canary_folder"]),
        # It names a program that the kernel starts as root; opened, not written.
        "can change the kernel's settings": lambda: os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)),
        "reads the host process's environment": lambda: read(f"/proc/{wanted['pid']}/environ"),
    }
    found = [what for what, action in attempts.items() if succeeds(action)]
    if wanted["variable"] in os.environ:
        found.append("sees the host's environment")
    return found


def cuda() -> tuple[int | None, str]:
    try:
        return int(ctypes.CDLL("libcuda.so.1").cuInit(0)), ""
    except OSError as e:
        return None, str(e)


def main(wanted: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {"python": sys.version.split()[0], "cuda": None, "cuda_error": ""}
    answer["breaches"] = breaches(wanted)
    answer["scratch"] = succeeds(lambda: write(os.path.join(wanted["scratch"], "self-check")))
    if wanted["cuda"]:
        answer["cuda"], answer["cuda_error"] = cuda()
    return answer


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
