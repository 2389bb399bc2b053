"""The host's end of the protocol: every read and write has a deadline, and nothing the worker sends is trusted."""

from __future__ import annotations

import json
import os
import select
import struct
import time
from typing import IO, Any

from kernelopt_bot.sandbox.worker.protocol import LIMIT, ProtocolViolation


class Closed(Exception):
    """The other end is gone."""


class Expired(Exception):
    """The deadline passed."""


class Channel:
    """Frames over two pipes. Deadlines are values of `time.monotonic()`."""

    def __init__(self, requests: IO[bytes], answers: IO[bytes]) -> None:
        self._out, self._in = requests.fileno(), answers.fileno()
        for descriptor in (self._out, self._in):
            os.set_blocking(descriptor, False)
        self.received = 0
        """Bytes read so far."""

    def send(self, message: dict[str, Any], deadline: float) -> None:
        """Raises Closed, Expired; ValueError if the message is over the limit."""
        data = json.dumps(message, separators=(",", ":")).encode()
        if len(data) > LIMIT:
            raise ValueError(f"a request of {len(data)} bytes is over the limit of {LIMIT}")
        view = memoryview(struct.pack(">I", len(data)) + data)
        while view:
            _wait(self._out, select.POLLOUT, deadline)
            try:
                view = view[os.write(self._out, view) :]
            except BlockingIOError:
                continue
            except OSError as e:
                raise Closed from e

    def receive(self, deadline: float) -> dict[str, Any]:
        """Raises Closed, Expired, ProtocolViolation."""
        (length,) = struct.unpack(">I", self._exactly(4, deadline))
        if length > LIMIT:
            raise ProtocolViolation(f"a frame of {length} bytes is over the limit of {LIMIT}")
        data = self._exactly(length, deadline)
        try:
            message = json.loads(data)
        except (ValueError, RecursionError) as e:
            raise ProtocolViolation("a frame is not JSON") from e
        if not isinstance(message, dict):
            raise ProtocolViolation("a frame is not an object")
        return message

    def pending(self) -> bool:
        """Whether something was sent that nobody asked for."""
        return any(event & select.POLLIN for _, event in _poll(self._in, select.POLLIN, 0))

    def _exactly(self, count: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < count:
            _wait(self._in, select.POLLIN, deadline)
            try:
                chunk = os.read(self._in, min(count - len(data), 1 << 20))
            except BlockingIOError:
                continue
            except OSError as e:
                raise Closed from e
            if not chunk:
                raise Closed
            data += chunk
            self.received += len(chunk)
        return bytes(data)


def _poll(descriptor: int, events: int, seconds: float) -> list[tuple[int, int]]:
    poll = select.poll()
    poll.register(descriptor, events)
    return poll.poll(seconds * 1000)


def _wait(descriptor: int, events: int, deadline: float) -> None:
    left = deadline - time.monotonic()
    if left <= 0 or not _poll(descriptor, events, left):
        raise Expired
