"""Whether a failed request is sent again, and when. Nothing is sent or slept here.

Rules: https://docs.github.com/en/rest/using-the-rest-api/best-practices-for-using-the-rest-api#handle-rate-limit-errors-appropriately
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

LOST = 0
"""Status of a request whose answer never came."""
_SERVER = frozenset({LOST, 500, 502, 503, 504})
_SECONDARY_S = 60.0
_LIMIT_WORDS = ("rate limit", "abuse detection")


@dataclass(frozen=True)
class Again:
    after_s: float
    undone: bool
    """Whether it is certain that the request did nothing."""


def again(status: int, headers: Mapping[str, str], said: str, attempt: int, now: float) -> Again | None:
    """What to do after failure number `attempt` (from 0) of a request; None: trying again does not help.

    `headers` with names in lower case, `said` GitHub's words, `now` in seconds since the epoch.
    """
    wait = _number(headers.get("retry-after"))
    if is_limit(status, headers, said):
        if wait is not None:
            return Again(wait, True)
        reset = _number(headers.get("x-ratelimit-reset"))
        if headers.get("x-ratelimit-remaining") == "0" and reset is not None:
            return Again(max(1.0, reset - now + 1.0), True)
        return Again(_SECONDARY_S * 2.0**attempt, True)
    if status in _SERVER:
        return Again(max(wait or 0.0, 2.0**attempt), False)
    return None


def is_limit(status: int, headers: Mapping[str, str], said: str) -> bool:
    """Whether this is a limit on requests, the primary or a secondary one, and not a lack of permission."""
    return status == 429 or (
        status == 403
        and (
            "retry-after" in headers
            or headers.get("x-ratelimit-remaining") == "0"
            or any(word in said.lower() for word in _LIMIT_WORDS)
        )
    )


def _number(text: str | None) -> float | None:
    """None for what is no count of seconds: Retry-After may also be a date, and a proxy may write anything."""
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
