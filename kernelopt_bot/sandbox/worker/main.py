"""The worker's loop: one request at a time, dispatched to the methods of its role.

Started as `python -I -B -c "..."` by `sandbox/client.py` with the role and the scratch folder: `model` (may import
the user's code) or `kernel` (never does).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO, NoReturn

from kernelopt_bot.sandbox.worker.importing import importing
from kernelopt_bot.sandbox.worker.protocol import CHANNEL_LOST, ProtocolViolation, WorkerFault, read_frame, write_frame

Method = Callable[["Context", dict[str, Any]], dict[str, Any]]

ROLES = {"model": "kernelopt_bot.sandbox.worker.model_methods", "kernel": "kernelopt_bot.sandbox.worker.kernel_methods"}
"""Role -> module with a dict `METHODS` of name -> Method, and perhaps `PREPARE`, called before the first question."""


class Context:
    """Handed to each method: the scratch folder, a place for state between calls, and progress."""

    def __init__(self, scratch: str, out: BinaryIO) -> None:
        self.scratch = scratch
        self.state: dict[str, Any] = {}
        self._out = out
        self._id: Any = None

    def progress(self, text: str, done: int = 0, of: int = 0) -> None:
        write_frame(self._out, {"id": self._id, "progress": {"text": text, "done": done, "of": of}})

    def path(self, name: str) -> str:
        """A file in scratch. Raises WorkerFault if the name would leave it."""
        full = os.path.realpath(os.path.join(self.scratch, name))
        if not full.startswith(os.path.realpath(self.scratch) + os.sep):
            raise WorkerFault("bad_request", f"{name!r} is outside the scratch folder")
        return full


def _channel() -> tuple[BinaryIO, BinaryIO]:
    """Take the pipes for ourselves: what the user's code reads or prints goes elsewhere."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    return requests, answers


def _methods(role: str, context: Context) -> tuple[dict[str, Method], Exception | None]:
    try:
        with importing():
            module = importlib.import_module(ROLES[role])
        if (prepare := getattr(module, "PREPARE", None)) is not None:
            prepare(context)
        return module.METHODS, None
    except Exception as e:
        return {}, e


def _channel_lost(error: Exception) -> NoReturn:
    with contextlib.suppress(OSError):
        os.write(2, f"kernelopt worker: the channel to the host is lost: {error}\n".encode())
    os._exit(CHANNEL_LOST)


def _question(requests: BinaryIO) -> dict[str, Any] | None:
    try:
        return read_frame(requests)
    except (OSError, ProtocolViolation) as e:
        _channel_lost(e)


def _gpu_lost() -> bool:
    """Whether an error that stays (an illegal address, a lost device) has made CUDA useless to this process."""
    torch = sys.modules.get("torch")
    try:
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.synchronize()
    except Exception:
        return True
    return False


def main(role: str, scratch: str) -> int:
    requests, answers = _channel()
    context = Context(scratch, answers)
    # Before the first question, which then waits for as little of torch's import as is left.
    methods, failure = _methods(role, context)
    while (request := _question(requests)) is not None:
        context._id = request.get("id")
        try:
            if failure is not None:
                raise failure
            method = methods.get(request["method"])
            if method is None:
                raise WorkerFault("bad_request", f"no method {request['method']!r} in role {role!r}")
            answer: dict[str, Any] = {"result": method(context, request.get("params", {}))}
        except WorkerFault as e:
            answer = {"error": {"kind": e.kind, "message": e.message, "detail": e.detail}}
        except MemoryError:
            answer = {"error": {"kind": "out_of_memory", "message": "the host's memory is used up", "detail": ""}}
        except Exception as e:
            answer = {"error": {"kind": "bug", "message": f"{type(e).__name__}: {e}", "detail": traceback.format_exc()}}
        if _gpu_lost():
            answer["restart"] = True
        try:
            write_frame(answers, {"id": context._id, **answer})
        except OSError as e:
            _channel_lost(e)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
