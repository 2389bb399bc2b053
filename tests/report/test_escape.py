from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from kernelopt_bot.report import escape
from kernelopt_bot.report.blocks import Bullets, Code, Column, Details, Heading, Mono, Notice, Paragraph, Strong, Table
from kernelopt_bot.report.markdown import blocks_to_markdown
from kernelopt_bot.report.text import one_line, visible

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
# What hostile text is made of, so that it turns up often.
PIECES = st.sampled_from(
    [
        "<b>",
        "</details>",
        "<!--",
        "@team",
        "#1",
        "GH-2",
        "`",
        "``",
        "|",
        "\\",
        "*",
        "_",
        "~~",
        "[a](b)",
        "![x](y)",
        "\n",
        "\r\n",
        "- ",
        "1. ",
        "> ",
        "# ",
        "    ",
        "---",
        "===",
        "$x$",
        "https://evil.example",
        "www.evil.example",
        "&amp;",
        "&#35;",
        "\u202e",
        "\u200b",
        "\x1b[31m",
        "\x00",
        "::error::",
        "a@b.example",
        "<https://a.b>",
        "\ud800",
        "é",
        "x",
    ]
)
TEXT = st.one_of(st.text(max_size=40), st.lists(PIECES, max_size=12).map("".join))


def leaves(markdown: str) -> list[Token]:
    return [leaf for token in PARSER.parse(markdown) for leaf in (token.children or [token])]


def shown(markdown: str) -> str:
    """The characters that a reader sees, without the zero-width spaces that the renderer puts in."""
    return "".join(t.content for t in leaves(markdown) if t.type in ("text", "code_inline", "text_special")).replace(
        "\u200b", ""
    )


@given(TEXT)
@example("@everyone <img src=x onerror=alert(1)> [a](javascript:x) `code` | \\| **b**")
@example("1) not a list")
def test_text_comes_out_as_it_went_in(value: str) -> None:
    for rendered in (blocks_to_markdown((Paragraph((value,)),)), blocks_to_markdown((Bullets(((value,),)),))):
        assert shown(rendered) == one_line(value)
        kinds = {t.type for t in leaves(rendered)}
        assert kinds <= {
            "paragraph_open",
            "paragraph_close",
            "text",
            "text_special",
            "inline",
            "bullet_list_open",
            "list_item_open",
            "list_item_close",
            "bullet_list_close",
        }


@given(TEXT)
def test_nothing_mentions_links_or_refers(value: str) -> None:
    rendered = escape.text(value)
    assert not re.search(
        r"@\w|#\d|GH-\d|://|www\.", rendered.replace("&#8203;", "\u200b").replace("&#36;", ""), re.IGNORECASE
    )
    assert "<" not in rendered
    assert ">" not in rendered


@given(TEXT)
@example("`")
@example("``a` b```")
def test_code_comes_out_as_it_went_in(value: str) -> None:
    rendered = escape.code_span(value)
    code = [t.content for t in leaves(rendered) if t.type == "code_inline"]
    assert code == ([one_line(value)] if one_line(value) else [])


@given(st.lists(st.lists(TEXT, min_size=2, max_size=2), min_size=1, max_size=3))
@example([["a|b", "c\\|d"]])
def test_cells_stay_in_their_columns(rows: list[list[str]]) -> None:
    table = Table((Column("one"), Column("two", "right")), tuple(((a,), (Mono(b),)) for a, b in rows))
    tokens = PARSER.parse(blocks_to_markdown((table,)))
    assert [t.type for t in tokens].count("td_open") == 2 * len(rows)
    cells = [tokens[i + 1] for i, t in enumerate(tokens) if t.type == "td_open"]
    got = ["".join(c.content for c in cell.children or []).replace("\u200b", "") for cell in cells]
    assert got == [one_line(x) for row in rows for x in row]


@given(TEXT)
def test_a_code_block_cannot_be_left(value: str) -> None:
    tokens = PARSER.parse(blocks_to_markdown((Code(value, "python"), Paragraph(("after",)))))
    assert [t.type for t in tokens] == ["fence", "paragraph_open", "inline", "paragraph_close"]
    assert tokens[0].info == "python"
    assert tokens[0].content.strip("\n") == visible(value.replace("\r\n", "\n"), keep="\n\t").strip("\n")


@given(TEXT)
def test_a_summary_holds_no_elements_of_its_own(value: str) -> None:
    rendered = blocks_to_markdown((Details((value, Mono(value)), (Paragraph(("inside",)),)),))
    head = rendered.split("</summary>")[0].removeprefix("<details>\n<summary>")
    assert re.sub(r"</?code>", "", head).count("<") == 0
    assert rendered.count("<details>") == rendered.count("</details>") == 1


@given(TEXT, TEXT)
def test_spans_beside_each_other_keep_their_kinds(one: str, two: str) -> None:
    rendered = blocks_to_markdown((Paragraph(("x ", Mono(one), Mono(two), Strong("1.2x"), " y")),))
    code = [t.content for t in leaves(rendered) if t.type == "code_inline"]
    assert code == [one_line(v) for v in (one, two) if one_line(v)]


@given(TEXT)
def test_headings_and_notices_stay_one_line(value: str) -> None:
    rendered = blocks_to_markdown((Heading(2, (value,)), Notice("note", (value,))))
    assert [t.type for t in PARSER.parse(rendered)].count("heading_open") == 1
    assert len(rendered.rstrip("\n").split("\n")) in (3, 4)


@pytest.mark.parametrize(
    ("value", "seen"), [("a\u202eb", "a\\u202eb"), ("\x1b[0m", "\\x1b[0m"), ("\U000e0041", "\\U000e0041")]
)
def test_what_cannot_be_seen_is_spelled_out(value: str, seen: str) -> None:
    assert one_line(value) == seen
