"""The one place that starts processes.

Every start states its environment (an allow-list, never the parent's whole) and every run its time-out. A process gets
its own session and group, so that its end can take its children along: SIGTERM, then SIGKILL. Output is bounded.
Errors carry command, code and the tails of both streams, with secrets taken out.

    ProcessError
      ProcessMissing    there is no such program
      ProcessTimeout    it ran past its limit and was killed
      ProcessFailed     it ended with a code other than 0
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from kernelopt_bot.errors import KerneloptError

BASE_ENVIRONMENT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ")
"""What ordinary tools need to start; nothing here holds a secret."""

OUTPUT_LIMIT = 8 * 1024 * 1024
"""Bytes kept of each stream of `run`; what is over is read and dropped from the middle."""

TAIL = 4000
"""Characters of each stream that an error shows."""

SECRET_NAMES = re.compile(r"(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|PRIVATE_KEY|CREDENTIAL|COOKIE)", re.IGNORECASE)
_PATTERNS = (
    re.compile(r"gh[pousr]_[A-Za-z0-9_]{8,}"),
    re.compile(r"github_pat_[A-Za-z0-9_]{8,}"),
    re.compile(r"\bsk-[A-Za-z0-9_-]{8,}"),
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+"),
    re.compile(r"(?i)(?<=authorization: )(?:basic|bearer|token) \S+"),
    re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"),
)


Process = subprocess.Popen[bytes]
"""A running process with binary pipes."""


@dataclass(frozen=True)
class Completed:
    command: tuple[str, ...]
    code: int
    stdout: str
    stderr: str
    seconds: float


class ProcessError(KerneloptError):
    """Base; its text is safe to show."""

    def __init__(self, command: Sequence[str], code: int | None, stdout: str, stderr: str, why: str) -> None:
        self.command = tuple(redact(part) for part in command)
        self.code, self.why = code, why
        self.stdout, self.stderr = redact(stdout)[-TAIL:], redact(stderr)[-TAIL:]
        text = f"{' '.join(self.command)[:400]}: {why}"
        for name, tail in (("stderr", self.stderr), ("stdout", self.stdout)):
            if tail.strip():
                text += f"\n  {name}: {tail.strip()}"
        super().__init__(text)


class ProcessMissing(ProcessError):
    """There is no such program, or it may not be executed."""


class ProcessTimeout(ProcessError):
    """It ran past its limit and was killed with its group."""


class ProcessFailed(ProcessError):
    """It ended with a code other than 0."""


_taken: dict[str, str] = {}


def take_secret(name: str) -> str:
    """A variable's value, taken out of this process's environment for good and redacted from then on; '' if not set."""
    if (value := os.environ.pop(name, "").strip()) or name not in _taken:
        _taken[name] = value
    return _taken[name]


def redact(text: str) -> str:
    """The text without secrets: the values of this process's secret-looking variables, those that were taken out of
    its environment, and known token forms."""
    named = (value for name, value in os.environ.items() if SECRET_NAMES.search(name))
    for value in (*_taken.values(), *named):
        if len(value) >= 8:
            text = text.replace(value, "***")
    for pattern in _PATTERNS:
        text = pattern.sub("***", text)
    return text


def environment(names: Iterable[str] = BASE_ENVIRONMENT, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment by allow-list: the named variables of this process that are set, and what is added."""
    return {name: os.environ[name] for name in names if name in os.environ} | dict(extra or {})


_starter: ThreadPoolExecutor | None = None
_starter_lock = threading.Lock()


def _start_thread() -> ThreadPoolExecutor:
    # A process that asks for a signal at its parent's death gets it at the death of the parent *thread*:
    # one thread that lives as long as this process starts them all.
    global _starter
    with _starter_lock:
        if _starter is None:
            _starter = ThreadPoolExecutor(1, thread_name_prefix="kernelopt-start")
        return _starter


