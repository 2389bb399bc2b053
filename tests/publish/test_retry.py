from __future__ import annotations

import pytest

from kernelopt_bot.publish.retry import LOST, Again, again

NOW = 1_000.0


@pytest.mark.parametrize(
    ("status", "headers", "said", "attempt", "expected"),
    [
        (403, {"retry-after": "7"}, "slow down", 0, Again(7.0, True)),
        (429, {"retry-after": "7"}, "", 3, Again(7.0, True)),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1030"}, "API rate limit", 0, Again(31.0, True)),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "900"}, "", 0, Again(1.0, True)),
        (403, {}, "You have exceeded a secondary rate limit", 0, Again(60.0, True)),
        (403, {}, "You have exceeded a secondary rate limit", 2, Again(240.0, True)),
        (429, {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, "", 0, Again(60.0, True)),
        (429, {"retry-after": "nan"}, "", 0, Again(60.0, True)),
        (LOST, {}, "", 0, Again(1.0, False)),
        (502, {}, "", 2, Again(4.0, False)),
        (503, {"retry-after": "20"}, "", 0, Again(20.0, False)),
        (403, {"x-ratelimit-remaining": "4999"}, "Resource not accessible by integration", 0, None),
        (401, {}, "", 0, None),
        (404, {}, "", 0, None),
        (409, {}, "", 0, None),
        (422, {}, "", 0, None),
        (501, {}, "", 0, None),
    ],
)
def test_when_to_try_again(
    status: int, headers: dict[str, str], said: str, attempt: int, expected: Again | None
) -> None:
    assert again(status, headers, said, attempt, NOW) == expected
