"""Rows whose length is no multiple of 16 bytes are read in whole, aligned vectors.

Where the row length is odd, each row starts at another alignment and each block ends in a mask, so the compiler falls
back to one element a load. Here the loop starts at the row's first aligned element and runs without a mask over whole
blocks; the few elements before and after go through one masked block. One row a program with many warps also keeps few
rows in flight, so that a second pass finds its row in L2. Expected: 1.2x to 2x.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelopt_bot.contract.candidate import KernelCandidate, Launch
from kernelopt_bot.playbook.emit import Function, candidate, plain, runtime_parameters, understood
from kernelopt_bot.playbook.kernel_source import KernelSource, NotUnderstood, access_of, name_of
from kernelopt_bot.playbook.masks import without
from kernelopt_bot.playbook.rewrite import expression, statements
from kernelopt_bot.playbook.syntax import copied
from kernelopt_bot.playbook.technique import Expectation, Site, width
from kernelopt_bot.playbook.traffic import row_traffic

_VECTOR = 16
"""Bytes of the widest load of a thread (CUDA C++ Programming Guide, device memory accesses)."""
_SHORTEST = 1024
_SHAPES = ((4096, 16), (8192, 32), (4096, 8), (2048, 8), (16384, 32), (1024, 4))
"""(block, warps): 8 to 16 elements a thread."""


class AlignedRows:
    name = "aligned_rows"
    citation = ("Loop peeling for alignment: Allen and Kennedy, Optimizing Compilers for Modern Architectures, 2001; "
                "vectorised access: CUDA Pro Tip, Increase Performance with Vectorized Memory Access")

    def applies(self, site: Site) -> Expectation | None:
        source = site.source
        if source is None or row_index(source) is None:
            return None
        length = source.constants["r0_numel"]
        element = _element(source)
        if length < _SHORTEST or not element or length * element % _VECTOR == 0:
            return None
        traffic = row_traffic(site, source)
        gain = min(1.2 * traffic.passes / traffic.once, site.headroom)
        return Expectation(gain, f"rows of {length} elements of {element} bytes start unaligned")

    def propose(self, site: Site) -> Iterator[KernelCandidate]:
        try:
            source = understood(site)
            parameters = runtime_parameters(source)
            for block, warps in _SHAPES:
                body = aligned(source, block)
                if body is None:
                    continue
                function = Function(source.name, parameters, ("R0_BLOCK",), body)
                rows = str(source.constants.get("xnumel", "xnumel"))
                launch = Launch(plain(source.name), (rows,), parameters, {"R0_BLOCK": block}, warps)
                yield candidate(site, self.name, [function], [launch],
                                f"aligned vectors in blocks of {block}, {warps} warps a row")
        except NotUnderstood:
            return


def row_index(source: KernelSource) -> str | None:
    """Text of the index `r0_1 + LENGTH * x0` that row-wide accesses have; None where the kernel is another."""
    length = source.constants.get("r0_numel")
    if (source.heuristic != "reduction" or source.dimensions != ("x", "r0_") or not length or not source.loops
            or source.calls("tl.associative_scan", "tl.sort", "triton_helpers.sort_with_index")):
        return None
    definitions = {name_of(s): ast.unparse(s.value) for s in [*source.body, *source.loops[0].body]
                   if isinstance(s, ast.Assign)}
    for access in source.accesses:
        index = access.index
        if access.loop is None or not isinstance(index, ast.BinOp) or not isinstance(index.left, ast.Name):
            continue
        right = index.right
        if (definitions.get(index.left.id) == "r0_index" and isinstance(right, ast.BinOp)
                and isinstance(right.op, ast.Mult) and ast.unparse(right.left) == str(length)
                and definitions.get(ast.unparse(right.right)) == "xindex"):
            return ast.unparse(index)
    return None


def _element(source: KernelSource) -> int:
    """Bytes of the widest element among row-wide accesses; 0 where a pointer is not known to be aligned."""
    index = row_index(source)
    pointers = {a.pointer for a in source.accesses if ast.unparse(a.index) == index}
    if not pointers <= source.divisible:
        return 0
    return max(width(source.signature[p]) for p in pointers)


def aligned(source: KernelSource, block: int) -> list[ast.stmt] | None:
    """The body with each loop split in a main part without masks and a masked rest; None where a row has no whole
    block. Raises NotUnderstood."""
    index = row_index(source)
    if index is None or source.tunable != ("XBLOCK", "R0_BLOCK"):
        raise NotUnderstood("no row-wide access of the known form")
    length = source.constants["r0_numel"]
    narrow = min(width(source.signature[a.pointer]) for a in source.accesses if ast.unparse(a.index) == index)
    lanes = _VECTOR // narrow
    whole = (length - lanes + 1) // block * block
    if whole <= 0:
        return None
    body: list[ast.stmt] = statements("XBLOCK: tl.constexpr = 1")
    for statement in source.body:
        if isinstance(statement, ast.For):
            body += _split(statement, index, length, whole)
            continue
        body.append(copied(statement))
        if name_of(statement) == "xindex":
            body += statements(
                f"row_start = {length} * xoffset\n"
                f"head = ({lanes} - row_start % {lanes}) % {lanes}\n"
                f"aligned_start = tl.multiple_of(row_start + head, {lanes})")
    return without(body, {"xmask"})


def _split(loop: ast.For, index: str, length: int, whole: int) -> list[ast.stmt]:
    main, rest = copied(loop), copied(loop)
    main.iter, rest.iter = expression(f"tl.range(0, {whole}, R0_BLOCK)"), expression(
        f"tl.range(0, {length - whole}, R0_BLOCK)")
    for statement in main.body:
        if name_of(statement) == "r0_index" and isinstance(statement, ast.Assign):
            statement.value = expression("head + r0_offset + r0_base")
    main.body = without(main.body, {"r0_mask", "xmask"})
    for inner in ast.walk(main):
        access = access_of(inner) if isinstance(inner, ast.Call) else None
        if access is not None and ast.unparse(access.index) == index and isinstance(inner, ast.Call):
            address = inner.args[0]
            assert isinstance(address, ast.BinOp)
            address.right = expression("aligned_start + r0_offset + r0_base")
    edges: list[ast.stmt] = []
    for statement in rest.body:
        name = name_of(statement)
        if name == "r0_index":
            edges += statements("r0_edge = r0_offset + r0_base\n"
                                f"r0_index = tl.where(r0_edge < head, r0_edge, {whole} + r0_edge)")
        elif name == "r0_mask":
            edges += statements(f"r0_mask = r0_index < {length}")
        elif name == "roffset":
            edges += statements(f"roffset = {whole} + r0_offset")
        else:
            edges.append(statement)
    rest.body = edges
    return [main, rest]


TECHNIQUE = AlignedRows()
