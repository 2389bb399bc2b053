"""The stand-in's state: bare git repositories, and what GitHub keeps about them in memory."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.github_stand_in.description import Description

Answer = tuple[int, Any]
Arguments = dict[str, str]
_ENVIRONMENT = {
    "PATH": os.environ.get("PATH", ""),
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "stand-in",
    "GIT_AUTHOR_EMAIL": "stand-in@example.invalid",
    "GIT_COMMITTER_NAME": "stand-in",
    "GIT_COMMITTER_EMAIL": "stand-in@example.invalid",
}


class GitFailed(Exception):
    """git's own words."""


@dataclass
class Fault:
    """Answers the next `times` requests of `operation` (`*`: of any) with `status`; `after` doing the work."""

    operation: str
    status: int
    message: str = "injected"
    headers: tuple[tuple[str, str], ...] = ()
    times: int = 1
    after: bool = False
    drop: bool = False
    """Closes the connection instead of answering."""
    delay_s: float = 0.0
    """Waits before it answers; the request is then carried out, and answered as usual unless `drop`."""


@dataclass
class Repo:
    owner: str
    name: str
    path: Path
    push: bool = True
    """Whether the token may write."""
    push_shown: bool = True
    """What `permissions.push` says: GitHub says false to apps that may."""
    archived: bool = False
    pulls: dict[int, dict[str, Any]] = field(default_factory=dict)
    comments: dict[int, dict[str, Any]] = field(default_factory=dict)
    reactions: list[dict[str, Any]] = field(default_factory=list)
    checks: dict[int, dict[str, Any]] = field(default_factory=dict)
    annotations: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    issues: dict[int, dict[str, Any]] = field(default_factory=dict)
    labels: dict[str, dict[str, Any]] = field(default_factory=dict)
    issue_labels: dict[int, list[str]] = field(default_factory=dict)
    requested: dict[int, list[str]] = field(default_factory=dict)
    """Pull request -> reviewers asked, teams with `@` in front."""
    mergeable: dict[int, bool | None] = field(default_factory=dict)
    """What GitHub says of a pull request, where that isn't what git says."""
    runs: dict[int, str] = field(default_factory=dict)
    """Workflow run -> its status."""
    artifacts: list[tuple[int, str, str]] = field(default_factory=list)
    """(workflow run, name, time of creation) of workflow artifacts, oldest first."""
    permissions: dict[str, str] = field(default_factory=dict)
    """User -> `admin`, `write`, `read` or `none`; others are unknown."""

    @property
    def full_name(self) -> str:
        return f"{self.owner}/{self.name}"

    def git(self, *command: str, stdin: bytes | None = None, **environment: str) -> str:
        """Without white space at the ends. Raises GitFailed."""
        return self.raw(*command, stdin=stdin, **environment).decode().strip()

    def raw(self, *command: str, stdin: bytes | None = None, **environment: str) -> bytes:
        """Raises GitFailed."""
        done = subprocess.run(
            ["git", "-C", str(self.path), *command],
            input=stdin,
            capture_output=True,
            env=_ENVIRONMENT | environment,
            check=False,
        )
        if done.returncode:
            raise GitFailed(done.stderr.decode().strip())
        return done.stdout

    def sha(self, revision: str) -> str:
        """'' if there is no such thing."""
        try:
            return self.git("rev-parse", "--verify", "--quiet", "--end-of-options", revision)
        except GitFailed:
            return ""

    def commit(self, branch: str, files: dict[str, str], message: str = "change") -> str:
        """A commit on `branch` (made from `main` where it is new), as somebody's push would leave it."""
        ref = f"refs/heads/{branch}"
        parent = self.sha(ref) or self.sha("refs/heads/main")
        with tempfile.TemporaryDirectory() as scratch:
            index = {"GIT_INDEX_FILE": f"{scratch}/index"}
            if parent:
                self.git("read-tree", parent, **index)
            for path, content in files.items():
                blob = self.git("hash-object", "-w", "--stdin", stdin=content.encode())
                self.git("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", **index)
            tree = self.git("write-tree", **index)
        sha = self.git("commit-tree", tree, *(("-p", parent) if parent else ()), "-m", message)
        self.git("update-ref", ref, sha)
        return sha


