"""What jailed code must not reach, tried for real in each jail, with an open process as the control."""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot import process
from kernelopt_bot.sandbox.jail import Box, Jail, ProcessJail
from kernelopt_bot.sandbox.landlock import LandlockJail

SECRET = "kernelopt-test-secret"
DATAGRAMS = ("datagram", "abstract datagram", "udp")
ATTEMPTS = Path(__file__).with_name("attempts.py")
CREDENTIALS = (".git-credentials", ".netrc", ".config/gh/hosts.yml", ".ssh/id_ed25519", ".docker/config.json",
               ".config/model-key")
COMMANDS = ("GITHUB_ENV", "GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STEP_SUMMARY", "GITHUB_STATE")
HARMLESS = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "shm", "mqueue", "pts", "fd", "watchdog",
            "watchdog0"}
"""Devices in every jail; and those of which opening one restarts the machine."""
libc = ctypes.CDLL(None, use_errno=True)
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
    written: list[str]
    scratch: Path


@contextmanager
def kept_by_the_kernel(key: int) -> Iterator[str]:
    """A segment of shared memory that holds the secret, a message queue and semaphores; the name of a file in /dev/shm
    that holds it too."""
    shared = libc.shmget(key, 4096, 0o1600 | 0o066)
    assert shared >= 0, os.strerror(ctypes.get_errno())
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(shared, None, 0)
    ctypes.memmove(address, SECRET.encode(), len(SECRET))
    libc.shmdt(ctypes.c_void_p(address))
    queue, semaphores = libc.msgget(key, 0o1666), libc.semget(key, 1, 0o1666)
    file = Path(f"/dev/shm/kernelopt-test-{key}")
    file.write_text(SECRET)
    try:
        assert queue >= 0 and semaphores >= 0
        yield str(file)
    finally:
        file.unlink()
        libc.shmctl(shared, 0, None)
        libc.msgctl(queue, 0, None)
        libc.semctl(semaphores, 0, 0)


def nodes(given: tuple[Path, ...]) -> list[str]:
    """Device nodes of this machine that no jail is given."""
    found = [p for p in Path("/dev").rglob("*") if p.name not in HARMLESS and "pts" not in p.parts]
    devices = [p for p in found if not p.is_symlink() and (p.is_char_device() or p.is_block_device())]
    return [str(p) for p in devices if p not in given]


def snapshot(folder: Path) -> dict[str, Any]:
    """Name, mode, modification time and content of all there is."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_mtime_ns if path.is_file() else 0, content)
    return found


def loopback6() -> bool:
    with socket.socket(socket.AF_INET6) as trial:
        try:
            trial.bind(("::1", 0))
        except OSError:
            return False
    return True


def own_memory(jail: Jail) -> tuple[str, ...]:
    """Folders that are memory of the jail's own, and gone with it."""
    if isinstance(jail, LandlockJail):
        return ("/dev/shm",) if jail.namespaces else ()
    return "/tmp", "/dev/shm"


def attack(jail: Jail, root: Path, devices: tuple[Path, ...] = ()) -> Outcome:
    outside, checkout, scratch, code = (root / name for name in ("outside", "checkout", "scratch", "code"))
    for folder in (outside / "other", checkout / ".git", scratch, code):
        folder.mkdir(parents=True)
    for file in (outside / "token", outside / "other" / "model.py", checkout / ".git" / "config", checkout / ".env"):
        file.write_text(SECRET)
    for name in COMMANDS:
        (outside / name).write_text("")
    for name in CREDENTIALS:
        (outside / "home" / name).parent.mkdir(parents=True, exist_ok=True)
        (outside / "home" / name).write_text(SECRET)
    (outside / "victim-file").write_text("precious")
    (checkout / "model.py").write_text("class Model: ...")
    shutil.copyfile(ATTEMPTS, code / "attempts.py")
    with ExitStack() as stack:
        key = 0x4B000000 | secrets.randbelow(1 << 24)
        shm = stack.enter_context(kept_by_the_kernel(key))
        victim = process.start([sys.executable, "-I", "-c", "input()"], environment={
            "GITHUB_TOKEN": SECRET, "MODEL_API_KEY": SECRET, **{name: str(outside / name) for name in COMMANDS}})
        stack.callback(process.stop, victim, grace=0)
        listeners = {}
        abstract = f"kernelopt-test-{os.getpid()}-{root.name}"
        for name, family, address in (
            ("tcp", socket.AF_INET, ("127.0.0.1", 0)),
            ("docker socket", socket.AF_UNIX, str(outside / "docker.sock")),
            ("abstract socket", socket.AF_UNIX, "\0" + abstract),
            ("abstract datagram", socket.AF_UNIX, "\0" + abstract + "-datagram"),
            ("datagram", socket.AF_UNIX, str(outside / "log.sock")),
            ("udp", socket.AF_INET, ("127.0.0.1", 0)),
            ("tcp6", socket.AF_INET6, ("::1", 0)),
        ):
            if name == "tcp6" and not loopback6():
                continue
            kind = socket.SOCK_DGRAM if name in DATAGRAMS else socket.SOCK_STREAM
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
            "datagram": str(outside / "log.sock"), "udp": listeners["udp"].getsockname()[1], "key": key, "shm": shm,
            "tcp6": listeners["tcp6"].getsockname()[1] if "tcp6" in listeners else 0, "nodes": nodes(devices),
            "credentials": [str(outside / "home" / name) for name in CREDENTIALS],
            "own": own_memory(jail),
            "commands": [str(outside / name) for name in COMMANDS],
        }  # fmt: skip
        box = Box(
            sys.executable, ("-I", "-B", str(code / "attempts.py"), json.dumps(wanted)),
            {"PATH": os.defpath, "HOME": str(scratch)}, scratch, (code, checkout), devices,
        )  # fmt: skip
        before = snapshot(outside) | snapshot(checkout)
        launch = jail.wrap(box)
        try:
            done = process.run(launch.command, timeout=60, pass_fds=launch.pass_fds, environment=launch.environment)
        finally:
            launch.finish()
        assert victim.poll() is None
        reached = []
        for name, listener in listeners.items():
            try:
                if name in DATAGRAMS:
                    listener.recv(16)
                else:
                    listener.accept()[0].close()
                reached.append(name)
            except BlockingIOError:
                continue
    answer = json.loads(done.stdout)
    return Outcome(
        set(answer["worked"]), answer["refused"], answer["environment"], answer["readable"], before,
        snapshot(outside) | snapshot(checkout), reached, answer["written"], scratch,
    )  # fmt: skip


@pytest.fixture(scope="session", params=[(), (Path("/dev/null"),)], ids=["cpu", "gpu"])
def outcome(jail: Jail, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    """Also with a device node, for which a jail opens itself as far as CUDA needs."""
    # Not below /tmp alone: each jail has its own way with that folder, and the result must not hang on it.
    yield attack(jail, tmp_path_factory.mktemp("jail"), request.param)


def test_every_attempt_is_refused(outcome: Outcome) -> None:
    assert outcome.worked == set(), outcome.written
    assert len(outcome.refused) >= 52


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
    assert set(open_process.reached) - {"tcp6"} == {
        "tcp", "udp", "docker socket", "abstract socket", "abstract datagram", "datagram"}
