"""How many elements of a row a kernel moves, and how many it needs to."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from kernelopt_bot.playbook.kernel_source import KernelSource
from kernelopt_bot.playbook.technique import Site


@dataclass(frozen=True)
class RowTraffic:
    """Counts of row-wide accesses, in rows: 3 for a row read twice and written once."""

    passes: int
    once: int


def row_traffic(site: Site, source: KernelSource) -> RowTraffic:
    """Accesses inside the loops against the distinct ones (same pointer, same index). A tensor that all rows share
    (fewer elements than the iteration space) is left out: it stays in the cache."""
    rows = (site.numel("x") or 1) * (site.numel("r0_") or 1)
    inside = [a for a in source.accesses if a.loop is not None and
              not 0 < site.tensor_numel(a.pointer) < min(rows, 2 * (site.numel("r0_") or 1))]
    distinct = {(a.kind, a.pointer, ast.unparse(a.index)) for a in inside}
    return RowTraffic(max(1, len(inside)), max(1, len(distinct)))
