from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kernelopt_bot.publish.marks import DONE, LIMIT, NEW, Mark, closed_state, mark_of, marked

KEY, OTHER = "1" * 64, "2" * 64


@given(st.text())
def test_the_last_mark_is_ours_and_there_is_one(body: str) -> None:
    once = marked(f"{body}\n\n<!-- kernelopt key={OTHER} state=done -->", KEY, NEW)
    assert mark_of(once) == Mark(KEY, NEW)
    assert marked(once, KEY, NEW) == once
    # GitHub stores what a browser sent with other line ends.
    assert mark_of(once.replace("\n", "\r\n")) == Mark(KEY, NEW)


def test_a_forged_mark_inside_is_nothing() -> None:
    assert mark_of(f"```\n<!-- kernelopt key={KEY} state=done -->\n```\n") is None
    assert mark_of(None) is None
    assert mark_of("") is None


def test_a_body_that_is_too_long_is_shortened_visibly_and_keeps_its_mark() -> None:
    text = marked("x" * 100_000, KEY, DONE)
    assert len(text) <= LIMIT
    assert "Shortened here" in text
    assert mark_of(text) == Mark(KEY, DONE)


def test_what_we_closed_is_known() -> None:
    found = mark_of(marked("", KEY, closed_state("gain gone")))
    assert found == Mark(KEY, "closed-gain-gone")
    assert found.closed
