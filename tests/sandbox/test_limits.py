"""What a worker may use: real processes that take more, in each jail."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelopt_bot.sandbox.client import Worker, WorkerCrashed, WorkerFailed
from kernelopt_bot.sandbox.jail import Jail
from kernelopt_bot.sandbox.limits import Limits, available_memory, children, kill_tree, machine_limits, meminfo, tree
from kernelopt_bot.sandbox.watch import INTERVAL_S, disk_bytes, memory_exactly, status

MIB = 1 << 20


def nothing_is_left(scratch: Path) -> bool:
    """No process names the scratch folder in its command line, as every worker and its children do."""
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        left = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    words = (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                if str(scratch).encode() in words and b"pytest" not in words.split(b"\0")[0]:
                    left.append(entry.name)
        if not left:
            return True
        time.sleep(0.05)
    return False


def test_memory(any_jail: Jail, make: Callable[..., Worker], tmp_path: Path) -> None:
    worker = make(jail=any_jail, limits=Limits(memory_bytes=150 * MIB))
    begin = time.monotonic()
    with pytest.raises(WorkerCrashed, match=f"more than {150 * MIB} bytes of memory and was killed"):
        worker.call("memory", {"how": "own", "mib": 400}, timeout=18)
    assert time.monotonic() - begin < 10 and nothing_is_left(tmp_path / "scratch")


@pytest.mark.parametrize("how", ["children", "shared", "memory file"])
def test_memory_however_it_is_held(make: Callable[..., Worker], how: str) -> None:
    worker = make(limits=Limits(memory_bytes=150 * MIB))
    with pytest.raises(WorkerCrashed, match="bytes of memory"):
        worker.call("memory", {"how": how, "mib": 400}, timeout=18)


def test_memory_within_the_limit(make: Callable[..., Worker]) -> None:
    """Shared pages are counted once for all processes that map them."""
    worker = make(limits=Limits(memory_bytes=500 * MIB))
    with pytest.raises(Exception, match="did not answer"):
        worker.call("memory", {"how": "children", "mib": 300}, timeout=1.5)


def test_processes(any_jail: Jail, make: Callable[..., Worker], tmp_path: Path) -> None:
    worker = make(jail=any_jail, limits=Limits(tasks=40))
    with pytest.raises(WorkerCrashed, match="processes and threads, more than 40"):
        worker.call("tasks", {"count": 300}, timeout=18)
    assert nothing_is_left(tmp_path / "scratch")


def test_threads(make: Callable[..., Worker]) -> None:
    worker = make(limits=Limits(tasks=40))
    with pytest.raises(WorkerCrashed, match="processes and threads, more than 40"):
        worker.call("threads", {"count": 100}, timeout=18)


def test_scratch(any_jail: Jail, make: Callable[..., Worker], tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    worker = make(jail=any_jail, limits=Limits(disk_bytes=20 * MIB))
    with pytest.raises(WorkerCrashed, match=f"it wrote more than {20 * MIB} bytes of files and was killed"):
        worker.call("files", {"folder": str(scratch), "mib": 5, "count": 10}, timeout=18)


def test_one_file(any_jail: Jail, make: Callable[..., Worker], tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    worker = make(jail=any_jail, limits=Limits(disk_bytes=4 * MIB))
    with pytest.raises(WorkerFailed, match="File too large"):
        worker.call("one file", {"folder": str(scratch), "mib": 8}, timeout=18)
    assert (scratch / "file").stat().st_size == 4 * MIB


def test_what_a_machine_gives(tmp_path: Path) -> None:
    limits = machine_limits(tmp_path)
    assert 1 << 30 <= limits.memory_bytes <= meminfo("MemTotal") and limits.tasks >= 4096
    assert 0 <= limits.disk_bytes <= 64 << 30
    assert 0 < available_memory() <= meminfo("MemTotal")
    assert meminfo("MemTotal", "MemTotal:  5 kB\n") == 5 << 10 and meminfo("Absent") == 0


def test_looks_are_cheap() -> None:
    begin = time.thread_time()
    for number in tree(os.getpid()):
        status(number)
    assert time.thread_time() - begin < INTERVAL_S / 2


def test_one_process_exactly() -> None:
    size, threads = status(os.getpid())
    assert threads >= 1 and size > MIB
    # A process that shares little: shared pages count by how many hold them, and others end meanwhile.
    code = ("import os, sys\nfd = os.memfd_create('test')\nprint(flush=True)\nsys.stdin.readline()\n"
            f"os.write(fd, bytes({64 * MIB}))\nprint(flush=True)\nsys.stdin.readline()")
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdout.readline()
        before = memory_exactly([child.pid])
        print(file=child.stdin, flush=True)
        child.stdout.readline()
        assert 48 * MIB < memory_exactly([child.pid]) - before < 80 * MIB
        print(file=child.stdin, flush=True)
    assert status(2**22 + 1) == (0, 0) and memory_exactly([2**22 + 1]) == 0


def test_disk(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a").write_bytes(bytes(3 * MIB))
    os.link(tmp_path / "inner" / "a", tmp_path / "b")
    (tmp_path / "c").symlink_to("/usr")
    assert 3 * MIB <= disk_bytes(tmp_path) < 4 * MIB
    assert disk_bytes(tmp_path / "absent") == 0


def test_a_tree_is_killed_whole() -> None:
    """Children that leave the group, and that go on forking, too."""
    code = ("import os, time\nos.setsid() if os.getpid() != os.getpgid(0) else None\n"
            "for _ in range(6):\n    if os.fork() == 0:\n        os.setsid()\n"
            "        if os.fork() == 0:\n            time.sleep(30)\n        time.sleep(30)\ntime.sleep(30)")
    with subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=True) as process:
        deadline = time.monotonic() + 5
        while len(numbers := tree(process.pid)) < 13 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(numbers) == 13
        kill_tree(process.pid)
        assert process.wait(5) == -9
    everywhere = {number for group in children().values() for number in group}
    assert not everywhere & {n for n in numbers if not zombie(n)}


def zombie(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
