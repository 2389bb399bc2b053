from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelopt_bot.report import numbers as n


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.23456, "1.235"),
        (123456.0, "123500"),
        (0.000123456, "0.0001235"),
        (0.0, "0"),
        (-2.5, "-2.500"),
        (999.96, "1000.0"),
        (math.inf, "not finite"),
        (1e-9, "1.000e-09"),
    ],
)
def test_significant(value: float, text: str) -> None:
    assert n.significant(value) == text


@given(st.floats(min_value=1e-6, max_value=1e9))
def test_four_digits_are_close_enough(value: float) -> None:
    assert float(n.significant(value)) == pytest.approx(value, rel=6e-4)


def test_units_are_always_there() -> None:
    assert n.milliseconds(1.5) == "1.500 ms"
    assert n.microseconds(None) == "not measured"
    assert n.microseconds(20.5) == "20.50 µs"
    assert n.microseconds(0.001959) == "under 0.01 µs" and n.microseconds(0.0) == "0 µs"
    assert n.seconds(41.2) == "41.2 s"
    assert n.percent(0.144) == "14.4%"
    assert [n.size(b) for b in (12, 2048, 5 << 30)] == ["12 B", "2.0 KiB", "5.0 GiB"]
    assert n.ratio(math.nan) == "not finite"
