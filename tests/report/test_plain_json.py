"""Numbers of a report as hostile data. Shapes and figures: tests/publish/test_bundle.py."""

from __future__ import annotations

import time

import pytest

from kernelopt_bot.report import plain_json


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "1e999", "-1e999", "9" * 10_000_000, "-" + "9" * 30,
                                  "[" * 100_000, '{"a": 1'], ids=range(8))
def test_what_is_no_figure_is_refused(text: str) -> None:
    start = time.process_time()
    with pytest.raises(ValueError):
        plain_json.loads(text)
    # int() needs minutes for the digits of the fifth.
    assert time.process_time() - start < 5.0


def test_figures_come_as_they_are() -> None:
    assert plain_json.loads(f"[1, -2.5e-3, {plain_json.LARGEST}, null]") == [1, -0.0025, plain_json.LARGEST, None]