class Hub:
    """One GitHub. `log` holds (operation, status) of every answered request."""

    def __init__(self, root: Path, description: Description) -> None:
        self.root, self.description = root, description
        self.url = ""
        self.login, self.app = "kernelopt[bot]", "kernelopt"
        """Whom the token belongs to."""
        self.others: dict[str, tuple[str, str]] = {}
        """Further tokens, each with its (login, slug of its App)."""
        self.stop: Callable[[], None] = lambda: None
        self.lock = threading.RLock()
        self.repos: dict[str, Repo] = {}
        self.log: list[tuple[str, int]] = []
        self.violations: list[str] = []
        self.faults: list[Fault] = []
        self._last_id = 1000
        self._dead_from, self._dead_after, self._served = -1, False, 0

    @contextlib.contextmanager
    def acting(self, token: str) -> Iterator[None]:
        """What is made meanwhile is made by whom `token` belongs to; `lock` is held."""
        own = self.login, self.app
        self.login, self.app = self.others.get(token, own)
        try:
            yield
        finally:
            self.login, self.app = own

    def create_repo(self, full_name: str, files: dict[str, str] | None = None) -> Repo:
        """A repository whose `main` holds one commit with `files`."""
        owner, _, name = full_name.partition("/")
        path = self.root / owner / f"{name}.git"
        path.mkdir(parents=True)
        repo = self.repos[full_name] = Repo(owner, name, path)
        repo.git("init", "-q", "--bare", "-b", "main")
        repo.git("config", "http.receivepack", "true")
        repo.commit("main", files or {"README.md": "A repository.\n"}, "first")
        return repo

    def fail(
        self,
        operation: str,
        status: int,
        message: str = "injected",
        *,
        times: int = 1,
        after: bool = False,
        headers: tuple[tuple[str, str], ...] = (),
        drop: bool = False,
        delay_s: float = 0.0,
    ) -> None:
        """See `Fault`; a `delay_s` with `status` 0 leaves the answer what it is."""
        self.faults.append(Fault(operation, status, message, headers, times, after, drop, delay_s))

    def die_at(self, request: int, *, after: bool) -> None:
        """From request number `request` (from 0) on nothing is answered; that one is still carried out if `after`.

        `request` -1: everything is answered again.
        """
        self._dead_from, self._dead_after, self._served = request, after, 0

    def death(self) -> Fault | None:
        """The fault of the next request under `die_at`."""
        if self._dead_from < 0:
            return None
        self._served += 1
        if self._served <= self._dead_from:
            return None
        first = self._served == self._dead_from + 1
        return Fault("*", 502, after=first and self._dead_after, drop=True)

    def fault_for(self, operation: str) -> Fault | None:
        for fault in self.faults:
            if fault.times and fault.operation in ("*", operation):
                fault.times -= 1
                return fault
        return None

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def find(self, a: Arguments) -> Repo | None:
        return self.repos.get(f"{a['owner']}/{a['repo']}")

    def api(self, repo: Repo, tail: str = "") -> str:
        return f"{self.url}/repos/{repo.full_name}{tail}"

    def page(self, repo: Repo, tail: str = "") -> str:
        return f"{self.url}/{repo.full_name}{tail}"


def not_found() -> Answer:
    return 404, {"message": "Not Found", "documentation_url": "https://docs.github.com/rest", "status": "404"}


def forbidden(message: str = "Resource not accessible by integration") -> Answer:
    return 403, {"message": message, "documentation_url": "https://docs.github.com/rest", "status": "403"}


def invalid(message: str, resource: str = "", name: str = "", code: str = "custom") -> Answer:
    """422. With a resource, in the form that lists errors one by one."""
    body: dict[str, Any] = {"message": message, "documentation_url": "https://docs.github.com/rest"}
    if resource:
        body |= {
            "message": "Validation Failed",
            "errors": [{"resource": resource, "field": name, "code": code, "message": message}],
        }
    return 422, body
