"""The bubblewrap jail: namespaces of its own for users, processes, IPC, network, names and mounts.

Inside there is a read-only system, the interpreter, what was given to read, a scratch folder and a minimal /dev.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from kernelopt_bot.sandbox import binds, seccomp
from kernelopt_bot.sandbox.jail import Box, Launch, close_all, launch_through, limits_of

UNPRIVILEGED = "65534"
PRIVATE_TMP = 256 << 20
"""Bytes of the private /tmp, which is memory."""
PRIVATE_SHM = 1 << 30
"""Bytes of the private /dev/shm: no more than what Docker's has."""


class BubblewrapJail:
    """`user_namespace=False` needs root: where CUDA does not start in a user namespace, root without capabilities."""

    name = "bubblewrap"
    connects = True

    def __init__(self, *, user_namespace: bool = True) -> None:
        self._user_namespace = user_namespace

    def missing(self) -> tuple[str, str] | None:
        if shutil.which("bwrap") is None:
            return "there is no bwrap", "install bubblewrap (Debian, Ubuntu: apt-get install bubblewrap)"
        if not self._user_namespace and os.geteuid() != 0:
            return "only root can do without a user namespace", "allow user namespaces"
        return None

    def wrap(self, box: Box) -> Launch:
        descriptor = os.memfd_create("seccomp")
        os.write(descriptor, seccomp.program(sockets="any", metadata=True, sessions=True))
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.set_inheritable(descriptor, True)
        command = [shutil.which("bwrap") or "bwrap", "--die-with-parent", "--new-session", "--seccomp", str(descriptor),
                   "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try",
                   "--hostname", "kernelopt", "--cap-drop", "ALL", "--clearenv"]  # fmt: skip
        if self._user_namespace:
            command += ["--unshare-user", "--uid", UNPRIVILEGED, "--gid", UNPRIVILEGED]
        for name, value in box.environment.items():
            command += ["--setenv", name, value]
        command += [*_system(), "--proc", "/proc", *_kernel_settings(), "--dev", "/dev"]
        command += ["--size", str(PRIVATE_SHM), "--perms", "1777", "--tmpfs", "/dev/shm"]
        command += ["--size", str(PRIVATE_TMP), "--tmpfs", "/tmp"]
        command += _mounts(box)
        for node in box.devices:
            # A read-only bind of a node gives EACCES.
            command += ["--dev-bind", str(node), str(node)]
        # What is not a mount of its own lies in the root, a private tmpfs as /dev is.
        command += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", str(box.scratch)]
        command += ["--", box.python, *box.arguments]
        return Launch(
            launch_through(limits_of(box), tuple(command)), {"PATH": os.defpath}, (descriptor,),
            lambda: close_all([descriptor]),
        )


def _system() -> list[str]:
    result: list[str] = []
    for path in binds.existing(binds.SYSTEM):
        if path.is_symlink():
            result += ["--symlink", os.readlink(path), str(path)]
        else:
            result += ["--ro-bind", str(path), str(path)]
    return result


def _kernel_settings() -> list[str]:
    """Of /proc, what belongs to the machine is made read-only, what belongs to a process is not (libcuda names threads
    there). Where the bot runs as root, so does what is inside, which needs no capability to write `/proc/sys`; bwrap
    itself covers it only where the folder, and not what lies in it, can be written."""
    result: list[str] = []
    for entry in sorted(Path("/proc").iterdir()):
        if not entry.name.isdigit() and not entry.is_symlink():
            mode = entry.stat().st_mode
            if stat.S_ISDIR(mode) or mode & 0o222:
                result += ["--ro-bind-try", str(entry), str(entry)]
    return result


def _mounts(box: Box) -> list[str]:
    """Parents first, so that a deeper mount shows through a higher one, whichever of the two may be written."""
    mounts: list[tuple[Path, list[str]]] = [(box.scratch, ["--bind", str(box.scratch), str(box.scratch)])]
    for path in binds.readable(box.python, box.readable, gpu=bool(box.devices)):
        mounts.append((path, ["--ro-bind", str(path), str(path)]))
    for folder in box.readable:
        for secret in binds.hidden(folder):
            if secret.is_dir():
                mounts.append((secret, ["--tmpfs", str(secret), "--remount-ro", str(secret)]))
            elif not secret.is_symlink():
                mounts.append((secret, ["--ro-bind", "/dev/null", str(secret)]))
    return [part for _, parts in sorted(mounts, key=lambda m: (len(m[0].parts), m[0])) for part in parts]
