from __future__ import annotations

import ast

import pytest

from kernelopt_bot.playbook.regions import comparisons, regions, within_region
from kernelopt_bot.playbook.rewrite import statements

PADDED = """
t = (-2 + x).to(tl.int32)
z = tl.full([1], 0, tl.int64)
low = t >= z
w = tl.full([1], 10, tl.int64)
high = t < w
both = low & high
v = tl.load(p + t, both & m, other=0.0)
u = tl.where(high, v, q)
tl.store(o + x, u, m)
"""


def text(body: list[ast.stmt]) -> str:
    return "\n".join(ast.unparse(s) for s in body)


def test_comparisons_are_thresholds_of_one_variable() -> None:
    assert comparisons(statements(PADDED), {"x"}) == {"low": ("x", 2, True), "high": ("x", 12, False)}


@pytest.mark.parametrize(("text", "expected"), [
    ("x > 3", ("x", 4, True)), ("x <= 3", ("x", 4, False)), ("5 > x", ("x", 5, False)), ("5 <= x", ("x", 5, True)),
    ("2 >= 3", ("", 0, False)), ("2 <= 3", ("", 0, True)),
    ("x + y < 3", None), ("2 * x < 3", None), ("x == 3", None), ("x // 2 < 3", None)])
def test_only_decidable_comparisons_count(text: str, expected: tuple[str, int, bool] | None) -> None:
    assert comparisons(statements(f"b = {text}"), {"x", "y"}).get("b") == expected


def test_regions_lie_between_the_thresholds_longest_first() -> None:
    assert regions(comparisons(statements(PADDED), {"x"}), "x", 14) == [(2, 12), (0, 2), (12, 14)]


def test_inside_every_bound_there_is_no_comparison_and_no_mask_of_it() -> None:
    body = statements(PADDED)
    found = text(within_region(body, comparisons(body, {"x"}), "x", (2, 12)))
    assert ">=" not in found and "<" not in found and "tl.where" not in found
    assert "tl.load(p + t, m" in found and found.endswith("tl.store(o + x, v, m)")


def test_outside_a_bound_only_what_is_still_used_is_read() -> None:
    body = statements(PADDED)
    found = text(within_region(body, comparisons(body, {"x"}), "x", (12, 14)))
    assert "tl.load" not in found and found == "tl.store(o + x, q, m)"


def test_a_load_that_is_used_under_a_false_mask_keeps_it() -> None:
    body = statements(PADDED.replace("tl.where(high, v, q)", "v + q"))
    assert "tl.load(p + t, high & m, other=0.0)" in text(within_region(body, comparisons(body, {"x"}), "x", (12, 14)))


def test_the_body_itself_is_left_alone() -> None:
    body = statements(PADDED)
    within_region(body, comparisons(body, {"x"}), "x", (2, 12))
    assert text(body) == text(statements(PADDED))
