"""A worker that breaks the protocol: started in the place of an interpreter, misbehaves as the method's name says."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import struct
import sys
import threading
import time
from typing import Any

requests, answers = sys.stdin.buffer, sys.stdout.buffer


def frame(message: Any) -> bytes:
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack(">I", len(data)) + data


def send(data: bytes) -> None:
    answers.write(data)
    answers.flush()


def write_file(path: str, mib: int) -> None:
    with open(path, "wb") as file:
        for _ in range(mib):
            file.write(os.urandom(1 << 20))


def make_file(what: str, path: str, outside: str) -> None:
    if what == "link":
        os.symlink(outside, path)
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        os.mkdir(path)
    elif what != "none":
        with open(path, "wb") as file:
            file.write(b"x" * {"short": 4, "long": 400, "right": 8}[what])


def swap_for_ever(path: str, outside: str, answer: bytes) -> None:
    """The name stands for a file and for a link in turn, as fast as can be."""
    with open(path + ".file", "wb") as file:
        file.write(b"x" * 8)
    os.symlink(outside, path + ".link")
    os.link(path + ".file", path)
    if os.fork() == 0:
        while True:
            for kind in (".link", ".file"):
                os.link(path + kind, path + ".new", follow_symlinks=False)
                os.replace(path + ".new", path)
                with contextlib.suppress(OSError):
                    os.unlink(path + ".new")
    send(answer)


def take(how: str, mib: int) -> list[Any]:
    """Holds that much memory, in one of the ways in which a process can."""
    if how == "own":
        return [bytearray(os.urandom(1 << 20)) for _ in range(mib)]
    if how == "children":
        for _ in range(4):
            if os.fork() == 0:
                held = take("own", mib // 4)
                time.sleep(20)
                os._exit(len(held) % 2)
        return []
    if how == "shared":
        pages = mmap.mmap(-1, mib << 20)
        for _ in range(mib):
            pages.write(os.urandom(1 << 20))
        return [pages]
    descriptor = os.memfd_create("hidden")
    for _ in range(mib):
        os.write(descriptor, os.urandom(1 << 20))
    return [descriptor]


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
        held = take(params["how"], int(params["mib"]))
        time.sleep(20)
        send(frame({"id": number, "result": {"held": len(held)}}))
    elif method in ("load", "capture"):
        with open(os.path.join(params["folder"], "calls"), "a") as file:
            file.write(f"{method} {os.getpid()}\n")
        send(frame(result))
    elif method == "time_model":
        send(frame({"id": number, "result": params}))
    elif method == "lost GPU":
        send(frame({**result, "restart": True}))
        time.sleep(60)
    elif method == "not lost":
        send(frame({"id": number, "progress": {"text": "x"}, "restart": True}))
        time.sleep(60)
    elif method == "late":
        time.sleep(params["seconds"])
        send(frame(result))
    elif method == "replay":
        # What an earlier question was answered with, or what this one might be numbered.
        send(frame({"id": params["number"], "result": {"ok": True}}))
    elif method == "numbers":
        send(b"".join(frame(m) for m in (f'{{"id": {number}, "result": {params["text"]}}}'.encode(),)))
    elif method == "file":
        reference = params["reference"]
        make_file(params["what"], os.path.join(params["folder"], str(reference["file"])), params["outside"])
        send(frame({"id": number, "result": {"saved": [reference]}}))
    elif method == "swaps":
        swap_for_ever(os.path.join(params["folder"], "tensor.raw"), params["outside"], frame(result))
    elif method == "endless words":
        while True:
            os.write(2, b"x" * 65536)
    elif method == "tasks":
        for _ in range(params["count"]):
            if os.fork() == 0:
                time.sleep(30)
                os._exit(0)
        time.sleep(20)
    elif method == "threads":
        for _ in range(params["count"]):
            threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
        time.sleep(20)
    elif method == "files":
        for i in range(params["count"]):
            write_file(os.path.join(params["folder"], f"file-{i}"), params["mib"])
        time.sleep(20)
    elif method == "one file":
        try:
            write_file(os.path.join(params["folder"], "file"), params["mib"])
        except OSError as e:
            send(frame({"id": number, "error": {"kind": "bad_request", "message": str(e), "detail": ""}}))
        else:
            send(frame(result))
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
