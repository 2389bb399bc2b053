"""The one comment on a pull request, edited in place."""

from __future__ import annotations

from kernelopt_bot.publish import shown
from kernelopt_bot.publish.permission import needing
from kernelopt_bot.publish.rest import Json, Rest
from kernelopt_bot.publish.seen import Seen


class StickyComment:
    """Comments of `login` (`github-actions[bot]`, or the App's `name[bot]`) that begin with our marker.

    The marker locates, the author decides: whoever copies our marker gets no comment edited. `login` may be shared with
    other workflows, so neither is enough alone.
    """

    def __init__(self, rest: Rest, login: str) -> None:
        self._rest = rest
        self._login = login

    def show(self, number: int, seen: Seen) -> int | None:
        """Writes what is seen on pull request `number`; the comment's id, or None where there is none to be.

        A first comment is made only where something was gained or asked for; one that is there is kept true. Raises
        UserError: then nothing new was made, since a comment that could not be looked for may exist.
        """
        with needing("pull-requests: write"):
            return self._show(number, seen)

    def _show(self, number: int, seen: Seen) -> int | None:
        found = self._find(number)
        body = shown.comment(seen)
        if found is not None:
            if found["body"] != body:
                self._rest.request(
                    "PATCH", f"issues/comments/{found['id']}", {"body": body}, doing="editing our comment"
                )
            return int(found["id"])
        if not (seen.asked or seen.state == "gained"):
            return None
        made = self._rest.request(
            "POST",
            f"issues/{number}/comments",
            {"body": body},
            find=lambda: self._find(number),
            doing="commenting on the pull request",
        )
        return int(made["id"])

    def _find(self, number: int) -> Json | None:
        """The oldest one of ours, so that two runs that raced agree on it."""
        comments = self._rest.pages(f"issues/{number}/comments", limit=3000, doing="looking for our comment")
        return next((c for c in comments if is_ours(c, self._login, shown.COMMENT_MARKER)), None)


def is_ours(found: Json, login: str, marker: str) -> bool:
    """Whether a comment or an issue was written by `login` and begins with `marker`."""
    author = (found.get("user") or {}).get("login")
    first = (found.get("body") or "").replace("\r\n", "\n").partition("\n")[0]
    return bool(login) and author == login and first == marker
