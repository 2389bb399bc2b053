"""The filter's numbers against the kernel's headers, and its program run by hand."""

from __future__ import annotations

import errno
import re
import struct
from pathlib import Path

import pytest

from kernelopt_bot.sandbox import seccomp

HEADERS = {"x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "/usr/include/asm-generic/unistd.h"}
NEWER_THAN_HEADERS = {"fchmodat2"}


@pytest.mark.parametrize("machine", HEADERS)
def test_numbers_are_the_kernels(machine: str) -> None:
    header = Path(HEADERS[machine])
    if not header.exists():
        pytest.skip(f"{header} is not installed")
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())
    known = {name: int(number) for name, number in found}
    column = seccomp.ARCHITECTURES[machine][0]
    for name, numbers in (seccomp.FORBIDDEN | seccomp.METADATA | seccomp.SPECIAL).items():
        if numbers[column] is not None and not (name in NEWER_THAN_HEADERS and name not in known):
            assert known.get(name) == numbers[column], name


def verdict(program: bytes, number: int, *arguments: int, architecture: int = 0xC000003E) -> int:
    """What the kernel's interpreter of classic BPF would return."""
    data = struct.pack("<IIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    accumulator = at = 0
    while True:
        code, yes, no, value = struct.unpack_from("<HBBI", program, at * 8)
        at += 1
        if code == 0x06:
            return value
        if code == 0x20:
            accumulator = struct.unpack_from("<I", data, value)[0]
        else:
            hit = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[code]
            at += yes if hit else no


ALLOW, REFUSE, PRETEND, KILL = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000, 0x80000000


def test_program() -> None:
    strict = seccomp.program(sockets="none", metadata=False, sessions=False, machine="x86_64")
    for name, (number, _) in seccomp.FORBIDDEN.items():
        assert verdict(strict, number) == REFUSE, name
    for name, (number, _) in seccomp.METADATA.items():
        assert verdict(strict, number) == PRETEND, name
    for allowed in (0, 1, 9, 59, 202, 257, 262, 61, 53):
        assert verdict(strict, allowed) == ALLOW
    assert verdict(strict, 41, 1) == verdict(strict, 112) == verdict(strict, 109) == REFUSE
    assert verdict(strict, 435) == 0x00050000 | errno.ENOSYS
    assert verdict(strict, 56, 0x01200011) == ALLOW
    assert verdict(strict, 56, 0x01200011 | 0x10000000) == REFUSE
    assert verdict(strict, 16, 0, 0x5412) == verdict(strict, 16, 0, 0x541C) == REFUSE
    assert verdict(strict, 16, 0, 0x5401) == ALLOW
    assert verdict(strict, 302, 0, 7) == ALLOW and verdict(strict, 302, 1234, 7) == REFUSE
    assert verdict(strict, 0x40000000 + 101) == REFUSE
    assert verdict(strict, 0, architecture=0x40000003) == KILL


def test_what_may_be_let_through() -> None:
    open_program = seccomp.program(sockets="any", metadata=True, sessions=True, machine="x86_64")
    for number in (41, 42, 44, 46, 112, 109, 90, 91):
        assert verdict(open_program, number, 2, 1, 1, 1, 1) == ALLOW
    assert verdict(open_program, 101) == REFUSE


def test_sockets_of_one_family_that_reach_nothing() -> None:
    program = seccomp.program(sockets="unix", metadata=False, sessions=False, machine="x86_64")
    assert verdict(program, 41, 1, 1) == ALLOW
    for family in (0, 2, 10, 16, 40, 257):
        assert verdict(program, 41, family, 1) == REFUSE
    assert verdict(program, 49) == verdict(program, 50) == ALLOW
    for sockets in ("unix", "none"):
        program = seccomp.program(sockets=sockets, metadata=False, sessions=False, machine="x86_64")
        assert verdict(program, 42) == verdict(program, 46) == verdict(program, 307) == REFUSE
        assert verdict(program, 44, 3, 0x1000, 5, 0, 0) == ALLOW
        for address in (0x7FFC00001000, 0x1000, 0x7FFC00000000):
            assert verdict(program, 44, 3, 0x1000, 5, 0, address) == REFUSE


def test_other_architectures() -> None:
    arm = seccomp.program(sockets="none", metadata=False, sessions=False, machine="aarch64")
    assert verdict(arm, 117, architecture=0xC00000B7) == REFUSE
    assert verdict(arm, 117) == KILL
    with pytest.raises(KeyError):
        seccomp.program(sockets="none", metadata=False, sessions=False, machine="riscv64")
