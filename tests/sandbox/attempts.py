"""Runs inside a jail: tries to get out in every way we know and prints what worked, as one line of JSON.

Standard library only. Started by path; its argument is JSON with what the test set up outside. The test also looks
from outside at what was to stay as it is: that, and not this script's word, decides about writes.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import platform
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

SECRET = b"kernelopt-test-secret"
libc = ctypes.CDLL(None, use_errno=True)
SELF = ("unshare", "mount", "chroot", "write the interpreter", "device nodes that were not given",
        "folders to write into")
"""What changes the attacker or the machine where it works: not for the control."""
written: list[str] = []
"""Folders outside scratch in which a file could be made."""
X86 = platform.machine() == "x86_64"


def read(path: str) -> bool:
    with open(path, "rb") as file:
        return SECRET in file.read(1 << 16)


def append(path: str) -> bool:
    with open(path, "ab") as file:
        file.write(b"BREACH=1\n")
    return True


def done(action: Callable[[], Any]) -> bool:
    action()
    return True


def system_call(x86: int, arm: int, *arguments: Any) -> bool:
    result = libc.syscall(ctypes.c_long(x86 if X86 else arm), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return True


def ptrace(pid: int) -> bool:
    if libc.ptrace(0x4206, pid, None, None) < 0:  # PTRACE_SEIZE
        raise OSError(ctypes.get_errno(), "refused")
    libc.ptrace(17, pid, None, None)
    return True


def peer_memory(pid: int) -> bool:
    with open(f"/proc/{pid}/mem", "rb") as file, open(f"/proc/{pid}/maps") as maps:
        file.seek(int(maps.readline().split("-")[0], 16))
        return len(file.read(16)) == 16


def connect(family: int, kind: int, address: Any) -> bool:
    with socket.socket(family, kind) as peer:
        peer.settimeout(2)
        peer.connect(address)
        peer.send(b"breach")
    return True


def datagram(address: str, how: str) -> bool:
    """To a datagram socket that is a file, from a new socket or from one of a connected pair."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) if "pair" in how else None
    with pair[0] if pair else socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        if "connect" in how:
            sender.connect(address)
            sender.send(b"breach")
        elif "sendmsg" in how:
            sender.sendmsg([b"breach"], [], 0, address)
        else:
            sender.sendto(b"breach", address)
    return True


def make_killable(pid: int) -> bool:
    with open(f"/proc/{pid}/oom_score_adj", "w") as file:
        file.write("1000")
    return True


def through_link(scratch: str, target: str) -> bool:
    link = os.path.join(scratch, "way-out")
    os.symlink(target, link)
    return append(os.path.join(link, "linked"))


def inherited() -> bool:
    found = False
    for descriptor in range(3, 64):
        try:
            found = found or SECRET in os.pread(descriptor, 4096, 0)
        except OSError:
            continue
    return found


def kernel_settings() -> bool:
    """What root may write without any capability: the first two name programs that the kernel starts as root."""
    for name in ("sys/kernel/core_pattern", "sys/kernel/modprobe", "sysrq-trigger", "irq/default_smp_affinity"):
        try:
            os.close(os.open(f"/proc/{name}", os.O_WRONLY))
            return True
        except OSError:
            continue
    return False


def any_environment() -> bool:
    """Of every process that can be seen: the bot's own, the runner's."""
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            if read(f"/proc/{number}/environ"):
                return True
        except OSError:
            continue
    return False


def any_read(paths: list[str]) -> bool:
    for path in paths:
        try:
            if read(path):
                return True
        except OSError:
            continue
    return False


def any_append(paths: list[str]) -> bool:
    for path in paths:
        try:
            return append(path)
        except OSError:
            continue
    return False


def shared_segment(key: int) -> bool:
    """The host's System V shared memory, by its key."""
    libc.shmat.restype = ctypes.c_void_p
    identifier = libc.shmget(key, 0, 0)
    if identifier < 0:
        raise OSError(ctypes.get_errno(), "refused")
    address = libc.shmat(identifier, None, 0o10000)
    return SECRET in ctypes.string_at(address, 64)


def message_queue(key: int) -> bool:
    if libc.msgget(key, 0) < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return True


def semaphores(key: int) -> bool:
    if libc.semget(key, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return True


def other_nodes(given: list[str]) -> bool:
    """Every device of the host but harmless ones and those that were given."""
    for path in given:
        try:
            os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY))
            return True
        except OSError:
            continue
    return False


def writable_folders(allowed: list[str]) -> bool:
    """Somewhere that is not scratch or memory of the jail's own; /proc is looked at by itself."""
    written.clear()
    for folder, inner, _ in os.walk("/"):
        if folder == "/":
            inner[:] = [name for name in inner if name != "proc"]
        if folder in allowed:
            inner.clear()
            continue
        path = os.path.join(folder, "kernelopt-breach")
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        except OSError:
            continue
        os.unlink(path)
        written.append(folder)
    return bool(written)


