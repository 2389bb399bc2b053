"""The Landlock jail: rules over files, signals and abstract sockets that the kernel keeps, and a system call filter.

Needs no program and no privilege. With `namespaces` the launcher also takes processes, IPC, network and mounts of its
own, by root or through a user namespace. Without them the filter also forbids leaving the process group.
What it does not hide: the names of files (not their content), and the command lines of other processes, where there are
no namespaces.

With device nodes of a GPU it is opened as far as libcuda needs (on an H200, driver 580, cuInit answers 304 without
either; it needs no connection and no other family):
  - sockets of the family AF_UNIX may be made and bound, never connected. Landlock keeps files of sockets out of all but
    scratch; without a network of its own, a name in the abstract namespace can be taken that nobody has taken yet;
  - `/proc/self`, the process's own, may be written: names of threads lie there. Its children's may not. Of what else
    lies there, a process may change what it could change about itself anyway; `/proc/self/net` is the one exception,
    where root without capabilities could change what some netfilter modules show, if there is no network of its own.
"""

from __future__ import annotations

import base64
import os
import platform
from pathlib import Path

from kernelopt_bot.sandbox import binds, launcher, seccomp
from kernelopt_bot.sandbox.jail import Box, Launch, launch_through, limits_of

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


class LandlockJail:
    name = "landlock"
    connects = False

    def __init__(self, *, namespaces: bool = True) -> None:
        self.namespaces = namespaces

    def missing(self) -> tuple[str, str] | None:
        abi = launcher.landlock_abi()
        if platform.machine() not in seccomp.ARCHITECTURES:
            return f"no system call filter for {platform.machine()}", "use docker"
        if abi < launcher.MINIMUM_ABI:
            return (f"the kernel's Landlock is version {max(abi, 0)}, wanted {launcher.MINIMUM_ABI}",
                    "a kernel of 6.2 or later with landlock in its `lsm=` list")
        if not self.namespaces and abi < launcher.SCOPE_ABI:
            return (f"the kernel's Landlock (version {abi}) does not govern signals",
                    "a kernel of 6.12 or later, or allow user namespaces")
        return None

    def wrap(self, box: Box) -> Launch:
        kind = "none" if not self.namespaces else "root" if os.geteuid() == 0 else "user"
        read: list[Path] = binds.existing(binds.SYSTEM)
        listed: list[Path] = []
        for path in binds.readable(box.python, box.readable, gpu=bool(box.devices)):
            secret = binds.hidden(path) if path in box.readable else []
            if secret:
                # A rule holds for all that lies beneath: what is hidden can only be left out.
                listed.append(path)
                read += [child for child in path.iterdir() if child not in secret]
            else:
                read.append(path)
        write = [box.scratch, *([Path("/dev/shm")] if kind != "none" else [])]
        settings = limits_of(box) | {
            "namespaces": kind,
            "landlock": {
                "read": [str(p) for p in (*read, Path("/proc"))],
                "list": [str(p) for p in listed],
                "write": [str(p) for p in write],
                "devices": [*DEVICES, *(str(node) for node in box.devices)],
                "rewrite": ["/proc/self"] if box.devices else [],
            },
            "seccomp": base64.b64encode(
                # Landlock does not govern sockets that are files (the Docker daemon's): none can be connected.
                seccomp.program(sockets="unix" if box.devices else "none", metadata=False, sessions=kind != "none")
            ).decode(),
        }
        environment = dict(box.environment)
        if kind == "none" or box.devices:
            # Inductor's pool of compile processes needs semaphores in /dev/shm, which belongs to everybody here; and
            # with a GPU it has children that look for it, which under Landlock never answer (seen on an H200).
            environment.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
        return Launch(launch_through(settings, (box.python, *box.arguments)), environment)
