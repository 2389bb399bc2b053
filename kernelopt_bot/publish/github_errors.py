"""What GitHub's answers mean for whoever runs the bot."""

from __future__ import annotations

from typing import Any

from kernelopt_bot.errors import UserError
from kernelopt_bot.publish.retry import is_limit
from kernelopt_bot.report.text import one_line

_FIXES = {
    401: "the token is wrong or has expired: give the job a valid `GITHUB_TOKEN`",
    404: "check the repository's name, and that the token may read it",
    409: "the repository is empty, or changed at the same time: run again",
    422: "run again; if it stays, report it with this message",
}


class Answered(UserError):
    """GitHub refused a request with the HTTP status `status`, saying `said` (one line, without the token)."""

    def __init__(self, what: str, *, where: str = "", fix: str = "", status: int = 0, said: str = "") -> None:
        super().__init__(what, where=where, fix=fix, kind="UserError")
        self.status, self.said = status, said


class Raced(UserError):
    """Somebody else changed the same thing meanwhile: read again, decide again."""


class Denied(Answered):
    """GitHub refuses this token the write: to be reported, not to be mended by trying again."""

    def __str__(self) -> str:
        return self.what


def explained(status: int, data: object, doing: str, repository: str, secret: str, *, limit: bool = False) -> Answered:
    """The error for an answer with `status` (HTTP) and `data` (its JSON or text) to a request made while `doing`.

    `limit`: its headers say that this is a limit on requests.
    """
    said = words(data, secret)
    what = f"GitHub answered {status} while {doing}{': ' + said if said else ''}."
    known: dict[str, Any] = {"where": repository, "status": status, "said": said}
    if status in (403, 429):
        if limit or is_limit(status, {}, said):
            return Answered(what, fix="GitHub's limit on requests is reached: run again in an hour", **known)
        if "not permitted to create" in said:
            fix = "allow it under Settings, Actions, General, or open the pull request by hand"
            return Denied(f"{what} {fix}", fix=fix, **known)
        fix = "give the job `contents: write` and `pull-requests: write`"
        return Denied(f"{what} To publish, {fix}.", fix=fix, **known)
    if status >= 500:
        fix = "GitHub has a problem: run again later; nothing is published twice"
    elif status == 422 and "fast forward" in said.lower():
        fix = "somebody pushed to our branch at the same time: run again"
    else:
        fix = _FIXES.get(status, "run again; if it stays, report it with this message")
    return Answered(what, fix=fix, **known)


def words(data: object, secret: str) -> str:
    """What GitHub says in an answer's JSON or text, as one short line without `secret`."""
    if isinstance(data, dict):
        details = data.get("errors")
        parts = [str(data.get("message", ""))]
        if isinstance(details, list):
            parts += [
                str(d.get("message") or f"{d.get('field')}: {d.get('code')}") if isinstance(d, dict) else str(d)
                for d in details[:5]
            ]
        said = "; ".join(p for p in parts if p)
    else:
        said = str(data or "")
    said = one_line(said)
    # Servers and proxies echo what they were sent.
    return (said.replace(secret, "***") if secret else said)[:500]
