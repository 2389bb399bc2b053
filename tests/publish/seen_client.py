"""A client that is killed at one of its requests."""

from __future__ import annotations

from typing import Any

from kernelopt_bot.publish.github import GitHub
from tests.github_stand_in import TOKEN, Hub


class Killed(Exception):
    """The process is gone."""


class Mortal(GitHub):
    """Ends before or after the work of request number `at` (from 0) that goes to GitHub; never if it is negative."""

    def __init__(self, hub: Hub, at: int = -1, *, after: bool = False, attempts: int = 1) -> None:
        super().__init__(
            "acme/kernels",
            TOKEN,
            base_url=hub.url,
            attempts=attempts,
            sleep=lambda s: None,
            seconds_between_writes=None,
        )
        self._at, self._after = at, after

    def _send(self, method: str, url: str, body: Any) -> tuple[int, dict[str, str], Any]:
        last = self.requests == self._at
        if last and not self._after:
            raise Killed
        answer = super()._send(method, url, body)
        if last:
            raise Killed
        return answer


def writes(hub: Hub) -> int:
    """How many requests changed something."""
    return sum(operation.split("/")[1].startswith(("create", "update")) for operation, _ in hub.log)
