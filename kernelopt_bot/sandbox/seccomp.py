"""The system call filter of the jails: a classic BPF program, made without libseccomp.

A list of what is forbidden, since PyTorch, Triton, compilers and CUDA between them need most of the rest. It closes
ways round the jail (other processes' memory, namespaces, mounts, io_uring, user-supplied page faults, keyrings) and
kernel interfaces with a history of holes. Numbers from the kernel's `unistd` headers; a test compares them where the
headers are installed.
"""

from __future__ import annotations

import errno
import platform
import struct
from typing import Literal

FORBIDDEN = {
    # name: (x86-64, AArch64); None where the architecture has no such call
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "kcmp": (312, 272),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "setns": (308, 268), "unshare": (272, 97), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "bpf": (321, 280), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "perf_event_open": (298, 241), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "userfaultfd": (323, 282), "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "acct": (163, 89), "swapon": (167, 224), "swapoff": (168, 225),
    "reboot": (169, 142), "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266), "sethostname": (170, 161), "setdomainname": (171, 162), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "fanotify_init": (300, 262), "syslog": (103, 116), "vhangup": (153, 58),
    "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None),
    "shmget": (29, 194), "shmat": (30, 196), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
    "mq_unlink": (241, 181),
}  # fmt: skip

METADATA = {
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None),
    "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None),
    "futimesat": (261, None), "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
}  # fmt: skip
"""Landlock does not govern these, so that a path outside could be given other modes or times. They do nothing and say
that they worked: linkers and copying tools call them and need no effect."""

SPECIAL = {"clone": (56, 220), "clone3": (435, 435), "socket": (41, 198), "ioctl": (16, 29), "setsid": (112, 157),
           "setpgid": (109, 154), "prlimit64": (302, 261), "connect": (42, 203), "sendto": (44, 206),
           "sendmsg": (46, 211), "sendmmsg": (307, 269)}  # fmt: skip

Sockets = Literal["any", "unix", "none"]
"""Which sockets may be made. `unix`: of the family AF_UNIX alone, for libcuda. With `unix` and `none` no socket can be
connected or sent to an address: also one of a `socketpair`, which is allowed, could reach a datagram socket that is a
file (the system log's). The address of `sendmsg` lies in memory, which a filter cannot read, so that call is refused
whole; passing descriptors to other processes goes with it."""
AF_UNIX = 1

ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Machine -> column above and AUDIT_ARCH_*."""

CLONE_NEW = 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000 | 0x00020000 | 0x00000080
"""CLONE_NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET, NEWNS, NEWTIME."""
TERMINAL_INJECTION = (0x5412, 0x541C)
"""ioctl numbers TIOCSTI and TIOCLINUX."""

_LOAD, _EQUAL, _GREATER_EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_ADDRESS = _ARGUMENTS + 4 * 8
"""The destination of `sendto`; a filter sees it in two halves."""


def _op(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)


def program(*, sockets: Sockets, metadata: bool, sessions: bool, machine: str = "") -> bytes:
    """The filter, as an array of `struct sock_filter`.

    `sockets`: `any` where the jail has a network and files of its own. `metadata`: modes and times may be changed.
    `sessions`: a process may leave its group (the jail has process numbers of its own, so that none can get away).
    Raises KeyError on an architecture that is neither x86-64 nor AArch64.
    """
    column, architecture = ARCHITECTURES[machine or platform.machine()]
    refuse = _op(_RETURN, _ERRNO | errno.EPERM)
    code = [
        _op(_LOAD, _ARCHITECTURE), _op(_EQUAL, architecture, 1, 0), _op(_RETURN, _KILL), _op(_LOAD, _NUMBER),
        # The x32 ABI has other numbers for the same calls; AArch64 has no call that high.
        _op(_GREATER_EQUAL, 0x40000000, 0, 1), refuse,
    ]  # fmt: skip

    def on(number: int | None, *then: bytes) -> None:
        if number is not None:
            code.extend([_op(_EQUAL, number, 0, len(then)), *then])

    for numbers in FORBIDDEN.values():
        on(numbers[column], refuse)
    if not metadata:
        for numbers in METADATA.values():
            on(numbers[column], _op(_RETURN, _ERRNO))
    special = {name: numbers[column] for name, numbers in SPECIAL.items()}
    if sockets != "any":
        for name in ("connect", "sendmsg", "sendmmsg"):
            on(special[name], refuse)
        on(
            special["sendto"], _op(_LOAD, _ADDRESS), _op(_EQUAL, 0, 1, 0), refuse,
            _op(_LOAD, _ADDRESS + 4), _op(_EQUAL, 0, 1, 0), refuse, _op(_RETURN, _ALLOW),
        )  # fmt: skip
    if sockets == "none":
        on(special["socket"], refuse)
    elif sockets == "unix":
        on(special["socket"], _op(_LOAD, _ARGUMENTS), _op(_EQUAL, AF_UNIX, 1, 0), refuse, _op(_RETURN, _ALLOW))
    if not sessions:
        on(special["setsid"], refuse)
        on(special["setpgid"], refuse)
    # Its flags lie in memory, which a filter cannot read; libc falls back to clone.
    on(special["clone3"], _op(_RETURN, _ERRNO | errno.ENOSYS))
    on(special["clone"], _op(_LOAD, _ARGUMENTS), _op(_ANY_BIT, CLONE_NEW & ~0x80, 0, 1), refuse, _op(_RETURN, _ALLOW))
    # Another process's limits can end it (processor time 0); 0 is the caller.
    on(special["prlimit64"], _op(_LOAD, _ARGUMENTS), _op(_EQUAL, 0, 1, 0), refuse, _op(_RETURN, _ALLOW))
    on(
        special["ioctl"], _op(_LOAD, _ARGUMENTS + 8), *(
            part for number in TERMINAL_INJECTION for part in (_op(_EQUAL, number, 0, 1), refuse)
        ), _op(_RETURN, _ALLOW),
    )  # fmt: skip
    code.append(_op(_RETURN, _ALLOW))
    return b"".join(code)
