"""The page: every problem, by its number; the committed one is its result's."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from kernelopt_bot.bench import store
from kernelopt_bot.bench.page import write_page
from kernelopt_bot.bench.record import Record
from kernelopt_bot.bench.store import Result
from kernelopt_bot.bench.summary import summarise
from tests.bench.conftest import BEGUN, adopted, measured, recorded

ROOT = Path(__file__).parents[2]
RECORDS = (
    replace(recorded(adopted()), number=1), measured(3, None),
    replace(BEGUN, number=5, status="unsupported", error="no graph | of *this* model <b>"),
    measured(1, 1.5, level=3))


def result(select: str = "odd", records: tuple[Record, ...] = RECORDS) -> Result:
    keys = ((1, 1), (1, 3), (1, 5), (1, 7), (3, 1))
    return Result(select, "abc123", keys, records, summarise(keys, records, {(1, 1): 1.5, (3, 1): 2.0}))


@pytest.fixture
def page(tmp_path: Path) -> Path:
    write_page(result(), tmp_path / "docs" / "benchmarks.md", source="../results/kernelbench.json")
    return tmp_path / "docs" / "benchmarks.md"


def table(text: str, heading: str) -> list[list[str]]:
    part = text.partition(heading)[2].partition("\n## ")[0]
    return [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in part.splitlines()
            if line.startswith("|")]


def test_every_problem_has_a_row_of_as_many_cells_as_the_head(page: Path) -> None:
    head, _, *rows = table(page.read_text(), "## Level 1")
    assert [row[0] for row in rows] == ["1", "3", "5", "7"]
    assert [row[1] for row in rows] == ["measured", "measured", "unsupported", "not run"]
    assert {len(row) for row in rows} == {len(head)}
    first = dict(zip(head, rows[0], strict=True))
    assert first["+launch"] == "1.330 [1.310, 1.360]" and first["best baseline"].startswith("1.210 ")
    assert first["default"] == "1596" and first["optimised"] == "1200"
    assert first["adopted"] == "`persistent reduction`, `CUDA graphs`"


def test_the_summary(page: Path) -> None:
    head, _, *rows = table(page.read_text(), "## Summary")
    first = dict(zip(head, rows[0], strict=True))
    assert first["+launch"] == f"{1.33 ** 0.25:.3f}x" and first["coverage"] == "50%" and first["improved"] == "1"
    assert [row[0] for row in rows] == ["1", "3"]


def test_the_odd_half_is_not_compared_with_the_paper(page: Path) -> None:
    text = page.read_text()
    assert "odd-numbered problems" in text and "not to be compared with those of the KernelOPT paper" in text
    assert "held out" in text


def test_another_selection_is_said(tmp_path: Path) -> None:
    write_page(result("1,3"), tmp_path / "page.md", source="x.json")
    text = (tmp_path / "page.md").read_text()
    assert "odd-numbered" not in text and ": 1,3. The figures are not to be compared" in text


def test_reasons_are_escaped(page: Path) -> None:
    assert r"- 5: no graph \| of \*this\* model &lt;b&gt;" in page.read_text()


def test_pictures_are_beside_the_page_and_equal_results_give_equal_bytes(page: Path) -> None:
    pictures = {p.name: p.read_bytes() for p in (page.parent / "pictures").iterdir()}
    assert set(pictures) == {"kernelbench-light.svg", "kernelbench-dark.svg"}
    assert all(f"pictures/{name}" in page.read_text() for name in pictures)
    assert all(b"level 3" in content for content in pictures.values())
    before = page.read_bytes()
    write_page(result(), page, source="../results/kernelbench.json")
    assert page.read_bytes() == before
    assert {p.name: p.read_bytes() for p in (page.parent / "pictures").iterdir()} == pictures


def test_the_committed_page_is_made_from_the_newest_committed_result(tmp_path: Path) -> None:
    found = sorted((ROOT / "benchmarks" / "results").glob("kernelbench_*.json"))
    page = ROOT / "docs" / "benchmarks.md"
    assert page.exists() == bool(found), "run: kernelopt bench report RESULT --output docs/benchmarks.md"
    if found:
        write_page(store.load(found[-1]), tmp_path / "benchmarks.md", source=f"../benchmarks/results/{found[-1].name}")
        assert page.read_text() == (tmp_path / "benchmarks.md").read_text()