def start(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    cwd: Path | None = None,
    pass_fds: Sequence[int] = (),
    stdin: bool = True,
) -> Process:
    """Start a process with binary pipes, in a session of its own. The caller ends it by `stop`.

    Raises ProcessMissing.
    """
    try:
        return _start_thread().submit(
            subprocess.Popen,
            list(command),
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            cwd=cwd,
            pass_fds=tuple(pass_fds),
            start_new_session=True,
            bufsize=0,
        ).result()
    except OSError as e:
        raise ProcessMissing(command, None, "", "", f"cannot be started: {e.strerror or e}") from e


def wait(process: Process, seconds: float) -> int | None:
    """The code of a process that ends within `seconds`, else None."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(seconds)
    return None


def stop(process: Process, *, grace: float = 2.0) -> int:
    """End a process and its group: SIGTERM, `grace` seconds, SIGKILL. Returns its code (negative: the signal)."""
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
        if number == signal.SIGTERM and (grace <= 0 or process.poll() is not None):
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        wait(process, patience)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    return process.returncode if process.returncode is not None else -int(signal.SIGKILL)


@dataclass
class Tail:
    """Reads a stream to its end in a thread, keeping the first and the last `limit` / 2 bytes."""

    stream: IO[bytes]
    limit: int = OUTPUT_LIMIT
    _head: bytearray = field(default_factory=bytearray)
    _tail: bytearray = field(default_factory=bytearray)
    dropped: int = 0

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._drain, daemon=True, name="kernelopt-drain")
        self._thread.start()

    def _drain(self) -> None:
        half = self.limit // 2
        with contextlib.suppress(OSError, ValueError):
            while chunk := self.stream.read(65536):
                room = max(0, half - len(self._head))
                self._head += chunk[:room]
                self._tail += chunk[room:]
                if (over := len(self._tail) - half) > 0:
                    del self._tail[:over]
                    self.dropped += over

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def text(self) -> str:
        middle = f"\n[... {self.dropped} bytes left out ...]\n" if self.dropped else ""
        return bytes(self._head).decode(errors="replace") + middle + bytes(self._tail).decode(errors="replace")


def run(
    command: Sequence[str],
    *,
    timeout: float,
    environment: Mapping[str, str],
    cwd: Path | None = None,
    input: bytes = b"",
    check: bool = True,
    limit: int = OUTPUT_LIMIT,
    pass_fds: Sequence[int] = (),
) -> Completed:
    """Run a program to its end.

    `timeout` in seconds. With `check`, a code other than 0 raises ProcessFailed. Raises ProcessMissing, ProcessTimeout.
    """
    begin = time.monotonic()
    process = start(command, environment=environment, cwd=cwd, pass_fds=pass_fds)
    assert process.stdin and process.stdout and process.stderr
    out, err = Tail(process.stdout, limit), Tail(process.stderr, limit)
    feeder = threading.Thread(target=_feed, args=(process.stdin, input), daemon=True, name="kernelopt-feed")
    feeder.start()
    timed_out = False
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        timed_out = True
    except BaseException:
        stop(process)
        raise
    if not timed_out:
        # Children that were left behind may hold the pipes open: what they would still print is not waited for.
        for tail in (out, err):
            tail.join(1.0)
    code = stop(process, grace=1.0)
    for tail in (out, err):
        tail.join(1.0)
    done = Completed(tuple(command), code, out.text(), err.text(), time.monotonic() - begin)
    if timed_out:
        raise ProcessTimeout(command, None, done.stdout, done.stderr, f"ran past its limit of {timeout:g} s")
    if check and code != 0:
        raise ProcessFailed(command, code, done.stdout, done.stderr, f"ended with code {code}")
    return done


def _feed(stream: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(OSError, ValueError):
        view = memoryview(data)
        while view:
            view = view[stream.write(view) or 0 :]
    with contextlib.suppress(OSError):
        stream.close()
