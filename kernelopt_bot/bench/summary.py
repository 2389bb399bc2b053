"""Figures over all problems of a level. A problem without a gain counts as 1.0; none is left out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from kernelopt_bot.bench.headroom import captured
from kernelopt_bot.bench.record import BEST, SETS, STATUSES, Record

Key = tuple[int, int]


def summarise(problems: Iterable[Key], records: Sequence[Record],
              ceilings: Mapping[Key, float] | None = None) -> dict[str, Any]:
    """`{"levels": {"1": {...}}}` over `problems`, those without a record included.

    `coverage` is measured / problems; `improved` counts gains of `+launch` whose interval lies above 1; `geomean` has
    the geometric mean of each set of levers against default torch.compile, and of `best_baseline`; `captured` is of
    `kernel+dispatch`, `captured_kernel` of the kernel lever on top of the levers before it, both None without
    ceilings.
    """
    known = {r.key: r for r in records}
    by_level: dict[int, list[Key]] = {}
    for key in sorted(set(problems)):
        by_level.setdefault(key[0], []).append(key)
    return {"levels": {str(level): _level(keys, known, ceilings or {}) for level, keys in by_level.items()}}


def _level(keys: Sequence[Key], known: Mapping[Key, Record], ceilings: Mapping[Key, float]) -> dict[str, Any]:
    found = [known[k] for k in keys if k in known]
    measured = [r for r in found if r.status == "measured"]
    statuses = Counter(r.status for r in found)
    searched = [r.search_s for r in measured if r.search_s is not None]
    totals = [r.total_s for r in found if r.total_s is not None]
    return {
        "problems": len(keys),
        "coverage": len(measured) / len(keys),
        "statuses": {s: statuses[s] for s in STATUSES if statuses[s]} | (
            {"not run": len(keys) - len(found)} if len(found) < len(keys) else {}),
        "improved": sum("+launch" in r.gains and r.gains["+launch"].low > 1.0 for r in found),
        "worse": sum("+launch" in r.gains and r.gains["+launch"].high < 1.0 for r in found),
        "geomean": {name: geomean([known[k].gain(name) if k in known else 1.0 for k in keys])
                    for name in (*SETS, BEST)},
        "captured": captured({k: known[k].gain(SETS[0]) if k in known else 1.0 for k in keys}, ceilings),
        "captured_kernel": captured({k: kernel_gain(known.get(k)) for k in keys}, ceilings),
        "search_s": median(searched) if searched else None,
        "total_s": median(totals) if totals else None,
    }


def geomean(gains: Sequence[float]) -> float:
    """Raises ValueError for none, or for one that is not above 0."""
    return math.exp(sum(map(math.log, gains)) / len(gains)) if gains else _none()


def kernel_gain(record: Record | None) -> float:
    lever = record.levers.get("kernel") if record is not None else None
    return lever.gain.speedup if lever is not None and lever.adopted and lever.gain is not None else 1.0


def _none() -> float:
    raise ValueError("no gains")
