"""The host's side of a worker: starts it in its jail, calls its methods, and ends it.

    WorkerError
      WorkerFailed      the method says that it failed; the worker lives on
      WorkerCrashed     the process ended (signal, exit, out of memory)
      WorkerTimeout     no answer within the limit
      WorkerLied        what came is not the protocol: wrong number, too large, not JSON, endless, unasked for
        WorkerCut       the channel was closed and the process lived on
After any but the first the process group is dead. So it is after an answer with which the worker says that it lost its
GPU: the answer holds, and `alive` is false. Then `restart()` starts a fresh process; a worker that `revives` does so by
itself at the next call, with its model loaded again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import secrets
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from kernelopt_bot import process
from kernelopt_bot.errors import KerneloptError, Unavailable
from kernelopt_bot.sandbox import cgroup
from kernelopt_bot.sandbox.channel import Channel, Closed, Expired
from kernelopt_bot.sandbox.gpu import Gpu, find_gpu
from kernelopt_bot.sandbox.jail import Box, Jail, Launch
from kernelopt_bot.sandbox.limits import Limits, kill_tree, machine_limits, tree
from kernelopt_bot.sandbox.staging import staged_package
from kernelopt_bot.sandbox.turns import Turns, kind
from kernelopt_bot.sandbox.watch import Watch
from kernelopt_bot.sandbox.worker.protocol import CHANNEL_LOST, LIMIT, ProtocolViolation
from kernelopt_bot.sandbox.worker_environment import compiled_headers, worker_environment

ANSWER_LIMIT = 4 * LIMIT
"""Bytes that one call may send, progress and all."""
PROGRESS_LIMIT = 100_000
"""Progress messages that one call may send."""
STDERR_LIMIT = 64 * 1024
"""Bytes kept of what a worker prints."""
REVIVALS = 8
"""Times in a row that one worker is started again by itself: a model that always ends its process must not go on for
ever."""
CUT = "the code under test closed file descriptors that it did not open, and with them the channel to this process"

# Left by _exit: torch's orderly end takes seconds, and there is nothing to put in order.
_START = (
    "import os, sys; sys.path.insert(0, {package!r}); from kernelopt_bot.sandbox.worker.main import main; "
    "code = main({role!r}, {scratch!r}); sys.stderr.flush(); os._exit(code)"
)


class WorkerError(KerneloptError):
    """Base of what a call can raise."""


class WorkerFailed(WorkerError):
    """An error answer. `kind` as in `protocol.WorkerFault`; message and detail are the worker's words."""

    def __init__(self, kind: str, message: str, detail: str = "") -> None:
        self.kind, self.message, self.detail = kind, defuse(message), defuse(detail)
        super().__init__(f"{kind}: {self.message}")


class WorkerCrashed(WorkerError):
    """The process ended. `how` in words."""

    def __init__(self, how: str, stderr_tail: str = "") -> None:
        self.how, self.stderr_tail = how, stderr_tail
        super().__init__(how)


class WorkerTimeout(WorkerError):
    """No answer within the limit; the process was killed."""


class WorkerLied(WorkerError):
    """What came is not the protocol; the process was killed."""


class WorkerCut(WorkerLied):
    """The channel was closed from inside; the process was killed."""


