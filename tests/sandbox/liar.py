"""A worker that breaks the protocol: started in the place of an interpreter, misbehaves as the method's name says."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import sys
import time
from typing import Any

requests, answers = sys.stdin.buffer, sys.stdout.buffer


def frame(message: Any) -> bytes:
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack(">I", len(data)) + data


def send(data: bytes) -> None:
    answers.write(data)
    answers.flush()


def misbehave(method: str, number: int, params: dict[str, Any]) -> None:
    result = {"id": number, "result": {"ok": True}}
    if method == "honest":
        send(frame({"id": number, "progress": {"text": "::error::half", "done": 1, "of": 2}}) + frame(result))
    elif method == "environment":
        send(frame({"id": number, "result": {"environment": dict(os.environ), "arguments": sys.argv[1:]}}))
    elif method == "other number":
        send(frame({"id": number + 1, "result": {}}))
    elif method == "number as text":
        send(frame({"id": str(number), "result": {}}))
    elif method == "twice":
        send(frame(result) + frame(result))
    elif method == "not JSON":
        send(frame(b"{nonsense"))
    elif method == "deep":
        send(frame(b"[" * 500_000))
    elif method == "not an object":
        send(frame([1]))
    elif method == "both":
        send(frame({**result, "error": {"kind": "x", "message": "y"}}))
    elif method == "result is a list":
        send(frame({"id": number, "result": [1]}))
    elif method == "oversized":
        send(struct.pack(">I", 0xFFFFFFFF) + b"x")
    elif method == "endless progress":
        while True:
            send(frame({"id": number, "progress": {"text": "x"}}) * 1000)
    elif method == "slow drip":
        send(struct.pack(">I", 1000))
        while True:
            send(b" ")
            time.sleep(0.05)
    elif method == "closes":
        os.close(1)
        time.sleep(60)
    elif method == "exits":
        sys.stderr.write("::set-output name=x::y\nlast words\n")
        sys.stderr.flush()
        os._exit(7)
    elif method == "dies":
        os.abort()
    elif method == "half a frame":
        send(frame(result)[:6])
        os._exit(0)
    elif method == "hangs":
        time.sleep(60)
    elif method == "noise":
        for _ in range(2000):
            sys.stderr.write("x" * 1000)
        sys.stderr.flush()
        send(frame(result))
    elif method == "memory":
        held = [bytearray(os.urandom(1 << 20)) for _ in range(int(params["mib"]))]
        time.sleep(20)
        send(frame({"id": number, "result": {"held": len(held)}}))
    elif method == "daemon":
        if os.fork() == 0:
            with contextlib.suppress(OSError):
                os.setsid()
            if os.fork() == 0:
                for stream in (0, 1, 2):
                    os.close(stream)
                while True:
                    with open(params["heartbeat"], "a") as file:
                        file.write("x")
                    time.sleep(0.05)
            os._exit(0)
        os.wait()
        send(frame(result))
    elif method == "error":
        error = {"kind": "target_import", "message": "::warning::no\x1b[31m", "detail": "d"}
        send(frame({"id": number, "error": error}))
    else:
        send(frame({"id": number, "error": {"kind": "bad_request", "message": method, "detail": ""}}))


while head := requests.read(4):
    asked = json.loads(requests.read(struct.unpack(">I", head)[0]))
    misbehave(asked["method"], asked["id"], asked["params"])
