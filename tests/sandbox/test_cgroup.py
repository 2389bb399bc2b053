"""Control groups: where one may be made is found in what the kernel says; what it does is tried where that can be."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelopt_bot import process
from kernelopt_bot.sandbox.cgroup import Group, delegated
from kernelopt_bot.sandbox.client import Worker, WorkerCrashed
from kernelopt_bot.sandbox.jail import launch_through
from kernelopt_bot.sandbox.limits import Limits


def machine(folder: Path, own: str, groups: dict[str, str], root: str = "/", kind: str = "cgroup2") -> Path:
    """/proc/self of a machine whose groups are folders below `folder`; `groups`: what each hands to its children."""
    proc, top = folder / "proc", folder / "cgroup"
    for path in (proc, top):
        path.mkdir(exist_ok=True)
    for name, controllers in groups.items():
        (top / name).mkdir(parents=True, exist_ok=True)
        (top / name / "cgroup.subtree_control").write_text(controllers)
        (top / name / "cgroup.procs").touch()
    (proc / "cgroup").write_text(f"4:memory:/elsewhere\n0::{own}\n")
    (proc / "mountinfo").write_text(f"25 1 0:22 / /proc rw - proc proc rw\n"
                                    f"30 25 0:26 {root} {top} rw,nosuid shared:9 - {kind} cgroup2 rw\n")
    return proc


@pytest.mark.parametrize(("own", "groups", "root", "found"), [
    # A session of a user: systemd hands `app.slice` to the user, whose processes are in a leaf of it.
    ("/user/app.slice/term.scope", {"user/app.slice": "cpu memory pids", "user/app.slice/term.scope": ""}, "/",
     "user/app.slice"),
    ("/a/b/c", {"a": "memory pids", "a/b": "memory pids", "a/b/c": "cpu"}, "/", "a/b"),
    ("/a/b", {"a": "memory", "a/b": "pids"}, "/", None),
    ("/", {".": "cpu memory pids io"}, "/", "."),
    # In a container whose own group is mounted as the root.
    ("/docker/x/leaf", {".": "memory pids", "leaf": ""}, "/docker/x", "."),
    ("/elsewhere", {".": "memory pids"}, "/docker/x", None),
])
def test_where_a_group_may_be_made(tmp_path: Path, own: str, groups: dict[str, str], root: str,
                                   found: str | None) -> None:
    proc = machine(tmp_path, own, groups, root)
    assert delegated(proc) == (None if found is None else tmp_path / "cgroup" / found)


def test_where_none_may_be_made(tmp_path: Path) -> None:
    assert delegated(machine(tmp_path, "/", {".": "memory pids"}, kind="cgroup")) is None
    assert delegated(tmp_path / "absent") is None
    assert Group.make(Limits(), None) is None
    assert Group.make(Limits(), tmp_path / "absent") is None


def test_what_is_asked_of_the_kernel(tmp_path: Path) -> None:
    group = Group.make(Limits(memory_bytes=5 << 20, tasks=7), tmp_path)
    assert group is not None and group.folder.parent == tmp_path
    read = {p.name: p.read_text() for p in group.folder.iterdir()}
    assert read == {"memory.max": str(5 << 20), "pids.max": "7", "memory.oom.group": "1", "memory.swap.max": "0"}
    assert group.entrance == str(group.folder / "cgroup.procs") and group.exceeded() == ""
    (group.folder / "memory.events").write_text("low 0\noom 1\noom_kill 2\n")
    assert "more memory" in group.exceeded()
    (group.folder / "memory.events").write_text("oom_kill 0\n")
    (group.folder / "pids.events").write_text("max 3\n")
    assert "more processes" in group.exceeded()


@pytest.fixture
def real(request: pytest.FixtureRequest) -> Iterator[Group]:
    """A group of the kernel's, with whatever controllers there are."""
    mounted = re.search(r"^\S+ \S+ \S+ / (\S*) .* - cgroup2 ", Path("/proc/self/mountinfo").read_text(), re.MULTILINE)
    if mounted is None or not os.access(mounted.group(1), os.W_OK):
        pytest.skip("no control group of version 2 can be made here")
    group = Group(Path(mounted.group(1)) / f"kernelopt-test-{secrets.token_hex(4)}")
    try:
        group.folder.mkdir()
    except OSError as e:
        pytest.skip(f"no control group of version 2 can be made here: {e.strerror}")
    yield group
    group.end()


def test_the_launcher_enters_and_the_end_takes_all(real: Group, tmp_path: Path) -> None:
    code = "import os, time\nif os.fork() == 0:\n    os.setsid()\nprint(os.getpid(), flush=True)\ntime.sleep(60)"
    command = launch_through({"rlimits": {}, "scratch": str(tmp_path), "group": real.entrance},
                             (sys.executable, "-IS", "-c", code))
    started = process.start(command, environment={})
    try:
        assert started.stdout is not None
        numbers = [int(started.stdout.readline()) for _ in range(2)]
        assert sorted(map(int, Path(real.entrance).read_text().split())) == sorted(numbers)
        real.end()
        assert started.wait(5) == -9 and not real.folder.exists()
    finally:
        process.stop(started, grace=0)


def test_a_group_that_cannot_be_entered_stops_nothing(tmp_path: Path) -> None:
    command = launch_through({"rlimits": {}, "scratch": str(tmp_path), "group": str(tmp_path / "absent" / "procs")},
                             (sys.executable, "-IS", "-c", "print('runs')"))
    assert subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout == "runs\n"


def test_the_kernel_keeps_the_limit(make: Callable[..., Worker]) -> None:
    """Where a group with a limit may be made, the watch is not needed."""
    parent = delegated()
    if parent is None:
        pytest.skip("no control group with controllers is delegated to this process")
    worker = make(limits=Limits(memory_bytes=150 << 20))
    with pytest.raises(WorkerCrashed, match="memory"):
        worker.call("memory", {"how": "own", "mib": 400}, timeout=18)
    assert not list(parent.glob("kernelopt-*"))