def defuse(text: str) -> str:
    """The worker's words made harmless for a log: no workflow command, no control character, no secret."""
    text = "".join(c if c in "\n\t" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return process.redact(re.sub(r":(?=:)|#(?=#\[)", lambda found: found.group() + "\N{ZERO WIDTH SPACE}", text))


class Worker:
    """One worker process. A context manager; `call` may be used from one thread at a time."""

    def __init__(
        self,
        role: Literal["model", "kernel"],
        *,
        python: str,
        jail: Jail,
        scratch: Path,
        device: str = "cpu",
        interpret: bool = False,
        readable: Sequence[Path] = (),
        environment: Mapping[str, str] = {},
        limits: Limits | None = None,
        revives: bool = False,
        trace: Callable[[str, float, str], None] | None = None,
        turns: Turns | None = None,
        waited: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """Starts it.

        `python`: the interpreter, absolute. `scratch`: its folder, made if missing. `device`: `cpu`, `cuda`, `cuda:N`
        or a GPU's UUID; inside, the assigned GPU is always `cuda:0`. `interpret`: kernels run on the CPU by Triton's
        interpreter. `readable`: folders it may read. `environment`: additions. `limits`: by default what fits this
        machine. `revives`: a call after the process's end starts it again and repeats `load`. `trace` is told of
        every call: method, seconds, and the name of the error that it raised, '' if none. `turns`: of a GPU that others
        use too; `waited` is told of the seconds that a turn took to come, which are none of the call's.

        Raises Unavailable if there is no such GPU or no folder can be made, ProcessMissing if the jail cannot start.
        """
        scratch = scratch.resolve()
        gpu: Gpu | None = find_gpu(device)
        try:
            scratch.mkdir(parents=True, exist_ok=True)
            package = staged_package()
            whole = worker_environment(
                python=python, scratch=scratch, visible_gpu=gpu.visible if gpu else "", interpret=interpret,
                extra=environment,
            )
        except OSError as e:
            raise Unavailable(
                f"a worker's folders cannot be made: {e.strerror}", where=str(e.filename or scratch),
                fix="free disk space, or make the output folder and TMPDIR writable",
            ) from e
        self.role, self.scratch, self._jail, self._trace = role, scratch, jail, trace
        self._turns, self._waited = turns, waited
        headers = compiled_headers()
        also = [*readable, *([headers] if headers else [])]
        self._box = Box(
            python=python,
            arguments=("-I", "-B", "-c", _START.format(package=str(package), role=role, scratch=str(scratch))),
            environment=whole,
            scratch=scratch,
            # Both names of a folder that is reached by a link.
            readable=tuple(dict.fromkeys([package, *(q for p in also for q in (p.absolute(), p.resolve()))])),
            devices=gpu.nodes if gpu else (),
            limits=machine_limits(scratch) if limits is None else limits,
        )
        self._revives = revives
        self._revivals = REVIVALS if revives else 0
        self._replayed: dict[str, tuple[dict[str, Any], float]] = {}
        self._start()

    def _start(self) -> None:
        self._group = cgroup.Group.make(self._box.limits, cgroup.delegated())
        box = dataclasses.replace(self._box, group=self._group.entrance) if self._group else self._box
        self._launch: Launch = self._jail.wrap(box)
        try:
            self._process: process.Process | None = process.start(
                self._launch.command, environment=self._launch.environment, pass_fds=self._launch.pass_fds
            )
        except BaseException:
            self._launch.finish()
            if self._group:
                self._group.end()
            raise
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._channel = Channel(self._process.stdin, self._process.stdout)
        self._stderr = process.Tail(self._process.stderr, STDERR_LIMIT)
        self._watch = Watch(self._process.pid, self._box.limits, self.scratch)

    @property
    def alive(self) -> bool:
        return self._process is not None

    def processes(self) -> frozenset[int]:
        """The host's numbers of the worker's processes: a GPU that they use is not busy with others' work."""
        return frozenset(tree(self._process.pid)) if self._process is not None else frozenset()

    def stderr(self) -> str:
        """What it printed, bounded and made harmless."""
        return defuse(self._stderr.text())

    def call(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        timeout: float,
        progress: Callable[[dict[str, Any]], None] | None = None,
    ) -> dict[str, Any]:
        """The result of one method. `timeout` in seconds for the whole call.

        Raises WorkerFailed, WorkerCrashed, WorkerTimeout, WorkerLied; ValueError if the request is over the limit.
        """
        if self._turns is None:
            return self._traced(method, params, timeout, progress)
        if method == "time_model" and params.get("pairs"):
            # The arms are compiled beside others' work, so that only their timing keeps others away.
            self.call(method, {**params, "pairs": [], "check": False}, timeout=timeout, progress=progress)
        with self._turns.turn(kind(method, params)) as seconds:
            self._waited(seconds)
            return self._traced(method, params, timeout, progress)

    def _traced(self, method: str, params: Mapping[str, Any], timeout: float,
                progress: Callable[[dict[str, Any]], None] | None) -> dict[str, Any]:
        if self._process is None and (self._revivals <= 0 or method == "load"):
            raise WorkerCrashed("the worker is not running", "")
        begin, outcome = time.monotonic(), ""
        try:
            if self._process is None:
                self._revive()
            result = self._call(method, params, time.monotonic() + timeout, timeout, progress)
            if method == "load":
                self._replayed = {"load": (dict(params), timeout)}
            elif method == "capture" and params.get("lane") == "pretend":
                # Captures for a device that is there are made again when they are wanted.
                self._replayed["capture"] = (dict(params), timeout)
            self._revivals = REVIVALS if self._revives else 0
            return result
        except BaseException as e:
            outcome = type(e).__name__
            raise
        finally:
            if self._trace is not None:
                self._trace(method, time.monotonic() - begin, outcome)

    def _revive(self) -> None:
        """Raises WorkerError if what was loaded can no longer be."""
        self._revivals -= 1
        self.restart()
        for method, (params, timeout) in self._replayed.items():
            self._call(method, params, time.monotonic() + timeout, timeout, None)

    def _call(self, method: str, params: Mapping[str, Any], deadline: float, timeout: float,
              progress: Callable[[dict[str, Any]], None] | None) -> dict[str, Any]:
        # An unpredictable number: an answer made before the question cannot carry it.
        number = secrets.randbelow(1 << 53)
        try:
            if self._channel.pending():
                raise self._lie("it sent something before it was asked")
            self._channel.send({"id": number, "method": method, "params": dict(params)}, deadline)
            return self._answer(number, deadline, progress)
        except Expired:
            self._end()
            raise WorkerTimeout(f"{method} did not answer within {timeout:g} s") from None
        except Closed:
            raise self._crash() from None
        except ProtocolViolation as e:
            raise self._lie(str(e)) from None
        except (WorkerError, ValueError):
            raise
        except BaseException:
            # Interrupted in the middle of a frame: the channel is out of step.
            self._end()
            raise

    def _answer(
        self, number: int, deadline: float, progress: Callable[[dict[str, Any]], None] | None
    ) -> dict[str, Any]:
        begin, reports = self._channel.received, 0
        while True:
            message = self._channel.receive(deadline)
            if message.get("id") != number or isinstance(message.get("id"), bool):
                raise self._lie("it answered another question")
            if self._channel.received - begin > ANSWER_LIMIT or reports > PROGRESS_LIMIT:
                raise self._lie("it does not stop sending")
            kinds = message.keys() - {"id"}
            if message.get("restart") is True and "progress" not in kinds:
                # It cannot use the GPU any more: what it answers is the last that it says.
                kinds -= {"restart"}
                self._end()
            if kinds == {"progress"} and isinstance(message["progress"], dict):
                reports += 1
                if progress is not None:
                    progress(_checked_progress(message["progress"]))
            elif kinds == {"result"} and isinstance(message["result"], dict):
                return message["result"]
            elif kinds == {"error"} and isinstance(message["error"], dict):
                error = message["error"]
                raise WorkerFailed(*(str(error.get(key, ""))[:20_000] for key in ("kind", "message", "detail")))
            else:
                raise self._lie("its answer is neither a result nor an error")

    def _crash(self) -> WorkerError:
        assert self._process is not None
        if process.wait(self._process, 1.0) is None:
            self._end()
            return WorkerCut(f"the worker broke the protocol: {CUT}")
        over = self._watch.exceeded or (self._group.exceeded() if self._group else "")
        code = self._end()
        how = f"{over} and was killed" if over else CUT if code == CHANNEL_LOST else _how(code)
        return WorkerCrashed(how, self.stderr()[-process.TAIL :])

    def _lie(self, what: str) -> WorkerLied:
        self._end()
        return WorkerLied(f"the worker broke the protocol: {what}")

    def _end(self) -> int:
        """Kill what is left of it. Returns its code."""
        if self._process is None:
            return 0
        ended, self._process = self._process, None
        self._watch.stop()
        try:
            # Also those that left the group; once it is waited for, its number may be another's.
            if ended.poll() is None:
                kill_tree(ended.pid)
            code = process.stop(ended, grace=0)
            self._stderr.join(1.0)
        finally:
            self._launch.finish()
            if self._group:
                self._group.end()
        return code

    def restart(self) -> None:
        """A fresh process in the same scratch folder, in place of this one, alive or not."""
        self.close()
        self._start()

    def close(self) -> None:
        """End it: it is asked by the end of its input, then killed. May be called again."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            process.wait(self._process, 2.0)
        self._end()

    def kill(self) -> None:
        """End it without asking: one that is still importing torch does not hear the end of its input."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _checked_progress(report: dict[str, Any]) -> dict[str, Any]:
    done, of = (value if isinstance(value, int) else 0 for value in (report.get("done"), report.get("of")))
    return {"text": defuse(str(report.get("text", "")))[:500], "done": done, "of": of}


def _how(code: int) -> str:
    # Jails that start the program as a child report its signal as 128 + number.
    number = -code if code < 0 else code - 128
    with contextlib.suppress(ValueError):
        if number > 0:
            return f"it was ended by {signal.Signals(number).name}"
    return f"it ended with code {code}"
