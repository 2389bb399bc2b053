from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from kernelopt_bot.report.build import build
from kernelopt_bot.report.terminal import print_report
from kernelopt_bot.report.terminal_table import Fitted
from kernelopt_bot.search.result import RunResult

KERNEL = "triton_per_fused_add_addmm_native_layer_norm_view_6"
TITLES = ["step", "before", "stopped by correctness", "why"]
FIGURES = [False, True, True, False]


def printed(width: int, *rows: tuple[str, str, str, str], cut: int = 0) -> str:
    out = io.StringIO()
    table = Fitted(TITLES, FIGURES, [[Text(c) for c in row] for row in rows], cut)
    Console(file=out, width=width, force_terminal=False).print(table)
    return out.getvalue()


def test_what_fits_is_one_line_a_row() -> None:
    text = printed(100, ("mm", "1.500 µs", "0", "fast enough"), (KERNEL, "20.50 µs", "11", ""))
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    assert [line.split() for line in lines[:3]] == [["stopped"], ["by"], ["step", "before", "correctness", "why"]]
    assert set(lines[3].strip()) == {"─"}
    assert [line.split() for line in lines[4:]] == [
        ["mm", "1.500", "µs", "0", "fast", "enough"], [KERNEL, "20.50", "µs", "11"]]
    assert lines[4].index("1.500 µs") == lines[5].index("20.50 µs")


def test_what_does_not_fit_goes_below_its_row() -> None:
    lines = [line.rstrip() for line in printed(60, (KERNEL, "20.50 µs", "11", "too slow " * 9)).splitlines()]
    assert f" {KERNEL}" in lines
    assert any(line.split() == ["20.50", "µs", "11"] for line in lines)
    assert any(line.startswith("     why: too slow") for line in lines)


def test_columns_with_nothing_in_them_are_left_out() -> None:
    text = printed(80, ("mm", "1.5", "", ""), ("bmm", "2.5", "", ""), cut=3)
    assert "why" not in text
    assert "correctness" not in text
    assert "3 more rows" in text


@settings(max_examples=50, deadline=None)
@given(st.integers(24, 120), st.lists(st.integers(0, 60), min_size=4, max_size=4))
def test_nothing_is_lost_and_nothing_is_too_wide(width: int, lengths: list[int]) -> None:
    cells = ("s" * lengths[0], "b" * min(lengths[1], 12), "c" * min(lengths[2], 12), "y" * lengths[3])
    text = printed(width, cells)
    assert max(len(line) for line in text.splitlines()) <= width
    body = text[text.index("─"):].replace(TITLES[1], "").replace(TITLES[2], "").replace(TITLES[0], "")
    for letter, cell in zip("sbcy", cells, strict=True):
        assert body.count(letter) >= len(cell)


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_names_of_kernels_are_whole_where_the_terminal_has_room(run: RunResult, width: int) -> None:
    out = io.StringIO()
    print_report(build(run), Console(file=out, width=width, force_terminal=False))
    assert "triton_per_fused_native_layer_norm_0" in out.getvalue().partition("Kernels\n")[2]
    assert max(len(line) for line in out.getvalue().splitlines()) <= width