def udp(port: int) -> bool:
    """What nobody receives is said only to the next one that is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", port))
        for _ in range(3):
            sender.send(b"breach")
            time.sleep(0.05)
    return True


def datagram_to_name(name: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"breach", "\0" + name)
    return True


def block_device() -> bool:
    for name in ("vda", "sda", "nvme0n1", "mem", "kmsg", "kvm", "loop0"):
        try:
            with open(f"/dev/{name}", "rb") as file:
                file.read(1)
            return True
        except OSError:
            continue
    return False


def attempts(w: dict[str, Any]) -> dict[str, Callable[[], bool]]:
    outside, scratch, victim = w["outside"], w["scratch"], w["victim"]
    return {
        "environment of another process": lambda: read(f"/proc/{victim}/environ"),
        "memory of another process": lambda: peer_memory(victim),
        "trace another process": lambda: ptrace(victim),
        "signal another process": lambda: done(lambda: os.kill(victim, 0)),
        "limits of another process": lambda: done(lambda: resource.prlimit(victim, resource.RLIMIT_CORE)),
        "stop another process": lambda: done(lambda: os.kill(victim, signal.SIGCONT)),
        "environment of any process": any_environment,
        "credentials at home": lambda: any_read(w["credentials"]),
        "workflow command files": lambda: any_append(w["commands"]),
        "shared memory": lambda: shared_segment(w["key"]),
        "file of shared memory": lambda: any_read([w["shm"]]),
        "message queue": lambda: message_queue(w["key"]),
        "semaphores": lambda: semaphores(w["key"]),
        "device nodes that were not given": lambda: other_nodes(w["nodes"]),
        "folders to write into": lambda: writable_folders([scratch, *w["own"]]),
        "token file": lambda: read(f"{outside}/token"),
        "credentials of the checkout": lambda: read(f"{w['checkout']}/.git/config"),
        "dot-env of the checkout": lambda: read(f"{w['checkout']}/.env"),
        "other checkout": lambda: read(f"{outside}/other/model.py"),
        "docker socket": lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, f"{outside}/docker.sock"),
        **{f"datagram, {how}": functools.partial(datagram, w["datagram"], how)
           for how in ("connect", "sendmsg", "sendto", "pair connect", "pair sendmsg", "pair sendto")},
        "first to be killed": lambda: make_killable(victim),
        "kernel settings": kernel_settings,
        "abstract socket": lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + w["abstract"]),
        "abstract datagram": lambda: datagram_to_name(w["abstract"] + "-datagram"),
        "udp": lambda: udp(w["udp"]),
        "tcp6": lambda: connect(socket.AF_INET6, socket.SOCK_STREAM, ("::1", w["tcp6"])) if w["tcp6"] else False,
        "tcp": lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", w["tcp"])),
        "inherited descriptor": inherited,
        "new file outside": lambda: append(f"{outside}/new"),
        "truncate outside": lambda: done(lambda: os.truncate(f"{outside}/victim-file", 0)),
        "rename outside": lambda: done(lambda: os.rename(f"{outside}/victim-file", f"{outside}/renamed")),
        "remove outside": lambda: done(lambda: os.unlink(f"{outside}/victim-file")),
        "folder outside": lambda: done(lambda: os.mkdir(f"{outside}/folder")),
        "write into the checkout": lambda: append(f"{w['checkout']}/model.py"),
        "write through a link": lambda: through_link(scratch, outside),
        "hard link from outside": lambda: done(lambda: os.link(f"{outside}/token", f"{scratch}/token")),
        "move from outside": lambda: done(lambda: os.rename(f"{outside}/other", f"{scratch}/other")),
        "write the interpreter": lambda: append(os.path.realpath(sys.executable)),
        "raw devices": block_device,
        "unshare": lambda: system_call(272, 97, ctypes.c_long(0x10000000)),
        "mount": lambda: done(lambda: _mount(scratch)),
        "chroot": lambda: system_call(161, 51, scratch.encode()),
        "io_uring": lambda: system_call(425, 425, 8, ctypes.create_string_buffer(256)),
        "keyring": lambda: system_call(250, 219, ctypes.c_long(0), ctypes.c_long(-3), ctypes.c_long(1)),
        "bpf": lambda: system_call(321, 280, 0, ctypes.create_string_buffer(128), 128),
        "userfaultfd": lambda: system_call(323, 282, 0),
        "capabilities": lambda: any(
            int(line.split()[1], 16) for line in open("/proc/self/status") if line.startswith(("CapEff", "CapPrm"))
        ),
    }  # fmt: skip


def _mount(where: str) -> None:
    if libc.mount(b"none", where.encode(), b"tmpfs", 0, None) < 0:
        raise OSError(ctypes.get_errno(), "refused")


def main(wanted: dict[str, Any]) -> dict[str, Any]:
    worked: list[str] = []
    refused: dict[str, str] = {}
    for name, attempt in attempts(wanted).items():
        if wanted["control"] and name in SELF:
            continue
        try:
            if attempt():
                worked.append(name)
            else:
                refused[name] = "nothing found"
        except (OSError, ValueError) as e:
            refused[name] = f"{type(e).__name__}: {e}"
    token = f"{wanted['outside']}/token"
    for quiet in (lambda: os.chmod(token, 0o777), lambda: os.utime(token, (1, 1))):
        try:
            quiet()
        except OSError as e:
            refused.setdefault("metadata", str(e))
    with open(f"{wanted['scratch']}/proof", "w") as file:
        file.write("written")
    with open(f"{wanted['checkout']}/model.py") as file:
        readable = file.read()
    return {"worked": worked, "refused": refused, "environment": dict(os.environ), "readable": readable,
            "written": written}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
