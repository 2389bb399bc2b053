"""What a pull request of ours says about itself in the last line of its body, where no reader sees it.

A mark locates and never authorises: anybody with write permission can edit it. Text from elsewhere cannot forge it,
since only the last line counts and that one is ours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

LIMIT = 65_000
"""Characters of a body; GitHub takes 65,536."""

_MARK = re.compile(r"\n<!-- kernelopt key=([0-9a-f]{64}) state=([a-z-]{1,40}) -->\s*\Z")
_CUT = "\n\n*Shortened here: GitHub takes no more.*"

NEW, DONE = "new", "done"
_CLOSED = "closed-"


@dataclass(frozen=True)
class Mark:
    key: str
    """Content key of what the body describes."""
    state: str
    """`new`: opened, reviewers and labels may be missing; `done`; `closed-...`: by us, with the reason."""

    @property
    def closed(self) -> bool:
        return self.state.startswith(_CLOSED)


def mark_of(body: str | None) -> Mark | None:
    """None where there is none: a person took it away, or wrote the body."""
    found = _MARK.search((body or "").replace("\r\n", "\n"))
    return Mark(found[1], found[2]) if found else None


def marked(body: str, key: str, state: str) -> str:
    """`body` with this mark, in the place of the one that it has, at most `LIMIT` characters, visibly shortened."""
    text = _MARK.sub("", body.replace("\r\n", "\n")).rstrip()
    if len(text) > LIMIT - 200:
        text = text[: LIMIT - 200 - len(_CUT)] + _CUT
    return f"{text}\n\n<!-- kernelopt key={key} state={state} -->\n"


def closed_state(why: str) -> str:
    """The state of a pull request that we close, `why` in lower-case words."""
    return _CLOSED + why.replace(" ", "-")
