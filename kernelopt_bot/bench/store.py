"""Records on disk: a file a problem while a benchmark runs, one file for the result.

    DIR/problems.json            what was asked for: the denominators
    DIR/records/level1-019.json  one problem
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelopt_bot.bench.record import Record, from_json
from kernelopt_bot.bench.summary import Key, summarise
from kernelopt_bot.errors import InputError
from kernelopt_bot.report.write import write_whole

SCHEMA = 1
SAME = ("gpu", "torch", "triton", "release")
"""Entries of `environment` that records have in common if they are to be one result."""


@dataclass(frozen=True)
class Result:
    """A benchmark as it is committed. `select`: how the problems were chosen (`odd`), `problem_set`: its commit."""

    select: str
    problem_set: str
    problems: tuple[Key, ...]
    records: tuple[Record, ...]
    summary: Mapping[str, Any]

    @property
    def environment(self) -> dict[str, list[str]]:
        """Name -> every value there is."""
        names = sorted({name for r in self.records for name in r.environment})
        return {name: sorted({r.environment.get(name, "") for r in self.records}) for name in names}

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA, "benchmark": "kernelbench", "select": self.select, "problem_set": self.problem_set,
            "date": max((r.date for r in self.records), default=""), "environment": self.environment,
            "summary": self.summary, "problems": [list(k) for k in self.problems],
            "records": [r.to_json() for r in self.records]}


def begin(folder: Path, problems: Iterable[Key], select: str, problem_set: str) -> None:
    """Note what is asked for, on top of what was asked for before. Raises InputError, Unavailable."""
    path = folder / "problems.json"
    before = _json(path) if path.exists() else {"problems": []}
    keys = sorted({*map(tuple, before["problems"]), *problems})
    selects = sorted({*filter(None, before.get("select", "").split("; ")), select})
    _write(path, {"select": "; ".join(selects), "problem_set": problem_set, "problems": [list(k) for k in keys]})


def add(folder: Path, record: Record) -> Path:
    """The record appears whole or not at all. Raises InputError, Unavailable."""
    return _write(folder / "records" / f"level{record.level}-{record.number:03d}.json", record.to_json())


def records(folder: Path) -> tuple[Record, ...]:
    """Those of a benchmark's folder. Raises InputError."""
    return tuple(_record(_json(path), path) for path in sorted((folder / "records").glob("*.json")))


def merge(places: Sequence[Path], *, ceilings: Mapping[Key, float] | None = None, mixed: bool = False) -> Result:
    """One result of several folders or results of earlier merges; of a problem's records the latest counts.

    Raises InputError: nothing there, or (unless `mixed`) records of different GPUs, versions, releases or settings.
    """
    problems: set[Key] = set()
    selects: set[str] = set()
    sources: set[str] = set()
    found: dict[Key, Record] = {}
    for place in places:
        asked = _json(place if place.is_file() else place / "problems.json")
        try:
            problems |= {(int(level), int(number)) for level, number in asked["problems"]}
            selects |= set(filter(None, str(asked["select"]).split("; ")))
            sources |= set(filter(None, [str(asked["problem_set"])]))
            own = tuple(_record(r, place) for r in asked["records"]) if place.is_file() else records(place)
        except (KeyError, TypeError, ValueError) as e:
            raise InputError("this is no benchmark's folder and no result of one", where=str(place),
                             fix="give folders that `kernelopt bench kernelbench` wrote") from e
        for record in own:
            if record.key not in found or found[record.key].date <= record.date:
                found[record.key] = record
    kept = tuple(found[key] for key in sorted(found))
    if not mixed:
        _one_kind(kept, sources)
    keys = tuple(sorted(problems | set(found)))
    return Result("; ".join(sorted(selects)), "; ".join(sorted(sources)), keys, kept, summarise(keys, kept, ceilings))


def load(path: Path) -> Result:
    """A result that `merge` made. Raises InputError."""
    data = _json(path)
    merged = merge([path], mixed=True)
    return Result(merged.select, merged.problem_set, merged.problems, merged.records, data["summary"])


def write(path: Path, result: Result) -> Path:
    """Raises InputError, Unavailable."""
    return _write(path, result.to_json())


def _one_kind(found: Sequence[Record], sources: Iterable[str]) -> None:
    different = {name: sorted({r.environment.get(name, "") for r in found}) for name in SAME}
    different["levers"] = sorted({",".join(r.settings.get("levers", ())) for r in found})
    different["problem set"] = sorted(sources)
    for level in sorted({r.level for r in found}):
        given = {f"{r.settings.get('search_s', 0):g} s" for r in found if r.level == level}
        different[f"search time in level {level}"] = sorted(given)
    for name, values in different.items():
        if len(values) > 1:
            raise InputError(f"the records do not belong together: {name} is {' and '.join(values)}",
                             fix="merge what is of one kind, or say --mixed")


def _record(data: Any, path: Path) -> Record:
    try:
        return from_json(data)
    except (ValueError, TypeError) as e:
        raise InputError(f"this is no record: {e}", where=str(path), fix="remove it; its problem is run again") from e


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise InputError("this benchmark's file cannot be read", where=str(path),
                         fix="give a folder or a file that `kernelopt bench` wrote") from e


def _write(path: Path, data: Any) -> Path:
    return write_whole(path, (json.dumps(data, indent=1, sort_keys=True, allow_nan=False) + "\n").encode())
