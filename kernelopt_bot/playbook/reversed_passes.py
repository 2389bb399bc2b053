"""A later pass over a long row starts where the pass before it ended.

Rows that are too long for registers are read again for each pass. When the rows in flight exceed L2, a pass that
starts at the front again finds nothing: what it needs was evicted last. Walking every second pass backwards meets the
end of the row while it is still in the cache. One row a program with many warps keeps few rows in flight. Expected:
the share of a row that its part of L2 holds, out of all passes; 1.05x to 1.3x.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.playbook.emit import identity, understood
from kernelopt_bot.playbook.kernel_source import KernelSource, NotUnderstood, name_of
from kernelopt_bot.playbook.launch_space import contiguous
from kernelopt_bot.playbook.rewrite import expression, reads, statements
from kernelopt_bot.playbook.syntax import copied
from kernelopt_bot.playbook.technique import Expectation, Site, width
from kernelopt_bot.playbook.traffic import row_traffic

_KEPT = 0.7
"""Share of L2 that holds rows; the rest holds what is written meanwhile."""
_SHAPES = ((8192, 32), (4096, 16), (4096, 32), (2048, 8), (16384, 32), (1024, 4))


class ReversedPasses:
    name = "reversed_passes"
    citation = ("Reversing alternate sweeps so that the end of one is the start of the next (Wolf and Lam, A Data "
                "Locality Optimizing Algorithm, PLDI 1991)")

    def applies(self, site: Site) -> Expectation | None:
        source = site.source
        if source is None or contiguous(source) != "r0_":
            return None
        try:
            backwards(source)
        except NotUnderstood:
            return None
        traffic = row_traffic(site, source)
        rows = [width(source.signature.get(a.pointer, "")) for a in source.loads if a.loop is not None]
        in_flight = site.roofs.multiprocessors * source.constants["r0_numel"] * max(rows, default=4)
        share = min(1.0, _KEPT * site.roofs.l2_bytes / max(1, in_flight))
        saved = (traffic.passes - traffic.once) * share
        gain = min(traffic.passes / (traffic.passes - saved), site.headroom)
        if gain < 1.02:
            return None
        return Expectation(gain, f"{share:.0%} of a row is still in L2 when the next pass begins")

    def propose(self, site: Site) -> Iterator[KernelCandidate]:
        try:
            source = understood(site)
            body = backwards(source)
            length = source.constants["r0_numel"]
            for block, warps in _SHAPES:
                if block >= length or (not source.masked("r0_") and length % block):
                    continue
                yield identity(site, {"XBLOCK": 1, "R0_BLOCK": block}, warps, 1, self.name,
                               f"every second pass backwards, blocks of {block}, {warps} warps", body)
        except NotUnderstood:
            return


def backwards(source: KernelSource) -> list[ast.stmt]:
    """The body with every second loop walked from its last block to its first. Raises NotUnderstood where there is no
    second pass or where the order of a pass matters."""
    length = source.constants.get("r0_numel")
    if (source.heuristic != "reduction" or source.dimensions != ("x", "r0_") or length is None
            or source.tunable != ("XBLOCK", "R0_BLOCK") or len(source.loops) < 2):
        raise NotUnderstood("no second pass over a row")
    body = copied(list(source.body))
    for number, loop in enumerate(s for s in body if isinstance(s, ast.For)):
        if number % 2 == 0:
            continue
        used = {n for s in loop.body if name_of(s) != "roffset" for n in reads(s)}
        if {"roffset", "rbase"} & used or "tl.associative_scan" in ast.unparse(loop):
            raise NotUnderstood("the order of the pass matters")
        target = ast.unparse(loop.target)
        loop.target = ast.Name("r0_walked", ast.Store())
        loop.iter = expression("tl.range(0, r0_numel, R0_BLOCK)")
        last = f"({length} + R0_BLOCK - 1) // R0_BLOCK * R0_BLOCK - R0_BLOCK"
        loop.body = [*statements(f"{target} = {last} - r0_walked"), *loop.body]
    return body


TECHNIQUE = ReversedPasses()
