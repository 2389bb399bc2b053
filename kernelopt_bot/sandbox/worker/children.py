"""Compiling side by side: each job in a forked child of the worker, which has torch and triton loaded already.

A child starts in milliseconds where a worker takes seconds, and a compiler that crashes or hangs takes no other job
with it. CUDA does not survive a fork: a worker with a GPU forks a `Nursery` before it touches the GPU, and the children
are that one's.
"""

from __future__ import annotations

import functools
import json
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelopt_bot.sandbox.worker.protocol import WorkerFault

Job = Callable[[], dict[str, Any]]


class Nursery:
    """A process that is forked once and answers requests from then on, by forks of its own."""

    def __init__(self, handle: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """`handle` runs in the new process. Both ends speak JSON, a line each way."""
        ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                # Above all the worker's pipes: its end has to reach the host.
                os.closerange(3, theirs.fileno())
                os.closerange(theirs.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
                _serve(theirs, handle)
            finally:
                os._exit(0)
        theirs.close()
        self._file = ours.makefile("rwb")
        ours.close()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Raises WorkerFault: the handler's, or `bug` if the process is gone."""
        try:
            self._file.write(json.dumps(request).encode() + b"\n")
            self._file.flush()
            line = self._file.readline()
        except OSError as e:
            raise WorkerFault("bug", f"the process that compiles is gone: {e}") from e
        if not line:
            raise WorkerFault("bug", "the process that compiles is gone")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerFault(**answer["error"])
        return dict(answer["result"])

    def close(self) -> None:
        """It ends by the end of its input."""
        self._file.close()
        os.waitpid(self.pid, 0)


def _serve(peer: socket.socket, handle: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    with peer.makefile("rwb") as file:
        for line in file:
            request = json.loads(line)
            file.write(json.dumps(_done(functools.partial(handle, request))).encode() + b"\n")
            file.flush()


@dataclass
class _Child:
    index: int
    pid: int
    deadline: float
    text: bytearray = field(default_factory=bytearray)


def run_each(jobs: Sequence[Job], *, processes: int, timeout_s: float) -> list[dict[str, Any]]:
    """`{"result": ...}` or `{"error": {kind, message, detail}}` a job, in order; at most `processes` at a time.

    Kinds of error: those of a WorkerFault, `bug`, and `compile_failed` for a child that crashed or took longer than
    `timeout_s` (seconds of wall time).
    """
    answers: list[dict[str, Any]] = [{} for _ in jobs]
    waiting = list(range(len(jobs)))[::-1]
    running = 0
    with selectors.DefaultSelector() as selector:
        while waiting or running:
            while waiting and running < max(processes, 1):
                index = waiting.pop()
                reader, child = _fork(jobs[index], index, timeout_s)
                selector.register(reader, selectors.EVENT_READ, child)
                running += 1
            for key, _ in selector.select(timeout=0.5):
                if chunk := os.read(key.fd, 1 << 16):
                    key.data.text += chunk
                    continue
                selector.unregister(key.fd)
                os.close(key.fd)
                running -= 1
                answers[key.data.index] = _answer(key.data)
            now = time.monotonic()
            for key in list(selector.get_map().values()):
                if now > key.data.deadline:
                    # Its end closes the pipe, which ends it above.
                    os.kill(key.data.pid, signal.SIGKILL)
                    key.data.text.clear()
                    key.data.text += json.dumps(_error("compile_failed", f"no end within {timeout_s:g} s")).encode()
                    key.data.deadline = float("inf")
    return answers


def _fork(job: Job, index: int, timeout_s: float) -> tuple[int, _Child]:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reader)
            with os.fdopen(writer, "wb") as out:
                out.write(json.dumps(_done(job)).encode())
            code = 0
        finally:
            # Never back into the worker's loop, whose pipes are its parent's.
            os._exit(code)
    os.close(writer)
    return reader, _Child(index, pid, time.monotonic() + timeout_s)


def _done(job: Job) -> dict[str, Any]:
    try:
        return {"result": job()}
    except WorkerFault as e:
        return _error(e.kind, e.message, e.detail)
    except MemoryError:
        return _error("out_of_memory", "the host's memory is used up")
    except Exception as e:
        return _error("bug", f"{type(e).__name__}: {e}")


def _error(kind: str, message: str, detail: str = "") -> dict[str, Any]:
    return {"error": {"kind": kind, "message": message, "detail": detail}}


def _answer(child: _Child) -> dict[str, Any]:
    _, status = os.waitpid(child.pid, 0)
    try:
        answer = json.loads(bytes(child.text))
    except ValueError:
        how = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"code {os.WEXITSTATUS(status)}"
        return _error("compile_failed", f"the compiler ended with {how}")
    return answer if isinstance(answer, dict) else _error("compile_failed", "the compiler's answer is not understood")
