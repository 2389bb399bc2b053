"""The table of all records, as Markdown: `python benchmarks/table.py`. A figure that was not measured stays empty."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.records import Record, load, paths

COLUMNS = ("target", "vs best baseline", "vs `default`", "adopted", "not reached", "A/A", "candidates", "wall s")


def gain(found: dict[str, Any] | None, *, named: bool = False) -> str:
    if found is None:
        return ""
    name = f" (`{found['baseline']}`)" if named else ""
    return f"{found['speedup']:.3f}x [{found['low']:.3f}, {found['high']:.3f}]{name}"


def row(record: Record) -> tuple[str, ...]:
    adopted = [f"`{a['technique']}`" for a in record.report["adopted"]]
    unreached = [f"`{lever['lever']}`" for lever in record.report["levers"] if "wall time" in lever["reason"]]
    (noise,) = record.report["noise"]
    spent = record.report["spent"]
    return (record.target["name"].removeprefix("examples_"), gain(record.target["headline"], named=True),
            gain(record.against("default")), ", ".join(adopted) or "nothing", ", ".join(unreached), gain(noise),
            f"{spent['candidates']:.0f}", f"{spent['wall_s']:.0f}")


def lines(records: list[Record]) -> Iterator[str]:
    yield f"| {' | '.join(COLUMNS)} |"
    yield f"|{'|'.join(['---'] * 6 + ['---:'] * 2)}|"
    for record in records:
        yield f"| {' | '.join(row(record))} |"


if __name__ == "__main__":
    print("\n".join(lines([load(p) for p in paths()])))
