"""How much faster a problem can become by rewriting its generated kernels alone: measured before, given as a table."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping
from pathlib import Path

from kernelopt_bot.errors import InputError

COLUMN = "kernel_ceiling_x"


def load(path: Path) -> dict[tuple[int, int], float]:
    """(level, number) -> ceiling, at least 1.0.

    A table with tabs and the columns `level`, `problem` (begins with its number) and `kernel_ceiling_x`: time with
    every generated kernel as it is / with every one at its floor. Raises InputError.
    """
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream, delimiter="\t"))
    except (OSError, UnicodeDecodeError) as e:
        raise InputError("the table of headroom cannot be read", where=str(path), fix="check --headroom") from e
    found: dict[tuple[int, int], float] = {}
    for line, row in enumerate(rows, 2):
        number = re.match(r"\d+", row.get("problem") or "")
        try:
            ceiling = float(row[COLUMN])
            level = int(row["level"])
        except (KeyError, TypeError, ValueError):
            ceiling = math.nan
        if number is None or not math.isfinite(ceiling):
            raise InputError("this line has no level, problem and ceiling", where=f"{path}:{line}",
                             fix=f"give the columns level, problem and {COLUMN}, separated by tabs")
        found[level, int(number[0])] = max(1.0, ceiling)
    return found


def captured(gains: Mapping[tuple[int, int], float], ceilings: Mapping[tuple[int, int], float]) -> float | None:
    """Share of the headroom in logarithms, over the problems with a ceiling: sum of ln(gain) / sum of ln(ceiling).

    A gain counts up to its own problem's ceiling, so that what came from elsewhere does not fill another problem's
    headroom; losses count in full. None where there is no headroom.
    """
    room = sum(math.log(ceilings[key]) for key in gains if key in ceilings)
    if room <= 0:
        return None
    return sum(math.log(min(gain, ceilings[key])) for key, gain in gains.items() if key in ceilings) / room
