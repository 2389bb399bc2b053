"""What jailed code must not reach, tried for real in each jail, with an open process as the control."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot import process
from kernelopt_bot.sandbox.jail import Box, Jail, ProcessJail

SECRET = "kernelopt-test-secret"
ATTEMPTS = Path(__file__).with_name("attempts.py")
ALSO_OPEN = {
    "capabilities", "bpf", "raw devices", "io_uring", "keyring", "userfaultfd",
    "trace another process", "memory of another process", "inherited descriptor",
    "kernel settings",
}  # fmt: skip
"""What an open process may be refused too: it depends on user and kernel, and descriptors are closed for all."""


@dataclass(frozen=True)
class Outcome:
    worked: set[str]
    refused: dict[str, str]
    environment: dict[str, str]
    readable: str
    before: dict[str, Any]
    after: dict[str, Any]
    reached: list[str]
    """Listeners outside that something connected to."""
    scratch: Path


def snapshot(folder: Path) -> dict[str, Any]:
    """Name, mode, modification time and content of all there is."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_mtime_ns if path.is_file() else 0, content)
    return found


def attack(jail: Jail, root: Path, devices: tuple[Path, ...] = ()) -> Outcome:
    outside, checkout, scratch, code = (root / name for name in ("outside", "checkout", "scratch", "code"))
    for folder in (outside / "other", checkout / ".git", scratch, code):
        folder.mkdir(parents=True)
    for file in (outside / "token", outside / "other" / "model.py", checkout / ".git" / "config", checkout / ".env"):
        file.write_text(SECRET)
    (outside / "github_env").write_text("")
    (outside / "victim-file").write_text("precious")
    (checkout / "model.py").write_text("class Model: ...")
    shutil.copyfile(ATTEMPTS, code / "attempts.py")
    with ExitStack() as stack:
        victim = process.start([sys.executable, "-I", "-c", "input()"], environment={"TOKEN": SECRET})
        stack.callback(process.stop, victim, grace=0)
        listeners = {}
        abstract = f"kernelopt-test-{os.getpid()}-{root.name}"
        for name, family, address in (
            ("tcp", socket.AF_INET, ("127.0.0.1", 0)),
            ("docker socket", socket.AF_UNIX, str(outside / "docker.sock")),
            ("abstract socket", socket.AF_UNIX, "\0" + abstract),
            ("datagram", socket.AF_UNIX, str(outside / "log.sock")),
        ):
            kind = socket.SOCK_DGRAM if name == "datagram" else socket.SOCK_STREAM
            listener = stack.enter_context(socket.socket(family, kind))
            listener.bind(address)
            if kind == socket.SOCK_STREAM:
                listener.listen()
            listener.setblocking(False)
            listeners[name] = listener
        inherited = os.open(outside / "token", os.O_RDONLY)
        stack.callback(os.close, inherited)
        os.set_inheritable(inherited, True)
        wanted = {
            "outside": str(outside), "checkout": str(checkout), "scratch": str(scratch), "victim": victim.pid,
            "tcp": listeners["tcp"].getsockname()[1], "abstract": abstract, "control": jail.name == "process",
            "datagram": str(outside / "log.sock"),
        }  # fmt: skip
        box = Box(
            sys.executable, ("-I", "-B", str(code / "attempts.py"), json.dumps(wanted)),
            {"PATH": os.defpath, "HOME": str(scratch)}, scratch, (code, checkout), devices,
        )  # fmt: skip
        before = snapshot(outside) | snapshot(checkout)
        launch = jail.wrap(box)
        try:
            done = process.run(
                launch.command, timeout=60, pass_fds=launch.pass_fds,
                environment={**launch.environment, **({"TOKEN": SECRET} if jail.name == "bubblewrap" else {})},
            )  # fmt: skip
        finally:
            launch.finish()
        assert victim.poll() is None
        reached = []
        for name, listener in listeners.items():
            try:
                if name == "datagram":
                    listener.recv(16)
                else:
                    listener.accept()[0].close()
                reached.append(name)
            except BlockingIOError:
                continue
    answer = json.loads(done.stdout)
    return Outcome(
        set(answer["worked"]), answer["refused"], answer["environment"], answer["readable"], before,
        snapshot(outside) | snapshot(checkout), reached, scratch,
    )  # fmt: skip


@pytest.fixture(scope="session", params=[(), (Path("/dev/null"),)], ids=["cpu", "gpu"])
def outcome(jail: Jail, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    """Also with a device node, for which a jail opens itself as far as CUDA needs."""
    # Not below /tmp alone: each jail has its own way with that folder, and the result must not hang on it.
    yield attack(jail, tmp_path_factory.mktemp("jail"), request.param)


def test_every_attempt_is_refused(outcome: Outcome) -> None:
    assert outcome.worked == set()
    assert len(outcome.refused) >= 41


def test_nothing_outside_has_changed(outcome: Outcome) -> None:
    assert outcome.after == outcome.before


def test_no_listener_outside_was_reached(outcome: Outcome) -> None:
    assert outcome.reached == []


def test_the_environment_is_what_was_given(outcome: Outcome) -> None:
    assert SECRET not in json.dumps(outcome.environment)
    # The C library or the interpreter may set LC_CTYPE, bubblewrap PWD.
    assert outcome.environment.keys() - {"LC_CTYPE", "PWD"} <= {"PATH", "HOME", "TORCHINDUCTOR_COMPILE_THREADS"}


def test_what_it_needs_is_there(outcome: Outcome) -> None:
    assert outcome.readable == "class Model: ..."
    assert (outcome.scratch / "proof").read_text() == "written"


def test_the_attempts_work_without_a_jail(tmp_path: Path) -> None:
    open_process = attack(ProcessJail(), tmp_path)
    assert open_process.refused.keys() <= ALSO_OPEN | {"move from outside", "remove outside"}
    assert open_process.after != open_process.before
    assert set(open_process.reached) == {"tcp", "docker socket", "abstract socket", "datagram"}
