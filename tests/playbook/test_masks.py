from __future__ import annotations

import ast

import pytest

from kernelopt_bot.playbook.masks import within, without
from kernelopt_bot.playbook.rewrite import statements


@pytest.mark.parametrize(("before", "after"), [
    ("a = tl.load(p + x, m & n, other=0.0)", "a = tl.load(p + x, n, other=0.0)"),
    ("a = tl.load(p + x, m, other=0.0)", "a = tl.load(p + x, None)"),
    ("a = tl.load(p + x, m & k, other=0.0)", "a = tl.load(p + x, None)"),
    ("a = tl.where(m & n, b, c)", "a = tl.where(n, b, c)"),
    ("a = tl.where(m, b, c)", "a = b"),
    ("tl.store(p + x, a, m)", "tl.store(p + x, a, None)"),
])
def test_masks_known_to_be_true_are_taken_out(before: str, after: str) -> None:
    assert ast.unparse(without(statements(before), {"m", "k"})[0]) == after


@pytest.mark.parametrize(("before", "after"), [
    ("a = tl.load(p + x, None)", "a = tl.load(p + x, m)"),
    ("a = tl.load(p + x)", "a = tl.load(p + x, m)"),
    ("a = tl.load(p + x, n | k, other=0.0)", "a = tl.load(p + x, m & (n | k), other=0.0)"),
    ("a = tl.load(p + x, m & n)", "a = tl.load(p + x, m & n)"),
    ("tl.store(p + x, a, None)", "tl.store(p + x, a, m)"),
    ("tl.store(p + x, a)", "tl.store(p + x, a, m)"),
])
def test_a_mask_is_put_in(before: str, after: str) -> None:
    assert ast.unparse(within(statements(before), "m")[0]) == after
