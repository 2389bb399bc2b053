"""Index arithmetic by `//` and `%` is taken out of the elements and done once for each program.

Inductor flattens a pointwise loop and recovers the inner indices of every element by division. Here a program covers
a piece of one inner row: the row number is a scalar, tensors indexed by it become one scalar load, and the
remainder is the offset itself. Expected: 1.02x to 1.3x where the kernel is bound by instructions or where a
broadcast operand is loaded for every element.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from kernelopt_bot.contract.candidate import KernelCandidate, Launch
from kernelopt_bot.playbook.emit import Function, candidate, plain, runtime_parameters, understood
from kernelopt_bot.playbook.kernel_source import KernelSource, NotUnderstood, access_of, name_of
from kernelopt_bot.playbook.masks import within, without
from kernelopt_bot.playbook.rewrite import binds, expression, reads, statements
from kernelopt_bot.playbook.syntax import copied
from kernelopt_bot.playbook.technique import Expectation, Site

_SHORTEST = 64
"""Inner extent below which a program has too little to do."""


class GridDivision:
    name = "grid_division"
    citation = ("Strength reduction of index arithmetic: Granlund and Montgomery, Division by Invariant Integers using "
                "Multiplication, PLDI 1994; tiled pointwise kernels of Inductor (triton.prefer_nd_tiling)")

    def applies(self, site: Site) -> Expectation | None:
        source = site.source
        if source is None or source.heuristic != "pointwise" or source.dimensions != ("x",) or source.loops:
            return None
        inner = inner_extent(source)
        if inner is None or site.headroom < 1.03:
            return None
        divisions = _divisions(source)
        gain = min(1.0 + 0.02 * len(divisions) + 0.01 * len(source.loads), 1.3, site.headroom)
        return Expectation(gain, f"{len(divisions)} divisions an element; rows of {inner}")

    def propose(self, site: Site) -> Iterator[KernelCandidate]:
        try:
            source = understood(site)
            inner = inner_extent(source)
            if inner is None:
                return
            parameters = runtime_parameters(source)
            for block, warps in _shapes(inner):
                pieces = -(-inner // block)
                function = Function(source.name, parameters, ("XBLOCK",), divided(source, inner, block))
                rows = source.constants["xnumel"] // inner
                launch = Launch(plain(source.name), (str(rows * pieces),), parameters, {"XBLOCK": block}, warps)
                yield candidate(site, self.name, [function], [launch],
                                f"{rows} rows of {inner} in {pieces} pieces of {block}")
        except NotUnderstood:
            return


def _shapes(inner: int) -> list[tuple[int, int]]:
    """(block, warps): least lanes idle in the last piece first, then larger blocks."""
    blocks = [b for b in (256, 512, 1024, 2048) if b < 2 * inner] or [1 << (inner - 1).bit_length()]
    blocks.sort(key=lambda b: (math.ceil(inner / b) * b / inner > 1.15, -b))
    return [(b, max(1, min(8, b // 256 * 2))) for b in blocks]


def _divisions(source: KernelSource) -> list[ast.BinOp]:
    return [n for s in source.body for n in ast.walk(s)
            if isinstance(n, ast.BinOp) and isinstance(n.op, ast.FloorDiv | ast.Mod)
            and isinstance(n.right, ast.Constant) and isinstance(n.right.value, int)]


def inner_extent(source: KernelSource) -> int | None:
    """The largest constant by which the flat index itself is divided and that divides the whole extent; a factor of
    the others, so that most index variables become scalars. None where there is no division to lift."""
    numel = source.constants.get("xnumel")
    direct = {n.right.value for n in _divisions(source) if isinstance(n.right, ast.Constant)
              and isinstance(n.right.value, int) and ast.unparse(n.left) == "xindex"}
    fits = [c for c in direct if numel is not None and c >= _SHORTEST and numel % c == 0 and c < numel]
    return max(fits, key=lambda c: (sum(other % c == 0 for other in direct), c), default=None)


class _Lift(ast.NodeTransformer):
    def __init__(self, inner: int) -> None:
        self.inner = inner

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        if (ast.unparse(node.left) == "xindex" and isinstance(node.right, ast.Constant)
                and isinstance(node.right.value, int)):
            divisor = node.right.value
            if isinstance(node.op, ast.FloorDiv) and divisor % self.inner == 0:
                factor = divisor // self.inner
                return expression("xrow" if factor == 1 else f"xrow // {factor}")
            if isinstance(node.op, ast.Mod) and divisor % self.inner == 0:
                factor = divisor // self.inner
                return expression("xcolumn" if factor == 1 else f"xrow % {factor} * {self.inner} + xcolumn")
            if isinstance(node.op, ast.Mod) and self.inner % divisor == 0:
                return expression(f"xcolumn % {divisor}")
        self.generic_visit(node)
        return node


def divided(source: KernelSource, inner: int, block: int) -> list[ast.stmt]:
    """The body with a program for each piece of `block` elements of each row of `inner`."""
    pieces = -(-inner // block)
    body: list[ast.stmt] = []
    wide = any(isinstance(s, ast.Assign) and name_of(s) == "xoffset" and "tl.int64" in ast.unparse(s.value)
               for s in source.body)
    lift = _Lift(inner)
    for statement in source.body:
        name = name_of(statement)
        if name == "xoffset":
            program = "tl.program_id(0).to(tl.int64)" if wide else "tl.program_id(0)"
            body += statements(f"xrow = {program} // {pieces}\n"
                               f"xoffset = {program} % {pieces} * XBLOCK")
        elif name == "xindex":
            body += statements("xcolumn = xoffset + tl.arange(0, XBLOCK)[:]\n"
                               f"xindex = xrow * {inner} + xcolumn")
        elif name == "xmask":
            body += statements(f"xmask = xcolumn < {inner}")
        else:
            body.append(lift.visit(copied(statement)))
    return _masked(body, "xmask") if inner % block else without(body, {"xmask"})


def _masked(body: list[ast.stmt], mask: str) -> list[ast.stmt]:
    """Accesses along the row hold under `mask`; those by the row's number alone are scalar and take none. Raises
    NotUnderstood for a scalar access that depends on the lane in another way."""
    lanes = {"xcolumn", "xindex", "xmask"}
    result: list[ast.stmt] = []
    for statement in body:
        accesses = [(c, a) for c in ast.walk(statement) if isinstance(c, ast.Call) and (a := access_of(c)) is not None]
        scalar = [c for c, a in accesses if not reads(a.index) & lanes]
        if any(a.kind == "store" or (a.mask is not None and ast.unparse(a.mask) != "xmask") for c, a in accesses
               if c in scalar):
            raise NotUnderstood("an access by the row's number alone that depends on the lane")
        if scalar:
            result += without([statement], {"xmask"})
            continue
        result += within([statement], mask) if accesses else [statement]
        if reads(statement) & lanes:
            lanes |= binds(statement)
    return result


TECHNIQUE = GridDivision()
