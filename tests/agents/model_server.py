"""A scripted server of both interfaces on loopback: it answers what it is told to, in order, over a real socket."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Scene = Mapping[str, Any]
"""`{"text": ...}` and further keys: see `Server`."""


@dataclass
class Seen:
    path: str
    body: dict[str, Any]
    at: float
    key: str
    headers: dict[str, str]


@dataclass
class Server:
    """Scenes are answered in order, the last one again and again. A scene may have

    `text`, `refusal`, `finish` (`stop`), `usage` (input, cached, output, reasoning; None: none), `pieces` of the text,
    `echo`: the text is what was asked;
    `status` with `error` (message, code, param) and `headers`; `drop`: the connection closes without an answer;
    `stall_s`: silence after the first piece; `pings_s`: only signs of life after it; `cut`: the connection closes
    after the first piece; `raw`: (content type, bytes); `refuses`: parameters that get a 400 which names them.
    """

    scenes: list[Scene]
    by: Callable[[Mapping[str, Any]], Scene] | None = None
    """Instead of scenes: what to answer to a request's body, whatever the order in which they come."""
    seen: list[Seen] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    under_way: int = 0
    most: int = 0
    over: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def next(self, body: Mapping[str, Any]) -> Scene:
        with self.lock:
            if self.by is not None:
                return self.by(body)
            return self.scenes.pop(0) if len(self.scenes) > 1 else self.scenes[0]

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [s.body for s in self.seen]


