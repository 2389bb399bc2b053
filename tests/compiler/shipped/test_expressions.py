from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelopt_bot.compiler._runtime import LARGEST_INTEGER, PlanError, evaluate

NAMES = {"n": 1000, "m": 7, "num_sms": 132}


@pytest.mark.parametrize(("text", "value"), [
    ("n", 1000), ("n + m * 2 - 3", 1011), ("n // m", 142), ("n % m", 6), ("cdiv(n, 128)", 8), ("cdiv(n, n)", 1),
    ("min(num_sms, cdiv(n, m), 500)", 132), ("max(n, 1)", 1000), ("next_power_of_2(n)", 1024),
    ("next_power_of_2(1024)", 1024), ("next_power_of_2(0)", 1), ("(n + 1) * (m - 7)", 0), (12, 12)])
def test_value(text: str | int, value: int) -> None:
    assert evaluate(text, NAMES) == value


@pytest.mark.parametrize("text", [
    "", "n +", "unknown", "n / m", "n ** m", "-n", "m - n", "m - n + n", "n // 0", "n % (m - 7)", "cdiv(n, 0)", "1.5",
    "True", "'n'", "n if m else 1", "n < m", "n << 3", "~n", "abs(n)", "__import__('os')", "n.real", "n[0]",
    "(lambda: 1)()", "cdiv(n)", "cdiv(n, m, 1)", "min(a=n)", "min(*[n])", "max()", f"{LARGEST_INTEGER} + 1",
    "n, m", "n; m", "(n := 3)", "[n]", "+".join(["n"] * 600), "(" * 400 + "n" + ")" * 400])
def test_what_is_not_in_the_language(text: str) -> None:
    with pytest.raises(PlanError):
        evaluate(text, NAMES)


@given(st.integers(0, 10**6), st.integers(1, 10**4), st.integers(1, 10**4))
def test_arithmetic_is_that_of_integers(a: int, b: int, c: int) -> None:
    names = {"a": a, "b": b, "c": c}
    assert evaluate("a // b + a % b * c", names) == a // b + a % b * c
    assert evaluate("cdiv(a, b)", names) == (a + b - 1) // b
    power = evaluate("next_power_of_2(c)", names)
    assert power >= c > power // 2 and power & (power - 1) == 0
