"""As much of a row as registers hold is read once, block by block; only the rest is read again.

`persistent_reduction` makes a row one block, padded to a power of two. Here a row stays a sequence of blocks: the first
ones are written out and what they loaded is kept in registers for the later passes, so a row of 24576 elements takes
24576 registers and not 32768, a kernel without a mask needs none, and of a row that is longer than the register file a
part still comes from there. Half-precision values are kept as they were loaded. Expected: traffic of all passes over
traffic of one, for the part that is kept.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelopt_bot.contract.candidate import KernelCandidate, Launch
from kernelopt_bot.playbook.emit import Function, candidate, plain, runtime_parameters, understood
from kernelopt_bot.playbook.kernel_source import KernelSource, NotUnderstood, access_of
from kernelopt_bot.playbook.launch_space import WARP, contiguous
from kernelopt_bot.playbook.phases import phases
from kernelopt_bot.playbook.rewrite import expression, statements
from kernelopt_bot.playbook.syntax import copied
from kernelopt_bot.playbook.technique import Expectation, Site, width
from kernelopt_bot.playbook.traffic import row_traffic

_SHORTEST = 4096
_KEPT = {32: 36, 16: 88, 8: 144}
"""Warps -> 32-bit registers of a thread for kept values, of 64, 128 and 255 that it can have when the program is alone
on its multiprocessor (65536 registers, at most 255 a thread: CUDA C++ Programming Guide, compute capability 9.0)."""
_SHAPES = ((4096, 16), (4096, 32), (2048, 16), (2048, 8), (8192, 16), (8192, 32), (1024, 8))
"""(block, warps): 8 to 16 elements a thread and block."""
_WORTHWHILE = 0.25
"""Least share of a row to keep."""
_MOST_BLOCKS = 24
"""Blocks that are written out: a longer program outgrows the instruction cache."""


class KeptRows:
    name = "kept_rows"
    citation = ("Register-resident rows: Ivanov et al., Data Movement Is All You Need, MLSys 2021; Volkov, Better "
                "performance at lower occupancy, GTC 2010")

    def applies(self, site: Site) -> Expectation | None:
        source = site.source
        try:
            share = max((s for *_, s in _plans(source, site)), default=0.0) if source is not None else 0.0
        except NotUnderstood:
            return None
        if source is None or not share:
            return None
        traffic = row_traffic(site, source)
        left = traffic.once + (1.0 - share) * (traffic.passes - traffic.once)
        gain = min(0.97 * traffic.passes / left, site.headroom)
        return Expectation(gain, f"{share:.0%} of a row stay in registers between its passes") if gain > 1.0 else None

    def propose(self, site: Site) -> Iterator[KernelCandidate]:
        try:
            source = understood(site)
            rows = str(source.constants.get("xnumel", "xnumel"))
            parameters = runtime_parameters(source)
            for block, warps, count, share in _plans(source, site):
                body = kept(source, block, count)
                function = Function(source.name, parameters, ("XBLOCK", "R0_BLOCK"), body)
                launch = Launch(plain(source.name), (rows,), parameters, {"XBLOCK": 1, "R0_BLOCK": block}, warps)
                yield candidate(site, self.name, [function], [launch],
                                f"{share:.0%} of a row kept in {count} blocks of {block}, {warps} warps")
        except NotUnderstood:
            return


def _plans(source: KernelSource, site: Site) -> list[tuple[int, int, int, float]]:
    """(block, warps, blocks kept, share of the row), most kept first. Raises NotUnderstood."""
    phases(source, site)
    again = repeated(source)
    length = source.constants["r0_numel"]
    if not again or length < _SHORTEST or contiguous(source) != "r0_" or len(source.loops) < 2:
        return []
    size = sum(max(1.0, width(source.signature.get(p, "")) / 4) if width(source.signature.get(p, "")) >= 4 else 0.5
               for p, _, _ in again)
    found = []
    for block, warps in _SHAPES:
        if not source.masked("r0_") and length % block:
            continue
        room = int(_KEPT[warps] / (size * block / (warps * WARP)))
        count = min(-(-length // block), room, _MOST_BLOCKS)
        share = min(1.0, count * block / length)
        if count and share >= _WORTHWHILE:
            found.append((block, warps, count, share))
    return sorted(found, key=lambda f: -f[3])


def repeated(source: KernelSource) -> list[tuple[str, str, str]]:
    """(pointer, index, mask) of the loads along the row that several loops do."""
    seen: dict[tuple[str, str, str], set[int]] = {}
    for access in source.loads:
        if access.loop is not None and "r0_" in ast.unparse(access.index):
            key = (access.pointer, ast.unparse(access.index), ast.unparse(access.mask) if access.mask else "")
            seen.setdefault(key, set()).add(access.loop)
    return [key for key, loops in seen.items() if len(loops) > 1]


def kept(source: KernelSource, block: int, count: int) -> list[ast.stmt]:
    """The body with the first `count` blocks of each loop written out and their repeated loads done once."""
    length, again = source.constants["r0_numel"], repeated(source)
    body: list[ast.stmt] = []
    known: set[str] = set()
    for statement in source.body:
        if not isinstance(statement, ast.For):
            body.append(copied(statement))
            continue
        for number in range(count):
            body += statements(f"r0_offset = {number * block}")
            for inner in statement.body:
                body += _keep(copied(inner), again, number, known)
        if count * block < length:
            rest = copied(statement)
            rest.iter = expression(f"tl.range({count * block}, r0_numel, R0_BLOCK)")
            body.append(rest)
    return body


def _keep(statement: ast.stmt, again: list[tuple[str, str, str]], number: int, known: set[str]) -> list[ast.stmt]:
    """The statement of block `number` with repeated loads kept under a name of their own, or taken from it."""
    before: list[ast.stmt] = []

    class Replace(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.expr:
            access = access_of(node)
            if access is None or access.kind != "load":
                self.generic_visit(node)
                return node
            key = (access.pointer, ast.unparse(access.index), ast.unparse(access.mask) if access.mask else "")
            if key not in again:
                return node
            name = f"kept_{again.index(key)}_{number}"
            if name not in known:
                known.add(name)
                before.append(ast.Assign([ast.Name(name, ast.Store())], node))
            return ast.Name(name, ast.Load())

    changed: ast.stmt = Replace().visit(statement)
    return [ast.fix_missing_locations(s) for s in [*before, changed]]


TECHNIQUE = KeptRows()
