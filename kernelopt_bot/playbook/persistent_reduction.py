"""A row that is read in several passes is kept in registers and read once.

Inductor loops over a row in blocks; a normalisation then reads the row again for each pass. Where the whole row
fits the registers of one program, the loops become one block, equal loads merge, and a Welford update becomes two
plain sums. Expected: traffic of all passes over traffic of one, less what the second pass found in L2.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelopt_bot.contract.candidate import KernelCandidate, Launch
from kernelopt_bot.playbook.block_softmax import maximum_first
from kernelopt_bot.playbook.emit import Function, candidate, grid, plain, runtime_parameters, understood
from kernelopt_bot.playbook.kernel_source import BLOCKS, KernelSource, NotUnderstood, name_of
from kernelopt_bot.playbook.rewrite import drop_dead, expression, merge_equal, statements
from kernelopt_bot.playbook.syntax import copied
from kernelopt_bot.playbook.technique import Expectation, Site, width
from kernelopt_bot.playbook.traffic import row_traffic
from kernelopt_bot.playbook.welford import two_pass

_ROW_BYTES = 1 << 17
"""Largest row kept: half of a multiprocessor's 256 KiB register file (65536 32-bit registers, CUDA C++ Programming
Guide, compute capability 9.0)."""


class PersistentReduction:
    name = "persistent_reduction"
    citation = ("Persistent softmax kept in registers: Triton tutorial 02 (fused softmax); Jiang et al., "
                "Data Movement Is All You Need, MLSys 2021")

    def applies(self, site: Site) -> Expectation | None:
        source = site.source
        if source is None or not fits(source, site):
            return None
        traffic = row_traffic(site, source)
        if traffic.passes <= traffic.once:
            return None
        gain = min(traffic.passes / traffic.once, site.headroom)
        return Expectation(gain, f"{traffic.passes} row elements moved in all passes, {traffic.once} needed")

    def propose(self, site: Site) -> Iterator[KernelCandidate]:
        try:
            source = understood(site)
            body = single_pass(source, site)
        except NotUnderstood:
            return
        length = source.constants["r0_numel"]
        block = 1 << (length - 1).bit_length()
        parameters = runtime_parameters(source)
        function = Function(source.name, parameters, ("XBLOCK",), body)
        for per_thread in (16, 8, 32, 4):
            warps = max(1, min(32, block // (32 * per_thread)))
            for rows in (1, max(1, 1024 // block)):
                if not source.masked("x") and source.constants.get("xnumel", 1) % rows:
                    continue
                launch = Launch(plain(source.name), grid(source, {"XBLOCK": rows, "R0_BLOCK": block}), parameters,
                                {"XBLOCK": rows}, warps)
                yield candidate(site, self.name, [function], [launch],
                                f"row of {length} kept in registers, {warps} warps, {rows} rows a program")
                if block >= 1024:
                    break


def fits(source: KernelSource, site: Site) -> bool:
    """True for looped reductions over one static dimension whose row fits registers and keeps its mask."""
    length = source.constants.get("r0_numel", 0)
    if source.heuristic != "reduction" or source.dimensions != ("x", "r0_") or not source.loops or not length:
        return False
    block = 1 << (length - 1).bit_length()
    rows = [a for a in source.loads if a.loop is not None]
    bytes_ = max((width(source.signature.get(a.pointer, "")) for a in rows), default=4)
    pointers = len({a.pointer for a in rows})
    masked = source.masked("r0_") or block == length
    return masked and block * max(bytes_, 4) * pointers <= _ROW_BYTES and source.tunable == ("XBLOCK", "R0_BLOCK")


def single_pass(source: KernelSource, site: Site) -> list[ast.stmt]:
    """The body with each loop run as one block. Raises NotUnderstood where a loop has another form."""
    length = source.constants["r0_numel"]
    block = 1 << (length - 1).bit_length()
    body: list[ast.stmt] = statements(f"{BLOCKS['r0_']}: tl.constexpr = {block}")
    for statement in source.body:
        if not isinstance(statement, ast.For):
            body.append(copied(statement))
            continue
        if ast.unparse(statement.iter) not in ("tl.range(0, r0_numel, R0_BLOCK)", "range(0, r0_numel, R0_BLOCK)"):
            raise NotUnderstood(f"a loop over {ast.unparse(statement.iter)}")
        body += statements("r0_offset = 0")
        for inner in statement.body:
            if isinstance(inner, ast.For):
                raise NotUnderstood("a nested loop")
            inner = copied(inner)
            if name_of(inner) == "r0_mask" and isinstance(inner, ast.Assign) and block != length:
                inner.value = expression("r0_index < r0_numel")
            body.append(inner)
    merged = merge_equal(body, site.distinct)
    return drop_dead(maximum_first(two_pass(merged, length)))


TECHNIQUE = PersistentReduction()
