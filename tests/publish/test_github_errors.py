from __future__ import annotations

import pytest

from kernelopt_bot.publish.github_errors import Denied, explained


def test_the_secret_is_taken_out_of_what_a_server_echoes() -> None:
    for data in ({"message": "bad token s3cret"}, "proxy: s3cret", {"message": "x", "errors": [{"message": "s3cret"}]}):
        assert "s3cret" not in str(explained(400, data, "reading", "o/r", "s3cret"))


def test_the_servers_words_are_one_short_line() -> None:
    e = explained(500, {"message": "a\nb\x1b[31m" + "x" * 2000}, "reading", "o/r", "")
    assert "\n" not in e.what
    assert "\x1b" not in e.what
    assert len(e.what) < 600


@pytest.mark.parametrize(
    ("status", "message", "denied"),
    [
        (403, "Resource not accessible by integration", True),
        (403, "You have exceeded a secondary rate limit", False),
        (429, "Too many requests", False),
        (401, "Bad credentials", False),
    ],
)
def test_only_a_lack_of_permission_is_denied(status: int, message: str, denied: bool) -> None:
    assert isinstance(explained(status, {"message": message}, "committing", "o/r", ""), Denied) is denied


def test_errors_in_a_list_are_told() -> None:
    data = {
        "message": "Validation Failed",
        "errors": [{"field": "head", "code": "invalid"}, "plain", {"message": "said"}],
    }
    assert "Validation Failed; head: invalid; plain; said" in explained(422, data, "opening", "o/r", "").what