@contextmanager
def serving(*scenes: Scene, by: Callable[[Mapping[str, Any]], Scene] | None = None) -> Iterator[Server]:
    server = Server(list(scenes), by)

    class Handler(_Handler):
        script = server

    http = _Http(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    server.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
    try:
        yield server
    finally:
        server.over.set()
        http.shutdown()
        http.server_close()
        thread.join()


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that give up are what is tested here."""


class _Handler(BaseHTTPRequestHandler):
    script: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers.get("Authorization", "").removeprefix("Bearer ")
        with self.script.lock:
            self.script.seen.append(
                Seen(self.path, body, time.monotonic(), key, {k.lower(): v for k, v in self.headers.items()}))
            self.script.under_way += 1
            self.script.most = max(self.script.most, self.script.under_way)
        try:
            self._answer(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with self.script.lock:
                self.script.under_way -= 1

    def _answer(self, body: dict[str, Any]) -> None:
        scene = self.script.next(body)
        if scene.get("echo"):
            scene = {**scene, "text": body["messages" if "messages" in body else "input"][-1]["content"]}
        if wait := scene.get("wait_s"):
            self.script.over.wait(wait)
        chat = self.path == "/v1/chat/completions"
        if not chat and self.path != "/v1/responses":
            self._status({"status": 404, "error": {"message": "no such path"}})
        elif scene.get("drop"):
            self.close_connection = True
        elif "status" in scene:
            self._status(scene)
        elif unknown := next((p for p in scene.get("refuses", ()) if p in body), None):
            self._status({"status": 400, "error": {"message": f"Unrecognized request argument: {unknown}"}})
        elif "raw" in scene:
            self._send(200, *scene["raw"])
        elif body.get("stream"):
            self._stream(scene, body, chat)
        else:
            whole = _chat(scene, body) if chat else _response(scene, body)
            self._send(200, "application/json", json.dumps(whole).encode())

    def _status(self, scene: Scene) -> None:
        error = {"message": "", "type": "x", "param": None, "code": None} | scene.get("error", {})
        self._send(scene["status"], "application/json", json.dumps({"error": error}).encode(), scene.get("headers", {}))

    def _send(self, status: int, kind: str, content: bytes, headers: Mapping[str, str] = {}) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, scene: Scene, body: dict[str, Any], chat: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number, event in enumerate(_chat_events(scene, body) if chat else _response_events(scene, body)):
            name = "" if chat else f"event: {event['type']}\n"
            self._chunk(f"{name}data: {json.dumps(event)}\n\n")
            if number == 0:
                if scene.get("cut"):
                    self.close_connection = True
                    return
                if stall := scene.get("stall_s"):
                    self.script.over.wait(stall)
                end = time.monotonic() + scene.get("pings_s", 0.0)
                while time.monotonic() < end and not self.script.over.wait(0.02):
                    self._chunk(": still here\n\n")
        if chat:
            self._chunk("data: [DONE]\n\n")
        self._chunk("")

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


def _pieces(scene: Scene) -> list[str]:
    text, count = scene.get("text", ""), scene.get("pieces", 3)
    size = max(1, -(-len(text) // count))
    return [text[i:i + size] for i in range(0, len(text), size)]


def _usage(scene: Scene) -> tuple[int, int, int, int] | None:
    found: tuple[int, int, int, int] | None = scene.get("usage", (100, 0, 20, 0))
    return found


def _chat_count(scene: Scene) -> dict[str, Any] | None:
    if (u := _usage(scene)) is None:
        return None
    return {"prompt_tokens": u[0], "completion_tokens": u[2], "total_tokens": u[0] + u[2],
            "prompt_tokens_details": {"cached_tokens": u[1]}, "completion_tokens_details": {"reasoning_tokens": u[3]}}


def _chat(scene: Scene, body: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": scene.get("text"), "refusal": scene.get("refusal")}
    choice = {"index": 0, "message": message, "finish_reason": scene.get("finish", "stop"), "logprobs": None}
    return {"id": "chat-1", "object": "chat.completion", "created": 1, "model": body["model"],
            "usage": _chat_count(scene), "choices": [choice]}


def _chat_events(scene: Scene, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    base = {"id": "chat-1", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}

    def event(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}]}

    for piece in _pieces(scene):
        yield event({"content": piece})
    if "refusal" in scene:
        yield event({"refusal": scene["refusal"]})
    if "breaks" in scene:
        yield {"error": {"message": scene["breaks"], "type": "server_error", "code": None}}
        return
    if scene.get("finish", "stop"):
        yield event({}, scene.get("finish", "stop"))
    if body.get("stream_options", {}).get("include_usage"):
        yield {**base, "choices": [], "usage": _chat_count(scene)}


def _response(scene: Scene, body: dict[str, Any]) -> dict[str, Any]:
    finish = scene.get("finish", "stop")
    content: list[dict[str, Any]] = []
    if "refusal" in scene:
        content.append({"type": "refusal", "refusal": scene["refusal"]})
    if scene.get("text"):
        content.append({"type": "output_text", "text": scene["text"], "annotations": []})
    u = _usage(scene)
    status = "failed" if "breaks" in scene else "completed" if finish == "stop" else "incomplete"
    reason = {"length": "max_output_tokens"}.get(finish, finish)
    return {
        "id": "resp-1", "object": "response", "created_at": 1, "model": body["model"], "status": status,
        "error": {"code": "server_error", "message": scene["breaks"]} if "breaks" in scene else None,
        "incomplete_details": {"reason": reason} if status == "incomplete" else None,
        "output": [{"type": "reasoning", "id": "r", "summary": []},
                   {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": content}],
        "usage": None if u is None else {
            "input_tokens": u[0], "input_tokens_details": {"cached_tokens": u[1]}, "output_tokens": u[2],
            "output_tokens_details": {"reasoning_tokens": u[3]}, "total_tokens": u[0] + u[2]},
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "temperature": None, "top_p": None}


def _response_events(scene: Scene, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    done = _response(scene, body)
    place = {"item_id": "m", "output_index": 1, "content_index": 0, "logprobs": []}
    begun = {**done, "status": "in_progress", "output": []}
    yield {"type": "response.created", "sequence_number": 0, "response": begun}
    for piece in _pieces(scene):
        yield {"type": "response.output_text.delta", "sequence_number": 1, "delta": piece, **place}
    if scene.get("finish", "stop"):
        yield {"type": f"response.{done['status']}", "sequence_number": 2, "response": done}
