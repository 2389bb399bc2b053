"""KernelBench's problems on disk, and which of them are asked for. Only names are read here, no problem.

Layout (github.com/ScalingIntelligence/KernelBench): `KernelBench/level1/19_NAME.py`, the number unique in its level.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kernelopt_bot.bench.machine import commit
from kernelopt_bot.errors import InputError

LEVELS = (1, 2, 3, 4)
_FILE = re.compile(r"^(\d{1,4})(?:_.*)?\.py$")
_RANGE = re.compile(r"^(\d{1,4})(?:-(\d{1,4}))?$")


@dataclass(frozen=True, order=True)
class Problem:
    level: int
    number: int
    path: Path

    @property
    def id(self) -> str:
        return f"level{self.level}-{self.number:03d}"


@dataclass(frozen=True)
class Selection:
    """Which numbers of a level are meant."""

    text: str
    ranges: tuple[tuple[int, int], ...] = ()

    def __contains__(self, number: int) -> bool:
        if self.text in ("odd", "even"):
            return number % 2 == (self.text == "odd")
        return self.text == "all" or any(low <= number <= high for low, high in self.ranges)


def selection(text: str) -> Selection:
    """`odd`, `even`, `all`, or numbers and ranges such as `1,3,5-9`. Raises InputError."""
    text = text.replace(" ", "")
    if text in ("odd", "even", "all"):
        return Selection(text)
    ranges = []
    for part in text.split(","):
        found = _RANGE.match(part)
        if found is None or int(found[2] or found[1]) < int(found[1]):
            raise InputError(f"{part!r} is no number and no range of numbers", where="--select",
                             fix="give odd, even, all, or numbers such as 1,3,5-9")
        ranges.append((int(found[1]), int(found[2] or found[1])))
    return Selection(text, tuple(ranges))


def levels(text: str) -> tuple[int, ...]:
    """`1,2,3`, sorted, each once. Raises InputError."""
    parts = text.replace(" ", "").split(",")
    if not all(part.isdigit() and int(part) in LEVELS for part in parts):
        raise InputError(f"{text!r} are no levels", where="--levels",
                         fix=f"give some of {','.join(map(str, LEVELS))}, separated by commas")
    return tuple(sorted({int(part) for part in parts}))


def version(folder: Path) -> str:
    """The commit of a clone; of a folder without `.git` what its file COMMIT says, '' if there is none."""
    if (folder / ".git").exists():
        return commit(folder)
    try:
        return " ".join((folder / "COMMIT").read_text(encoding="utf-8").split())[:80]
    except (OSError, UnicodeDecodeError):
        return ""


def find(folder: Path, wanted: Iterable[int], selected: Selection) -> tuple[Problem, ...]:
    """The selected problems of the wanted levels, in order.

    `folder` is a clone, or any folder that holds `level1/...`. Raises InputError: a level that is not there, two
    problems with one number, nothing selected.
    """
    found: list[Problem] = []
    for level in wanted:
        name = f"level{level}"
        place = next((p for p in (folder / "KernelBench" / name, folder / name) if p.is_dir()), None)
        if place is None:
            raise InputError(f"there is no {name}", where=str(folder),
                             fix="give a clone of KernelBench, or a folder that holds level1/1_NAME.py and so on")
        numbers = [(int(match[1]), file) for file in sorted(place.iterdir()) if (match := _FILE.match(file.name))]
        twice = {n for n, _ in numbers if n in selected and [m for m, _ in numbers].count(n) > 1}
        if twice:
            raise InputError(f"the number {min(twice)} is there more than once", where=str(place),
                             fix="keep one file a number")
        found += [Problem(level, number, file) for number, file in numbers if number in selected]
    if not found:
        raise InputError(f"no problem is selected by {selected.text!r}", where=str(folder), fix="select other numbers")
    return tuple(sorted(found))
