"""GitHub's REST interface. The only importer of PyGithub, whose requester brings authentication, GitHub Enterprise's
addresses, proxies and certificates (by the environment's usual variables)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, cast
from urllib.parse import urlencode

import requests

from kernelopt_bot.errors import UserError
from kernelopt_bot.publish.files import check_files, check_removed
from kernelopt_bot.publish.github_errors import Answered, Denied, Raced, explained, words
from kernelopt_bot.publish.lifecycle import Lifecycle
from kernelopt_bot.publish.publication import Publication, Published, Withdrawal
from kernelopt_bot.publish.rest import Json
from kernelopt_bot.publish.retry import LOST, again, is_limit

_DEFAULT_API = "https://api.github.com"
_HEADERS = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
_PAGE = 100
_RACES = 3


class GitHub:
    """Implements `rest.Rest` for `repository` (`owner/name`).

    A failed request is sent up to `attempts` times; a wait that would take it beyond `patience_s` seconds is an error
    instead. `clock` (seconds since the epoch) and `sleep` are the time's; other keyword arguments go to PyGithub's
    client. Nothing is asked of the network before the first request. `requests` counts those sent.
    """

    def __init__(
        self,
        repository: str,
        token: str,
        *,
        base_url: str = "",
        attempts: int = 5,
        patience_s: float = 300.0,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        **client: Any,
    ) -> None:
        self.repository = repository
        self.requests = 0
        self._secret = token
        self._base_url = base_url or os.environ.get("GITHUB_API_URL", "") or _DEFAULT_API
        self._attempts, self._patience_s = attempts, patience_s
        self._clock, self._sleep = clock, sleep
        # A quarter of a second, which commands that ask GitHub nothing do not pay.
        from github import Auth, Github

        # PyGithub's own retries would repeat a POST without looking whether it was carried out.
        client = {"retry": None, "seconds_between_requests": None} | client
        self._requester = Github(
            auth=Auth.Token(token) if token else None, base_url=self._base_url, user_agent="kernelopt-bot", **client
        ).requester

    def __repr__(self) -> str:
        return f"GitHub({self.repository!r})"

    @property
    def has_token(self) -> bool:
        return bool(self._secret)

    @property
    def is_app(self) -> bool:
        """Whether the token is an app's, GITHUB_TOKEN among them: GitHub doesn't show such tokens what they may do."""
        return self._secret.startswith("ghs_")

    def request(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        query: Mapping[str, str] | None = None,
        find: Callable[[], Any] | None = None,
        repeatable: bool = False,
        doing: str = "talking to GitHub",
    ) -> Any:
        """See `rest.Rest.request`."""
        url = self._url(path, query)
        waited = 0.0
        for attempt in range(self._attempts):
            status, headers, data = self._send(method, url, body)
            if 200 <= status < 400:
                return data
            said = words(data, self._secret)
            if status == 422 and find is not None and (found := find()) is not None:
                return found
            next_time = again(status, headers, said, attempt, self._clock())
            safe = method != "POST" or repeatable or find is not None or (next_time is not None and next_time.undone)
            if next_time is None:
                break
            waited += next_time.after_s
            last = not safe or attempt + 1 == self._attempts or waited > self._patience_s
            if not last:
                self._sleep(next_time.after_s)
            if find is not None and not next_time.undone and (found := find()) is not None:
                return found
            if last:
                break
        if status == LOST:
            raise UserError(
                f"GitHub can't be reached while {doing}: {data}.",
                where=self._base_url,
                fix="check GITHUB_API_URL, the proxy and the certificates, then run again",
            )
        raise explained(
            status, data, doing, self.repository, self._secret, limit=is_limit(status, headers, said)
        ) from None

    def pages(
        self, path: str, *, query: Mapping[str, str] | None = None, key: str = "", limit: int = 1000, doing: str = ""
    ) -> list[Any]:
        """See `rest.Rest.pages`."""
        found: list[Any] = []
        for page in range(1, 1 + -(-limit // _PAGE)):
            asked = {**(query or {}), "per_page": str(_PAGE), "page": str(page)}
            answer = self.request("GET", path, query=asked, doing=doing or "reading a list")
            part = answer.get(key, []) if key else answer
            found += part
            if len(part) < _PAGE:
                break
        return found[:limit]

    def _send(self, method: str, url: str, body: Json | None) -> tuple[int, dict[str, str], Any]:
        """Status, headers and decoded body; `LOST` with the kind of failure where no answer came."""
        self.requests += 1
        try:
            status, headers, text = self._requester.requestJson(method, url, headers=dict(_HEADERS), input=body)
        except requests.RequestException as e:
            return LOST, {}, type(e).__name__
        except (OSError, RuntimeError, ValueError) as e:
            # A certificate file that is not there, a redirection to another host, headers that a proxy has spoilt.
            return LOST, {}, words(str(e), self._secret)
        try:
            data = json.loads(text) if text else None
        except ValueError:
            # A proxy's own page, or an answer that was cut off.
            data = text[:2000]
            status = status if status >= 400 else LOST
        return status, {k.lower(): str(v) for k, v in headers.items()}, data

    def _url(self, path: str, query: Mapping[str, str] | None) -> str:
        whole = path if path.startswith("/") else f"/repos/{self.repository}{'/' + path if path else ''}"
        return f"{whole}?{urlencode(query)}" if query else whole


class GitHubForge:
    """Implements `Forge` for `repository`: pull requests of ours from their opening to their end.

    `app_token`: of an App that makes branches and pull requests, so that their checks start by themselves; '': `token`
    does. Other keyword arguments are `GitHub`'s. `github` is the client with `token`, which is to show the run: only
    who made a check run may conclude it. `writing` is the client that publishes. Commits are made by the Git-data
    interface, so GitHub signs them; branches only ever move forward. Nothing is asked of the network before the first
    call of a method.
    """

    def __init__(self, repository: str, token: str, *, app_token: str = "", **client: Any) -> None:
        self.github = GitHub(repository, token, **client)
        self.writing = GitHub(repository, app_token, **client) if app_token else self.github
        self._about: Json | None = None

    def __repr__(self) -> str:
        return f"GitHubForge({self.github.repository!r})"

    def can_write(self) -> str:
        """'' if publishing is permitted, else the reason. Raises UserError."""
        if not self.writing.has_token:
            return "there is no token; give the job `GITHUB_TOKEN` with `contents: write` and `pull-requests: write`"
        about = self._repository()
        if about.get("archived"):
            return f"{self.github.repository} is archived"
        if (about.get("permissions") or {}).get("push") or self.writing.is_app:
            return ""
        return f"the token may not write to {self.github.repository}"

    def publish(self, publication: Publication) -> Published:
        """Idempotent: the same key twice gives `unchanged`; without permission `reported`, with the reason.

        Raises UserError; what is left half done then is taken up by the next run.
        """
        check_files(publication.files)
        check_removed(publication.removed, publication.artifact_root)
        return self._permitted(lambda life: life.publish(publication), publication.branch)

    def withdraw(self, withdrawal: Withdrawal) -> Published:
        """Closes the open pull request of a branch of ours, with the reason; `unchanged` if there is none.

        `reported` if somebody else committed to the branch, or closing is not permitted. Raises UserError.
        """
        return self._permitted(lambda life: life.withdraw(withdrawal), withdrawal.branch)

    def source_closed(self, branch: str, source: int, *, merged_into: str = "") -> Published:
        """What the end of the causing pull request means for ours on `branch`.

        Merged: ours goes against `merged_into` from now on, and `verify_again` names that branch. Not merged: ours is
        closed, with the reason. Raises UserError.
        """
        return self._permitted(lambda life: life.source_closed(branch, source, merged_into), branch)

    def _permitted(self, do: Callable[[Lifecycle], Published], branch: str) -> Published:
        reason = self.can_write()
        if reason:
            return Published("reported", reason=reason)
        page = str(self._repository()["html_url"])
        for left in reversed(range(_RACES)):
            try:
                return do(Lifecycle(self.writing, page))
            except Denied as e:
                return Published("reported", branch, reason=str(e))
            except Raced:
                if not left:
                    raise
        raise AssertionError("the last race was raised")

    def _repository(self) -> Json:
        if self._about is None:
            self._about = cast(Json, self.writing.request("GET", "", doing="reading the repository"))
        return self._about


__all__ = ["Answered", "GitHub", "GitHubForge"]
