"""`exchanges.jsonl` in the run folder: every question to a brain and its reply, as JSON lines, without secrets.

An exchange is recorded anew, under the same key, once it is known what became of its candidate: a key's last line
counts, for each brain that was asked the question.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from pathlib import Path
from typing import Any

from kernelopt_bot.agents.brain import Exchange
from kernelopt_bot.errors import Unavailable
from kernelopt_bot.process import redact

NAME = "exchanges.jsonl"


class Records:
    """Of one target; safe for several threads. Raises Unavailable where the file cannot be written or read."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._lock = threading.Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _cut_torn_line(self.path)
        except OSError as e:
            raise _unavailable(e) from e

    def record(self, exchange: Exchange) -> None:
        """On disk when it returns."""
        line = json.dumps(_redacted(exchange.to_json()), sort_keys=True).encode() + b"\n"
        with self._lock:
            try:
                descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
                try:
                    size = os.fstat(descriptor).st_size
                    try:
                        _write_all(descriptor, line)
                        os.fsync(descriptor)
                    except OSError:
                        with contextlib.suppress(OSError):
                            os.ftruncate(descriptor, size)
                        raise
                finally:
                    os.close(descriptor)
            except OSError as e:
                raise _unavailable(e) from e

    def load(self) -> tuple[Exchange, ...]:
        """In the order of their first appearance. A line that is no exchange is left out: the record is for
        people and for replay, which says itself what it misses."""
        found: dict[tuple[str, str], Exchange] = {}
        try:
            data = self.path.read_bytes() if self.path.exists() else b""
        except OSError as e:
            raise _unavailable(e) from e
        for line in data.splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                exchange = Exchange.from_json(json.loads(line))
                found[exchange.brain, exchange.key] = exchange
        return tuple(found.values())


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {k: _redacted(v) for k, v in value.items()}
    return [_redacted(v) for v in value] if isinstance(value, list | tuple) else value


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view):]


def _cut_torn_line(path: Path) -> None:
    """What a crash left half written must not become the beginning of the next line."""
    if path.exists():
        data = path.read_bytes()
        if data and not data.endswith(b"\n"):
            os.truncate(path, data.rfind(b"\n") + 1)


def _unavailable(error: OSError) -> Unavailable:
    return Unavailable(f"the record of exchanges cannot be kept: {error.strerror or type(error).__name__}", where=NAME,
                       fix="choose a run folder that can be written")
