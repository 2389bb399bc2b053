"""Several short rows in one program, each row inside one warp.

A reduction over a short row keeps a whole block busy with a tree of exchanges through shared memory. With as many
rows as there are warps (or more) in a tile, each warp reduces its own rows by shuffles alone and has several loads in
flight. A looped reduction whose row is short becomes one block at the same time. Expected: 1.1x to 1.5x for rows up to
a thousand elements.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelopt_bot.contract.candidate import KernelCandidate, Launch
from kernelopt_bot.playbook.emit import Function, candidate, grid, plain, runtime_parameters, understood
from kernelopt_bot.playbook.kernel_source import NotUnderstood
from kernelopt_bot.playbook.launch_space import contiguous
from kernelopt_bot.playbook.persistent_reduction import fits, single_pass
from kernelopt_bot.playbook.technique import Expectation, Site

_LONGEST = 1024
"""Longest row that a warp holds: 32 elements a thread."""


class MultiRowTiles:
    name = "multi_row_tiles"
    citation = ("Warp-per-row normalisation: Apex/PyTorch layer_norm and softmax kernels (persistent_softmax.cuh); "
                "Luitjens, Faster Parallel Reductions on Kepler, NVIDIA 2014")

    def applies(self, site: Site) -> Expectation | None:
        source = site.source
        if source is None or source.dimensions != ("x", "r0_") or contiguous(source) != "r0_":
            return None
        length, rows = source.constants.get("r0_numel", 0), site.numel("x") or 0
        kept = source.heuristic == "persistent_reduction" and source.tunable == ("XBLOCK",)
        if not 2 <= length <= _LONGEST or rows < 2 or not (kept or fits(source, site)):
            return None
        return Expectation(min(1.15, site.headroom), f"{rows} rows of {length} elements, several fit a program")

    def propose(self, site: Site) -> Iterator[KernelCandidate]:
        try:
            source = understood(site)
            looped = bool(source.loops)
            body = single_pass(source, site) if looped else source.body
            length = source.constants["r0_numel"]
            block = 1 << (length - 1).bit_length()
            parameters = runtime_parameters(source)
            function = Function(source.name, parameters, ("XBLOCK",), body)
            tried = {(c.constexprs.get("XBLOCK"), c.num_warps) for c in site.configs} if not looped else set()
            for rows, warps in _tiles(block):
                extent = site.numel("x") or 1
                if (rows, warps) in tried or rows > 2 * extent or (not source.masked("x") and extent % rows):
                    continue
                blocks = {"XBLOCK": rows, **({"R0_BLOCK": block} if looped else {})}
                launch = Launch(plain(source.name), grid(source, blocks), parameters, {"XBLOCK": rows}, warps)
                yield candidate(site, self.name, [function], [launch],
                                f"{rows} rows of {length} a program, {warps} warps")
        except NotUnderstood:
            return


def _tiles(block: int) -> list[tuple[int, int]]:
    """(rows, warps) with 4 to 32 elements a thread, 16 first, and no row across warps where there are enough rows."""
    found = []
    for per_thread in (16, 8, 32, 4):
        for warps in (4, 8, 2, 1):
            rows = warps * 32 * per_thread // block
            if rows >= max(2, warps):
                found.append((rows, warps))
    return found[:10]


TECHNIQUE = MultiRowTiles()
