"""What GitHub's answers mean for whoever runs the bot."""

from __future__ import annotations

from kernelopt_bot.errors import UserError
from kernelopt_bot.report.text import one_line

_FIXES = {
    401: "the token is wrong or has expired: give the job a valid `GITHUB_TOKEN`",
    404: "check the repository's name, and that the token may read it",
    409: "the repository is empty, or changed at the same time: run again",
    422: "run again; if it stays, report it with this message",
}


class Denied(UserError):
    """GitHub refuses this token the write: to be reported, not to be mended by trying again."""

    def __str__(self) -> str:
        return self.what


def explained(status: int, data: object, doing: str, repository: str, secret: str) -> UserError:
    """The error for an answer with `status` (HTTP) and `data` (its JSON or text) to a request made while `doing`."""
    said = _said(data, secret)
    what = f"GitHub answered {status} while {doing}{': ' + said if said else ''}."
    if status in (403, 429):
        if status == 429 or "rate limit" in said.lower() or "abuse" in said.lower():
            return UserError(what, where=repository, fix="GitHub's limit on requests is reached: run again in an hour")
        if "not permitted to create" in said:
            fix = "allow it under Settings, Actions, General, or open the pull request by hand"
            return Denied(f"{what} {fix}", where=repository, fix=fix)
        fix = "give the job `contents: write` and `pull-requests: write`"
        return Denied(f"{what} To publish, {fix}.", where=repository, fix=fix)
    if status >= 500:
        return UserError(
            what, where=repository, fix="GitHub has a problem: run again later; nothing is published twice"
        )
    if status == 422 and "fast forward" in said.lower():
        return UserError(what, where=repository, fix="somebody pushed to our branch at the same time: run again")
    return UserError(
        what, where=repository, fix=_FIXES.get(status, "run again; if it stays, report it with this message")
    )


def _said(data: object, secret: str) -> str:
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
