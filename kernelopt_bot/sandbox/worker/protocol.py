"""The narrow typed protocol between host and worker: framed JSON over two pipes, tensors as raw files.

A frame is 4 bytes of big-endian length and that many bytes of UTF-8 JSON. The worker keeps its own duplicate
of the pipes and points file descriptors 0 and 1 elsewhere, so that nothing the user's code prints can
reach the channel. Requests carry a number that the answer must echo.

    request   {"id": 7, "method": "capture", "params": {...}}
    answer    {"id": 7, "result": {...}}
            | {"id": 7, "error": {"kind": "target_import", "message": "...", "detail": "traceback"}}
              either with "restart": true where this process can use its GPU no longer
    progress  {"id": 7, "progress": {"text": "...", "done": 3, "of": 10}}   (any number, before the answer)

A tensor travels as `TensorRef`: {"file": name relative to the scratch folder, "dtype": "float32",
"shape": [...], "stride": [...], "offset": elements, "storage_bytes": n}; the file is the raw storage.
"""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO

LIMIT = 64 * 1024 * 1024
"""Largest frame in bytes; a longer one is a protocol violation."""
COMPILES = "KERNELOPT_COMPILES"
"""Set in the environment of a kernel worker that runs gate 1 as well, and of a model worker that is started ahead."""
CHANNEL_LOST = 87
"""Code with which a worker ends that can no longer read or write its channel."""


class ProtocolViolation(Exception):
    """The other side sent something that is not a frame of this protocol."""


class WorkerFault(Exception):
    """Raised by worker methods: an anticipated failure that goes to the host as an error answer.

    `kind` is one of: target_import, target_missing, target_constructor, target_inputs, target_forward,
    target_device, no_graphs, unsupported, out_of_memory, non_deterministic, compile_failed, runtime_failed,
    bad_request, declined (of a kind of model that is left alone; `detail` then says what to do).
    """

    def __init__(self, kind: str, message: str, detail: str = "") -> None:
        self.kind, self.message, self.detail = kind, message, detail
        super().__init__(f"{kind}: {message}")


def write_frame(stream: BinaryIO, message: dict[str, Any]) -> None:
    """Raises ProtocolViolation if the message is over the limit, OSError if the pipe is closed."""
    data = json.dumps(message, separators=(",", ":"), allow_nan=True).encode()
    if len(data) > LIMIT:
        raise ProtocolViolation(f"a frame of {len(data)} bytes is over the limit of {LIMIT}")
    stream.write(struct.pack(">I", len(data)) + data)
    stream.flush()


def read_frame(stream: BinaryIO) -> dict[str, Any] | None:
    """None at a clean end of the stream. Raises ProtocolViolation."""
    head = stream.read(4)
    if not head:
        return None
    if len(head) < 4:
        raise ProtocolViolation("the stream ended inside a frame")
    (length,) = struct.unpack(">I", head)
    if length > LIMIT:
        raise ProtocolViolation(f"a frame of {length} bytes is over the limit of {LIMIT}")
    data = stream.read(length)
    if len(data) < length:
        raise ProtocolViolation("the stream ended inside a frame")
    try:
        message = json.loads(data)
    except ValueError as e:
        raise ProtocolViolation(f"a frame is not JSON: {e}") from e
    if not isinstance(message, dict):
        raise ProtocolViolation("a frame is not an object")
    return message
