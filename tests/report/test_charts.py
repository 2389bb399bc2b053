from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

from kernelopt_bot.report.charts import charts
from kernelopt_bot.report.svg import Bar, Point, draw_bars, draw_intervals
from kernelopt_bot.search.result import TargetResult


def test_both_charts_of_a_full_result(full: TargetResult) -> None:
    gain, kernels = charts(full)
    assert (gain.name, kernels.name) == ("gain", "kernels")
    for chart in (gain, kernels):
        for picture in (chart.light, chart.dark):
            assert ElementTree.fromstring(picture).tag.endswith("svg")
        assert chart.light != chart.dark
    # Throughput against default is another metric than the headline's: it has no place on the same axis.
    assert gain.text.count("against default") == 1
    assert "1.210x (1.190x to 1.240x)" in gain.alternative
    assert "before 20.50 µs, after 10.80 µs, floor 9.100 µs" in kernels.alternative


def test_no_figures_no_chart(full: TargetResult, failed: TargetResult) -> None:
    assert charts(failed) == ()
    assert [c.name for c in charts(replace(full, headline=None))] == ["kernels"]
    assert [c.name for c in charts(replace(full, profile=None))] == ["gain"]


def test_labels_are_text_not_mathematics_or_markup() -> None:
    label = "$\\frac{a}</text><script>&amp;"
    for picture in (
        draw_bars("t", "µs", (Bar(label, 2.0, None, 1.0),), dark=False),
        draw_intervals("t", "x", (Point(label, 1.2, 1.1, 1.3),), dark=True),
    ):
        texts = [e.text for e in ElementTree.fromstring(picture).iter() if e.text]
        assert label in texts
        assert b"<script" not in picture


def test_drawing_is_deterministic() -> None:
    points = (Point("a", 1.2, 1.1, 1.3), Point("A/A (noise)", 1.0, 0.99, 1.01))
    first = draw_intervals("t", "x", points, dark=False)
    draw_intervals.cache_clear()
    assert draw_intervals("t", "x", points, dark=False) == first


def test_the_text_chart_marks_the_point_inside_its_interval(full: TargetResult) -> None:
    text = charts(full)[0].text
    rows = [line for line in text.splitlines() if "against" in line]
    assert len(rows) == 4
    for row in rows:
        assert row.count("●") == 1
