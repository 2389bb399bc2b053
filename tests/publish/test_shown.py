from __future__ import annotations

import dataclasses
import html.parser
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from kernelopt_bot.publish import job_summary, shown
from kernelopt_bot.publish.seen import Seen, finished
from kernelopt_bot.report.summary import summarise
from tests.publish import seen_runs

SURFACES: dict[str, Callable[[Seen], str]] = {
    "comment": shown.comment,
    "summary": shown.summary,
    "check": lambda s: shown.check(s)[0],
    "text": lambda s: shown.check(s)[1],
}
on_every_surface = pytest.mark.parametrize("surface", SURFACES)


class Elements(html.parser.HTMLParser):
    """What a browser would make of it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ended: list[str] = []
        self.links: list[str] = []
        self.comments: list[str] = []
        self.feed(MarkdownIt("commonmark", {"html": True}).enable("table").render(text))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [v or "" for k, v in attrs if k in ("href", "src")]

    def handle_endtag(self, tag: str) -> None:
        self.ended.append(tag)

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)


@on_every_surface
def test_text_from_elsewhere_stays_text(surface: str) -> None:
    text = SURFACES[surface](seen_runs.evil())
    page = Elements(text)
    assert {"script", "img", "em"}.isdisjoint(page.tags)
    assert page.links == []
    assert [c.strip() for c in page.comments] == ([] if surface != "comment" else ["kernelopt:comment"])
    # Outside of code nothing is left that GitHub turns into a mention, a reference or a link.
    prose = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.M | re.S))
    assert not re.search(r"@\w|(?<![\\&])#\d|www\.|://", prose)
    assert "\x1b" not in text
    assert "\u202e" not in text


@settings(max_examples=60, deadline=None)
@given(st.text(st.sampled_from("`*_[]()<>!#|\\\n\r &;:/@~$-=+.1a\"'\u2028"), min_size=1, max_size=40))
def test_no_text_makes_markup(text: str) -> None:
    found = seen_runs.data()
    for t in found["targets"][1:]:
        t["name"] = t["path"] = t["entry"] = text
        t["error"] = t["error"] and text
    found["levers"] = [lever | {"target": text, "reason": text} for lever in found["levers"]]
    found["skipped"] = [{"what": text, "reason": text}]
    head = "b" * 40
    for seen in (Seen("refused", head, text), Seen("error", head, text), finished(summarise(found), head_sha=head)):
        page = Elements(shown.summary(seen))
        assert {"a", "img", "script", "em", "del", "h1", "ol"}.isdisjoint(page.tags)
        assert page.tags.count("details") == page.ended.count("details")
        assert page.tags.count("h2") == 1
        assert page.comments == []


@on_every_surface
def test_tables_stay_whole(surface: str) -> None:
    for line in SURFACES[surface](seen_runs.evil()).splitlines():
        assert not line.startswith("::")
    tables = re.findall(r"(?:^\|.*\|$\n?)+", SURFACES[surface](seen_runs.evil()), re.M)
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1
    assert tables or surface == "text"


@on_every_surface
@pytest.mark.parametrize("state", seen_runs.states())
def test_every_state_is_said_on_every_surface(surface: str, state: str) -> None:
    seen = seen_runs.states()[state]
    text = SURFACES[surface](seen)
    said = {
        "queued": "waits for a GPU runner; what comes of it is written here",
        "running": "Searching for faster kernels",
        "nothing": "so the compiler's own code stays",
        "no_target": "nothing was optimised",
        "gained": "**Next:** review [#8](https://github.com/acme/kernels/pull/8)",
        "refused": "Nothing was run: the pull request comes from a fork",
        "error": "What to do stands with each target below",
        "lost": "the runner was lost",
        "cancelled": "Cancelled before anything was proved faster",
    }[state]
    assert (said in text) != (surface == "text")
    assert "\n\n\n" not in text


def test_a_gain_comes_with_its_interval_and_baseline() -> None:
    text = shown.comment(seen_runs.gained())
    row = "| `transformer_block` | **1.210x** | 1.190x to 1.240x | `max-autotune` | 1.452 ms | 1.200 ms |"
    assert row in text.replace("\u00a0", " ")
    assert "<summary>Not faster (2)</summary>" in text


def test_a_gain_stands_beside_the_noise_of_its_machine() -> None:
    found = seen_runs.data()
    text = shown.summary(finished(summarise(found), head_sha="b" * 40)).replace("\u00a0", " ")
    noise = found["noise"][0]
    row = f"| A/A: the same code twice | {noise['speedup']:.3f}x | {noise['low']:.3f}x to {noise['high']:.3f}x |"
    assert row in text
    found["noise"][0]["low"] = float("nan")
    assert "A/A" not in shown.summary(finished(summarise(found), head_sha="b" * 40))


def test_each_lever_says_why_it_was_not_enough() -> None:
    found = seen_runs.data()
    found["targets"] = found["targets"][1:2]
    name = found["targets"][0]["name"]
    found["levers"] = [{"target": name, "lever": lever, "adopted": 0, "gain": None, "reason": f"{lever} was slower"}
                       for lever in ("dispatch", "launch")]
    text = shown.comment(finished(summarise(found), head_sha="b" * 40))
    assert "\n- `dispatch`: dispatch was slower\n- `launch`: launch was slower\n" in text


def test_a_gain_that_could_not_be_published_says_why() -> None:
    text = shown.comment(seen_runs.gained(unpublished="the token may not open pull requests"))
    assert "No pull request was opened: the token may not open pull requests" in text


def test_what_was_verified_before_a_cancellation_is_a_gain() -> None:
    seen = finished(summarise(seen_runs.data()), head_sha="b" * 40, cancelled=True, reason="a newer push")
    assert seen.state == "gained"
    assert "The run ended early: a newer push" in shown.comment(seen)


@pytest.mark.parametrize("count", [30, 400])
def test_what_is_too_long_is_cut_where_it_is_seen(count: int) -> None:
    seen = seen_runs.many(count)
    summary, text = shown.check(seen)
    comment = shown.comment(seen)
    assert len(comment.encode()) <= 58_000
    assert max(len(summary.encode()), len(text.encode())) <= 65_535
    assert ("not shown" in comment, "not shown" in text) == (count > 100, count > 100)
    for said in (comment, summary, text, shown.summary(seen)):
        page = Elements(said)
        assert page.tags.count("details") == page.ended.count("details")


def test_one_endless_text_is_cut_with_its_fence_closed() -> None:
    seen = Seen("error", "b" * 40, "a line of an endless log\n" * 20_000)
    text = shown.comment(seen)
    assert len(text.encode()) <= 58_000
    assert Elements(text).tags.count("pre") == 1
    assert "*The rest did not fit here." in text
    assert "<em>The rest did not fit here." in MarkdownIt().render(text)


@on_every_surface
def test_what_is_pasted_is_ours(surface: str) -> None:
    text = SURFACES[surface](seen_runs.evil())
    assert "model = optimize" not in text
    fences = re.findall(r"^(`{3,})shell\n(.*?)\n\1$", text, re.M | re.S)
    assert [shlex.split(body)[:2] for _, body in fences] in ([], [["kernelopt", "optimize"]])


def test_titles() -> None:
    titles = {name: seen.title for name, seen in seen_runs.states().items()}
    assert titles == {
        "queued": "waiting for a GPU runner",
        "running": "searching",
        "nothing": "nothing adopted for 1 target",
        "no_target": "nothing adopted",
        "gained": "1 of 3 targets faster, 1 could not be handled",
        "refused": "not run",
        "error": "1 of 1 target could not be handled",
        "lost": "could not finish",
        "cancelled": "cancelled",
    }


def test_the_same_run_gives_the_same_text() -> None:
    seen = seen_runs.gained()
    assert shown.comment(seen) == shown.comment(seen_runs.gained())
    assert shown.comment(seen) != shown.comment(dataclasses.replace(seen, head_sha="c" * 40))


def test_the_summary_is_appended_while_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    assert job_summary.append(seen_runs.nothing(), path)
    assert job_summary.append(seen_runs.gained(), path)
    assert path.read_text().count("## KernelOPT:") == 2
    path.write_bytes(b"x" * (1024 * 1024 - 5000))
    assert job_summary.append(seen_runs.many(100), path)
    assert path.stat().st_size <= 1024 * 1024
    assert not job_summary.append(seen_runs.gained(), path)
