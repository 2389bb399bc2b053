from __future__ import annotations

import ast

import pytest

from kernelopt_bot.playbook.affine import Affine, Digit, affine, digit
from kernelopt_bot.playbook.kernel_source import NotUnderstood
from kernelopt_bot.playbook.rewrite import expression

DEFINITIONS = {"t": expression("(-1 + 2 * x + r).to(tl.int64)"), "c": expression("tl.full([1, 1], 64, tl.int64)")}


def of(text: str) -> Affine:
    return affine(expression(text), DEFINITIONS, {"x", "r", "y"})


def test_sums_of_multiples_through_definitions() -> None:
    assert of("3 * (t - y) + c * 2 - -5 * r") == Affine({"x": 6, "r": 8, "y": -3}, 125)


def test_terms_that_cancel_are_gone() -> None:
    assert of("t - 2 * x - r") == Affine({}, -1)


@pytest.mark.parametrize("text", ["x * y", "x // 2", "x % 2", "other", "t.to(tl.float32)", "1.5 * x", "True + x"])
def test_what_is_no_sum_of_multiples_is_refused(text: str) -> None:
    with pytest.raises(NotUnderstood):
        of(text)


def test_text_is_the_expression() -> None:
    found = of("3 * x + y - 7")
    assert eval(found.text(), {"x": 5, "y": 11}) == 3 * 5 + 11 - 7
    assert Affine({}).text() == "0"


@pytest.mark.parametrize(("text", "expected"), [
    ("f", Digit(1)), ("f % 4", Digit(1, 4)), ("f // 3", Digit(3)), ("f // 3 % 4", Digit(3, 4)), ("f % 4 // 2", None),
    ("g % 4", None), ("f + 1", None), ("f // n", None)])
def test_digits_of_a_flat_index(text: str, expected: Digit | None) -> None:
    node: ast.expr = expression(text)
    assert digit(node, "f") == expected
