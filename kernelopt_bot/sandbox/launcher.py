"""Runs before the jailed program, as its own process: sets limits, builds the Landlock jail where asked, then exec.

Standard library only, started by path with the host's interpreter: `launcher.py SETTINGS COMMAND...`, the settings
being JSON:

    {"rlimits": {"core": 0, ...}, "scratch": folder to start in,
     "group": file of a control group to enter, if it can be,
     "orphans": "kill": stay as the parent of all that the program leaves behind, and end it with the program,
     "namespaces": "none" | "root" | "user",
     "landlock": {"read": [...], "list": [...], "write": [...], "devices": [...], "rewrite": [...]},
                                                        "rewrite": existing files only; absent: no Landlock
     "seccomp": BPF program in base 64}

Anything of the jail that cannot be had ends the launcher with code 126: the program is then never started.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import resource
import signal
import struct
import sys
import time
from typing import Any, NoReturn

libc = ctypes.CDLL(None, use_errno=True)

# linux/prctl.h, linux/sched.h, linux/mount.h, linux/landlock.h
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 1, 22, 24, 38, 47
PR_SET_CHILD_SUBREAPER = 36
SECCOMP_MODE_FILTER, PR_CAP_AMBIENT_CLEAR_ALL = 2, 4
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER = 0x00020000, 0x04000000, 0x08000000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 2, 4, 8, 16384, 1 << 18
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
MAKE_CHAR, MAKE_BLOCK = 1 << 6, 1 << 11
ALL_FS = (1 << 16) - 1
FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
READ = EXECUTE | READ_FILE | READ_DIR
WRITE = ALL_FS & ~(MAKE_CHAR | MAKE_BLOCK | IOCTL_DEV)
DEVICE = READ_FILE | WRITE_FILE | READ_DIR | IOCTL_DEV
REWRITE = WRITE_FILE | TRUNCATE
KINDS = {"read": READ, "list": READ_DIR, "write": WRITE, "devices": DEVICE, "rewrite": REWRITE}

MINIMUM_ABI = 3
"""Below, files outside could be truncated."""
SCOPE_ABI = 6
"""From here on, signals to processes outside and abstract sockets are governed."""


def fail(what: str, error: int = 0) -> NoReturn:
    os.write(2, f"kernelopt launcher: {what}{': ' + os.strerror(error) if error else ''}\n".encode())
    os._exit(126)


def check(result: int, what: str) -> int:
    if result < 0:
        fail(what, ctypes.get_errno())
    return result


def set_limits(rlimits: dict[str, int]) -> None:
    for name, value in rlimits.items():
        kind = getattr(resource, f"RLIMIT_{name.upper()}")
        hard = resource.getrlimit(kind)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(kind, (value, value))


def die_with_parent() -> None:
    libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def supervise(child: int) -> NoReturn:
    """Wait for the child, reap what else ends, and end as it ended (a signal as 128 + its number)."""
    null = os.open(os.devnull, os.O_RDWR)
    # The pipes belong to the program: their end must be seen when it ends.
    os.dup2(null, 0)
    os.dup2(null, 1)
    while True:
        with contextlib.suppress(InterruptedError):
            pid, status = os.wait()
            if pid == child:
                kill_orphans()
                code = os.waitstatus_to_exitcode(status)
                os._exit(code if code >= 0 else 128 - code)


def kill_orphans() -> None:
    """End all children, and theirs as they become this process's own."""
    while True:
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{int(entry)}/stat", "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
                if parent == os.getpid():
                    os.kill(int(entry), signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)


def enter_group(entrance: str) -> None:
    # What cannot be entered is not needed: the host's watch counts beside it.
    with contextlib.suppress(OSError), open(entrance, "w") as file:
        file.write("0")


def keep_orphans() -> None:
    check(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "orphans cannot be kept")
    if child := os.fork():
        supervise(child)
    die_with_parent()


def enter_namespaces(kind: str) -> None:
    uid, gid = os.geteuid(), os.getegid()
    flags = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
    if kind == "user":
        flags |= CLONE_NEWUSER
    check(libc.unshare(flags), "namespaces are not to be had")
    if kind == "user":
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    if child := os.fork():
        supervise(child)
    die_with_parent()
    check(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mounts cannot be made private")
    safe = MS_NOSUID | MS_NODEV | MS_NOEXEC
    check(libc.mount(b"proc", b"/proc", b"proc", safe, None), "/proc cannot be mounted")
    if os.path.isdir("/dev/shm"):
        # POSIX semaphores live there; Python's process pools need them.
        check(libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", safe, b"mode=1777,size=1g"), "/dev/shm cannot be mounted")
    if child := os.fork():
        supervise(child)
    die_with_parent()


def drop_capabilities() -> None:
    capability = 0
    while libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1
    libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header, empty = struct.pack("=Ii", 0x20080522, 0), bytes(24)
    check(libc.capset(header, empty), "capabilities cannot be dropped")
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs cannot be set")


def landlock_abi() -> int:
    return int(libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1))


def restrict(paths: dict[str, list[str]], own_processes: bool) -> None:
    abi = landlock_abi()
    if abi < MINIMUM_ABI:
        fail(f"Landlock's version here is {max(abi, 0)}, wanted {MINIMUM_ABI} or later (Linux 6.2)")
    if abi < SCOPE_ABI and not own_processes:
        fail("this kernel's Landlock does not govern signals (Linux 6.12) and there are no namespaces")
    handled = ALL_FS if abi >= 5 else ALL_FS & ~IOCTL_DEV
    attributes = struct.pack("=QQQ", handled, 3, 3)
    size = 24 if abi >= SCOPE_ABI else 16 if abi >= 4 else 8
    ruleset = check(libc.syscall(LANDLOCK_CREATE, attributes, ctypes.c_size_t(size), 0), "no Landlock ruleset")
    for kind, rights in KINDS.items():
        for path in paths[kind]:
            try:
                descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            allowed = rights & handled & (ALL_FS if os.path.isdir(path) else FILE_RIGHTS)
            rule = struct.pack("=Qi", allowed, descriptor)
            check(libc.syscall(LANDLOCK_ADD, ruleset, 1, rule, 0), f"no Landlock rule for {path}")
            os.close(descriptor)
    check(libc.syscall(LANDLOCK_RESTRICT, ruleset, 0), "Landlock cannot be switched on")
    os.close(ruleset)


def filter_calls(program: bytes) -> None:
    buffer = ctypes.create_string_buffer(program, len(program))
    pointer = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, pointer, 0, 0), "the system call filter is refused")


def main(arguments: list[str]) -> None:
    settings: dict[str, Any] = json.loads(arguments[0])
    command = arguments[1:]
    die_with_parent()
    set_limits(settings["rlimits"])
    if settings.get("group"):
        enter_group(settings["group"])
    if settings.get("orphans") == "kill":
        keep_orphans()
    namespaces = settings.get("namespaces", "none")
    if namespaces != "none":
        enter_namespaces(namespaces)
    os.chdir(settings["scratch"])
    if "landlock" in settings:
        drop_capabilities()
        restrict(settings["landlock"], own_processes=namespaces != "none")
        filter_calls(base64.b64decode(settings["seccomp"]))
    try:
        os.execv(command[0], command)
    except OSError as e:
        os.write(2, f"kernelopt launcher: {command[0]} cannot be started: {e}\n".encode())
        os._exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
