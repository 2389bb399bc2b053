"""The stand-in's HTTP side."""

from __future__ import annotations

import base64
import functools
import json
import os
import socket
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.github_stand_in import actions_api, checks_api, pulls_api, repository_api
from tests.github_stand_in.description import Description
from tests.github_stand_in.hub import Answer, Arguments, Hub, Repo, forbidden, not_found

TOKEN = "stand-in-token"
Handle = Callable[[Hub, Repo, Arguments, Arguments, dict[str, Any]], Answer]
HANDLERS: dict[str, Handle] = {
    "repos/get": repository_api.get_repository,
    "repos/compare-commits": repository_api.compare,
    "repos/get-collaborator-permission-level": pulls_api.permission,
    "git/create-blob": repository_api.create_blob,
    "git/get-blob": repository_api.get_blob,
    "git/create-tree": repository_api.create_tree,
    "git/get-tree": repository_api.get_tree,
    "git/create-commit": repository_api.create_commit,
    "git/get-commit": repository_api.get_commit,
    "git/get-ref": repository_api.get_ref,
    "git/list-matching-refs": repository_api.matching_refs,
    "git/create-ref": repository_api.create_ref,
    "git/update-ref": repository_api.update_ref,
    "git/delete-ref": repository_api.delete_ref,
    "pulls/create": pulls_api.create_pull,
    "pulls/get": pulls_api.get_pull,
    "pulls/list": pulls_api.list_pulls,
    "pulls/update": pulls_api.update_pull,
    "pulls/request-reviewers": pulls_api.request_reviewers,
    "issues/get": pulls_api.get_issue,
    "issues/create": checks_api.create_issue,
    "issues/update": checks_api.update_issue,
    "issues/list-for-repo": checks_api.list_issues,
    "issues/create-comment": checks_api.create_comment,
    "issues/list-comments": checks_api.list_comments,
    "issues/get-comment": pulls_api.get_comment,
    "issues/update-comment": pulls_api.update_comment,
    "issues/create-label": pulls_api.create_label,
    "issues/add-labels": pulls_api.add_labels,
    "reactions/create-for-issue-comment": pulls_api.react,
    "actions/list-artifacts-for-repo": actions_api.list_artifacts,
    "actions/get-workflow-run": actions_api.get_run,
    "actions/cancel-workflow-run": actions_api.cancel_run,
    "checks/create": checks_api.create_check,
    "checks/update": checks_api.update_check,
    "checks/list-for-ref": checks_api.list_checks,
}


def start(root: Path, description: Description | None = None) -> Hub:
    """Serves on a free port of the loopback interface until `hub.stop()`; `hub.url` is what GITHUB_API_URL must be."""
    hub = Hub(root, description or shared_description())
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=functools.partial(server.serve_forever, poll_interval=0.05), daemon=True)
    thread.start()

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    hub.stop = stop
    return hub


@functools.cache
def shared_description() -> Description:
    """Read once: it takes a second."""
    return Description()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Else each answer waits 40 ms for the acknowledgement of its headers.
    disable_nagle_algorithm = True
    hub: Hub
    _drop = False
    _delay_s = 0.0

    def log_message(self, *args: object) -> None:
        """Nothing: tests read `hub.log`."""

    def _serve(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length) if length else b""
        if ".git/" in url.path:
            self._git(url, raw)
            return
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        with self.hub.lock, self.hub.acting(self._token):
            status, body, headers = self._answer(url.path, query, json.loads(raw) if raw else None)
        if self._delay_s:
            time.sleep(self._delay_s)
        if self._drop:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._reply(status, b"" if body is None else json.dumps(body).encode(), headers)

    @property
    def _token(self) -> str:
        return str(self.headers.get("Authorization", "")).partition(" ")[2]

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _serve

    def _answer(self, path: str, query: Arguments, body: Any) -> tuple[int, Any, tuple[tuple[str, str], ...]]:
        hub = self.hub
        self._drop, self._delay_s = False, 0.0
        if self._token != TOKEN and self._token not in hub.others:
            return 401, {"message": "Bad credentials", "status": "401"}, ()
        found = hub.description.match(self.command, path)
        if found is None:
            hub.violations.append(f"{self.command} {path}: no such operation")
            return (*not_found(), ())
        operation, arguments = found
        fault = hub.death() or hub.fault_for(operation.id)
        if fault is not None:
            self._drop, self._delay_s = fault.drop, fault.delay_s
        if fault is not None and not fault.after and fault.status:
            hub.log.append((operation.id, fault.status))
            return fault.status, {"message": fault.message}, fault.headers
        errors = hub.description.request_errors(operation, arguments, query, body)
        if errors:
            hub.violations.append(f"{operation.id} request: {errors}")
            return 422, {"message": "Validation Failed", "errors": errors}, ()
        status, answer = self._handle(operation.id, arguments, query, body)
        errors = hub.description.answer_errors(operation, status, json.loads(json.dumps(answer)))
        if errors:
            hub.violations.append(f"{operation.id} answer {status}: {errors}")
        if fault is not None and fault.status:
            status, answer = fault.status, {"message": fault.message}
        hub.log.append((operation.id, status))
        return status, answer, fault.headers if fault is not None else ()

    def _handle(self, operation: str, arguments: Arguments, query: Arguments, body: Any) -> Answer:
        repo = self.hub.find(arguments)
        if repo is None:
            return not_found()
        if self.command != "GET" and not repo.push:
            return forbidden()
        try:
            return HANDLERS[operation](self.hub, repo, arguments, query, body or {})
        except Exception as e:
            self.hub.violations.append(f"{operation}: the stand-in failed: {e!r}")
            return 500, {"message": "the stand-in failed"}

    def _reply(self, status: int, body: bytes, headers: tuple[tuple[str, str], ...]) -> None:
        self.send_response(status)
        usual = {
            "Content-Type": "application/json; charset=utf-8",
            "X-RateLimit-Limit": "5000",
            "X-RateLimit-Remaining": "4999",
            "X-RateLimit-Reset": str(int(time.time()) + 3600),
        }
        for name, value in (usual | dict(headers)).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _git(self, url: urllib.parse.SplitResult, raw: bytes) -> None:
        """git over smart HTTP, by git's own `http-backend`."""
        expected = "Basic " + base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()
        if self.headers.get("Authorization") != expected:
            self._reply(401, b"{}", (("WWW-Authenticate", 'Basic realm="git"'),))
            return
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "GIT_PROJECT_ROOT": str(self.hub.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "PATH_INFO": url.path,
            "QUERY_STRING": url.query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(raw)),
            "REMOTE_USER": "bot",
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(["git", "http-backend"], input=raw, env=environment, capture_output=True, check=False)
        head, _, out = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        self.send_response(int(headers.pop("Status", "200").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(out)))
        self.end_headers()
        self.wfile.write(out)
