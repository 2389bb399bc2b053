"""The dashboard issue: read-only, opt-in, edited in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kernelopt_bot.publish.comments import is_ours
from kernelopt_bot.publish.permission import needing
from kernelopt_bot.publish.rest import Json, Rest
from kernelopt_bot.publish.shown import fitting, interval
from kernelopt_bot.publish.words import Markdown, pull_link, render
from kernelopt_bot.report import numbers as n
from kernelopt_bot.report.markdown import BODY_LIMIT

TITLE = "KernelOPT dashboard"
MARKER = Markdown("<!-- kernelopt:dashboard -->")
_COMMANDS = ("/kernelopt optimize", "/kernelopt verify", "/kernelopt status", "/kernelopt cancel", "/kernelopt help")
_PASTED = 20


@dataclass(frozen=True)
class Held:
    """One committed artifact. All text is of unknown origin."""

    target: str
    state: Literal["held", "stale", "regressed", "not verified"]
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    environment: str = ""
    reason: str = ""
    pull_number: int | None = None
    pull_url: str = ""
    """Our pull request that mends or removes it; '' if there is none."""


@dataclass(frozen=True)
class Unoptimised:
    name: str
    path: str
    last: str = ""
    """What the last search came to; '' if there was none."""


@dataclass(frozen=True)
class Sweep:
    finished: str
    """Time in UTC, `2026-11-30 03:17 UTC`."""
    outcome: str
    url: str = ""


@dataclass(frozen=True)
class Board:
    held: tuple[Held, ...] = ()
    open: tuple[Unoptimised, ...] = ()
    """Targets without an artifact."""
    sweep: Sweep | None = None


def held(manifest: Mapping[str, Any], state: Literal["held", "stale", "regressed", "not verified"],
         reason: str = "") -> Held:
    """From an artifact's decoded `manifest.json`, which nobody vouches for: what has another shape is left out."""
    parts = [manifest.get(k) for k in ("evidence", "environment")]
    evidence, environment = (x if isinstance(x, Mapping) else {} for x in parts)
    figures = (evidence.get(k) for k in ("speedup", "low", "high"))
    speedup, low, high = (x if isinstance(x, float) and 0 < x < 1e6 else None for x in figures)
    known = [str(environment.get("device") or "")] + [f"{k} {environment[k]}" for k in ("torch", "triton")
                                                      if environment.get(k)]
    return Held(str(manifest.get("target", "")), state, speedup, low, high, ", ".join(k for k in known if k), reason)


def body(board: Board) -> str:
    """The issue's text, marker first, within GitHub's limit."""
    waiting = [h.target for h in board.held if h.state != "held"] + [t.name for t in board.open]
    # A name is data, and these lines are made to be pasted: only what the command's grammar takes as it stands.
    names = [name for name in waiting if name.replace("_", "").isalnum() and name.isascii()][:_PASTED]
    commands = "\n".join((*_COMMANDS, *(f"/kernelopt optimize {name}" for name in names)))
    return fitting(lambda rows: render("dashboard.md.j2", board=board, rows=rows, marker=MARKER, commands=commands,
                                       ratio=n.ratio, interval=interval, pull_link=pull_link), BODY_LIMIT)


class Dashboard:
    """The issue by `login` that begins with our marker."""

    def __init__(self, rest: Rest, login: str) -> None:
        self._rest = rest
        self._login = login

    def show(self, board: Board) -> int | None:
        """Makes the issue or brings it up to date; its number. None where a person closed it: then it is left alone.

        Raises UserError; a failed look-up makes nothing, or every run would make another dashboard.
        """
        with needing("issues: write"):
            return self._show(board)

    def _show(self, board: Board) -> int | None:
        found = self._find()
        text = body(board)
        if found is None:
            made = self._rest.request("POST", "issues", {"title": TITLE, "body": text}, find=self._find,
                                      doing="making the dashboard")
            return int(made["number"])
        if found["state"] != "open":
            return None
        if found["body"] != text:
            self._rest.request("PATCH", f"issues/{found['number']}", {"body": text}, doing="updating the dashboard")
        return int(found["number"])

    def _find(self) -> Json | None:
        """An open one before closed ones; of several, the oldest."""
        issues = self._rest.pages("issues", query={"state": "all", "creator": self._login}, limit=3000,
                                  doing="looking for the dashboard")
        ours = [i for i in issues if "pull_request" not in i and is_ours(i, self._login, MARKER)]
        return min(ours, key=lambda i: (i["state"] != "open", i["number"]), default=None)
