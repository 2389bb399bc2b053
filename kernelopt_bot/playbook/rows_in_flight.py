"""Few rows at a time, so that a later pass over a row finds it in L2.

One program a row and as many programs as fit keep hundreds of rows in flight: for long rows that is more than L2 holds,
and every pass goes to memory. Here the grid has one or two programs for each multiprocessor, each with many warps, that
walk over the rows. Expected: the passes that L2 then serves at about twice memory's rate.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelopt_bot.contract.candidate import KernelCandidate, Launch
from kernelopt_bot.playbook.emit import Function, candidate, plain, runtime_parameters, understood
from kernelopt_bot.playbook.kernel_source import KernelSource, NotUnderstood
from kernelopt_bot.playbook.launch_space import contiguous
from kernelopt_bot.playbook.rewrite import reads, statements
from kernelopt_bot.playbook.syntax import copied
from kernelopt_bot.playbook.technique import Expectation, Site, width
from kernelopt_bot.playbook.traffic import row_traffic

_REACH = 0.7
"""Share of L2 that the rows in flight may take."""
_L2_OVER_MEMORY = 2.0
"""Rate of L2 over that of memory, roughly: 5.5 to 7 TB/s against 3 to 4.8 on an H100 or H200."""
_SHAPES = ((8192, 32, 1), (4096, 16, 1), (4096, 16, 2), (8192, 32, 2), (16384, 32, 1), (4096, 32, 1))
"""(block, warps, programs for each multiprocessor)."""


class RowsInFlight:
    name = "rows_in_flight"
    citation = ("Persistent programs: Gupta, Stuart, Owens, A Study of Persistent Threads Style GPU Programming, InPar "
                "2012; working sets: Denning, CACM 11(5), 1968")

    def applies(self, site: Site) -> Expectation | None:
        source = site.source
        if source is None or not _fits(source, site, 1):
            return None
        try:
            walked(source)
        except NotUnderstood:
            return None
        traffic = row_traffic(site, source)
        again = traffic.passes - traffic.once
        if again <= 0:
            return None
        gain = min(traffic.passes / (traffic.once + again / _L2_OVER_MEMORY), site.headroom)
        return Expectation(gain, f"{again} passes of {traffic.passes} can come from L2 with one row in flight for each "
                                 "multiprocessor")

    def propose(self, site: Site) -> Iterator[KernelCandidate]:
        try:
            source = understood(site)
            body, parameters = walked(source), runtime_parameters(source)
            length, rows = source.constants["r0_numel"], source.constants["xnumel"]
            for block, warps, each in _SHAPES:
                if block >= length or (not source.masked("r0_") and length % block) or not _fits(source, site, each):
                    continue
                function = Function(source.name, parameters, source.tunable, body)
                launch = Launch(plain(source.name), (f"min({rows}, num_sms * {each})",), parameters,
                                {"XBLOCK": 1, "R0_BLOCK": block}, warps)
                yield candidate(site, self.name, [function], [launch],
                                f"{each} rows in flight for each multiprocessor, blocks of {block}, {warps} warps")
        except NotUnderstood:
            return


def _fits(source: KernelSource, site: Site, each: int) -> bool:
    """True where a long row is walked several times and `each` rows for each multiprocessor fit L2."""
    length, rows = source.constants.get("r0_numel", 0), source.constants.get("xnumel", 0)
    if (source.heuristic != "reduction" or source.tunable != ("XBLOCK", "R0_BLOCK") or len(source.loops) < 2
            or source.dimensions != ("x", "r0_") or contiguous(source) != "r0_"):
        return False
    widths = [width(source.signature.get(a.pointer, "")) for a in source.loads if a.loop is not None]
    streams = {a.pointer for a in source.loads if a.loop is not None
               and site.tensor_numel(a.pointer) > 2 * length}
    in_flight = each * max(1, site.roofs.multiprocessors)
    return rows > in_flight and length * max(widths, default=4) * max(1, len(streams)) * in_flight <= (
        _REACH * site.roofs.l2_bytes)


def walked(source: KernelSource) -> list[ast.stmt]:
    """The body in a loop over the rows. Raises NotUnderstood where it uses the number of its program otherwise."""
    outside: list[ast.stmt] = []
    inside: list[ast.stmt] = []
    replaced = 0
    for statement in copied(list(source.body)):
        if isinstance(statement, ast.AnnAssign):
            outside.append(statement)
            continue
        for node in ast.walk(statement):
            for field, value in ast.iter_fields(node):
                if isinstance(value, ast.Call) and ast.unparse(value) == "tl.program_id(0)":
                    setattr(node, field, ast.Name("row", ast.Load()))
                    replaced += 1
        inside.append(statement)
    if replaced != 1 or any("program_id" in ast.unparse(s) or "num_programs" in ast.unparse(s) for s in inside):
        raise NotUnderstood("another use of the program's number")
    if {"row"} & {n for s in source.body for n in reads(s)}:
        raise NotUnderstood("a name that is taken")
    rows = source.constants["xnumel"]
    loop = statements(f"for row in tl.range(tl.program_id(0), {rows}, tl.num_programs(0)):\n    pass")[0]
    assert isinstance(loop, ast.For)
    loop.body = inside
    return [*outside, loop]


TECHNIQUE = RowsInFlight()
