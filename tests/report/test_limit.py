from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelopt_bot.report.blocks import Block, Code, Column, Details, Heading, Paragraph, Table
from kernelopt_bot.report.build import build
from kernelopt_bot.report.limit import fit
from kernelopt_bot.report.markdown import BODY_LIMIT, blocks_to_markdown, render
from kernelopt_bot.search.result import RunResult, TargetResult


def blocks(rows: int, lines: int, targets: int) -> tuple[Block, ...]:
    table = Table((Column("a"),), tuple((("x" * 20,),) for _ in range(rows)))
    code = Details(("folded",), (Code("\n".join(["y" * 30] * lines), "python"),))
    return (Heading(1, ("Title",)), *(b for _ in range(targets) for b in (Paragraph(("first figure",)), table, code)))


@given(st.integers(0, 300), st.integers(0, 300), st.integers(1, 6), st.integers(400, 20_000))
@settings(max_examples=60, deadline=None)
def test_it_fits_and_says_when_it_was_cut(rows: int, lines: int, targets: int, limit: int) -> None:
    whole = blocks_to_markdown(blocks(rows, lines, targets))
    text = fit(blocks(rows, lines, targets), blocks_to_markdown, limit)
    assert len(text) <= limit
    assert text.startswith("# Title\n")
    assert (text == whole) == (len(whole) <= limit)
    assert ("shortened to fit" in text) == (text != whole)
    assert text.count("<details>") == text.count("</details>")
    assert text.count("```") % 2 == 0


def test_the_figures_outlive_the_tables() -> None:
    text = fit(blocks(500, 500, 4), blocks_to_markdown, 3000)
    assert text.count("first figure") == 4
    assert "more rows not shown" in text
    assert "more lines not shown" in text


@pytest.mark.parametrize("limit", [0, 10, 200])
def test_even_no_room_at_all_is_kept_to(limit: int) -> None:
    assert len(fit(blocks(9, 9, 2), blocks_to_markdown, limit)) <= limit


def test_a_run_of_many_targets_stays_below_the_bodys_limit(full: TargetResult, run: RunResult) -> None:
    many = tuple(replace(full, target=replace(full.target, name=f"target_{i}")) for i in range(40))
    report = build(replace(run, results=many))
    assert len(render(report, limit=10**9)) > BODY_LIMIT
    text = render(report)
    assert len(text) <= BODY_LIMIT
    assert "shortened to fit" in text
