from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from benchmarks.picture import NAME, PICTURES, RECORD, chart
from benchmarks.records import DEMO, load, paths
from benchmarks.table import COLUMNS, gain, lines

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs" / "report.schema.json").read_text())


def test_there_are_six_targets() -> None:
    assert len({load(p).target["name"] for p in paths()}) >= 6


@pytest.mark.parametrize("path", paths(), ids=lambda p: p.stem)
def test_a_record_says_what_ran_where(path: Path) -> None:
    record = load(path)
    jsonschema.validate(record.report, SCHEMA)
    name = record.target["name"].removeprefix("examples_")
    assert path.name == f"optimize_{name}_h200_{record.date}.json"
    assert (ROOT / record.target["path"]).is_file()
    assert record.command.startswith(f"kernelopt optimize {record.target['path']}")
    assert re.fullmatch(r"[0-9a-f]{40}", record.commit)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", record.date)
    assert set(record.versions) == {"kernelopt", "python", "torch", "triton", "cuda"}
    assert all([*record.versions.values(), record.gpu, record.driver, record.notes, *record.notes])
    environment = record.report["environment"][record.target["name"]]
    assert (record.gpu, record.driver) == (environment["gpu"]["name"], environment["gpu"]["driver"])
    assert record.versions == {k: environment[k] for k in record.versions}


@pytest.mark.parametrize("path", paths(), ids=lambda p: p.stem)
def test_a_record_says_how_its_search_was_cut(path: Path) -> None:
    record = load(path)
    spent = any("wall time" in lever["reason"] for lever in record.report["levers"])
    assert spent == any(note.startswith("Cut short:") for note in record.notes)


@pytest.mark.parametrize("path", [*paths(), DEMO], ids=lambda p: p.stem)
def test_a_record_names_no_machine(path: Path) -> None:
    assert not re.search(r"GPU-[0-9a-f]{8}-|\"/(home|root|opt|tmp|work)/", path.read_text())


def test_the_table_has_a_row_a_record() -> None:
    head, _, *rows = lines([load(p) for p in paths()])
    assert [c.strip() for c in head.strip("|").split("|")] == list(COLUMNS)
    assert len(rows) == len(paths())
    assert all(r.count("|") == len(COLUMNS) + 1 for r in rows)


def test_the_table_is_the_one_in_the_notes() -> None:
    notes = (ROOT / "benchmarks" / "NOTES.md").read_text()
    assert "\n".join(lines([load(p) for p in paths()])) in notes


def test_the_picture_is_the_record_s() -> None:
    made = chart(load(RECORD))
    assert (PICTURES / f"{NAME}-light.svg").read_bytes() == made.light
    assert (PICTURES / f"{NAME}-dark.svg").read_bytes() == made.dark


def test_the_readme_s_figures_are_the_record_s() -> None:
    readme = (ROOT / "README.md").read_text()
    record = load(RECORD)
    assert gain(record.target["headline"]) in readme
    assert gain(record.against("default")) in readme
    assert gain(record.against("default", "throughput", "warm")) in readme


def test_the_readme_s_excerpt_is_the_demo_s() -> None:
    record = load(DEMO)
    jsonschema.validate(record.report, SCHEMA)
    assert (record.command, record.gpu) == ("make demo", "")
    blocks = re.findall(r"```\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    excerpt = next(b for b in blocks if "targets faster" in b)
    targets = record.report["targets"]
    faster = [t for t in targets if t["faster"]]
    assert f"KernelOPT: {len(faster)} of {len(targets)} targets faster" in excerpt
    for t in targets:
        row = next(line for line in excerpt.splitlines() if line.strip().startswith(t["name"])).split()
        assert row[-1] == str(t["candidates"])
        if t["faster"]:
            h = t["headline"]
            assert row[1:5] == [f"{h['speedup']:.3f}x", f"{h['low']:.3f}x", "to", f"{h['high']:.3f}x"]
        else:
            assert len(row) == 2
