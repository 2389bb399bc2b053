"""Pointwise kernels over rows: index arithmetic a row, comparisons decided for whole stretches of a row.

Inductor flattens the loop, so that every element divides for its indices and, in padding, pooling and concatenation,
compares them with every bound under which something is read. Here a program covers whole rows, or a stretch of one:
outer indices are computed once a row; where a stretch lies on one side of every bound, a branch of its own has neither
comparisons nor masks and reads only the tensors that are needed there. Unrolled maxima propagate NaN in one
instruction. Expected: 1.05x to 1.8x where the kernel is bound by instructions.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kernelopt_bot.contract.candidate import KernelCandidate, Launch
from kernelopt_bot.playbook.affine import Digit, affine, digit
from kernelopt_bot.playbook.emit import Function, candidate, plain, runtime_parameters, understood
from kernelopt_bot.playbook.kernel_source import KernelSource, NotUnderstood, access_of, name_of
from kernelopt_bot.playbook.masks import within, without
from kernelopt_bot.playbook.regions import comparisons, indented, regions, within_region
from kernelopt_bot.playbook.rewrite import binds, drop_dead, expression, reads, statements
from kernelopt_bot.playbook.syntax import copied
from kernelopt_bot.playbook.technique import Expectation, Site

_LONG = 512
"""Extent from which a row is cut into stretches, each with outer indices that are scalars."""
_SHORTEST, _LEAST = 64, 16
"""Extents of rows: preferred from the first on, none below the second, where most lanes would share a row number."""
_STRETCHES = ((1024, 4), (512, 4), (2048, 8), (1024, 8), (256, 2), (4096, 8))
"""(columns, warps)."""
_TILES = ((1024, 4), (2048, 8), (512, 4), (2048, 4), (4096, 8))
"""(elements of a tile of several rows, warps)."""
_BRANCHES = 4
_FRAME = frozenset({"xnumel", "xoffset", "xindex", "xmask"})


@dataclass(frozen=True)
class Rows:
    """A flat loop as `rows` rows of `inner` columns."""

    inner: int
    rows: int
    digits: dict[str, Digit]


class RowTiles:
    name = "row_tiles"
    citation = ("Index-set splitting and unswitching: Allen and Kennedy, Optimizing Compilers for Modern "
                "Architectures, 2001; PTX ISA, max.NaN")

    def applies(self, site: Site) -> Expectation | None:
        try:
            source = understood(site)
            rows = rows_of(source)
        except NotUnderstood:
            return None
        known = [v for v, _, _ in comparisons(source.body, rows.digits).values() if v]
        if site.headroom < 1.03 or (rows.inner >= _LONG and not known):
            return None
        gain = min(1.0 + 0.02 * len(rows.digits) + 0.015 * len(known), 1.8, site.headroom)
        return Expectation(gain, f"{len(rows.digits)} index variables and {len(known)} comparisons an element; rows of "
                                 f"{rows.inner}")

    def propose(self, site: Site) -> Iterator[KernelCandidate]:
        try:
            source = understood(site)
            rows = rows_of(source)
            parameters = runtime_parameters(source)
            for tile, columns, warps in _shapes(rows):
                body = tiled(source, rows, tile, columns)
                pieces = -(-rows.inner // columns)
                programs = -(-rows.rows // tile) * pieces
                function = Function(source.name, parameters, (), body)
                launch = Launch(plain(source.name), (str(programs),), parameters, {}, warps)
                yield candidate(site, self.name, [function], [launch],
                                f"{tile} rows of {rows.inner} in {pieces} stretches of {columns}, {warps} warps")
        except NotUnderstood:
            return


def _shapes(rows: Rows) -> Iterator[tuple[int, int, int]]:
    """(rows, columns, warps), most promising first."""
    if rows.inner >= _LONG:
        fitting = [s for s in _STRETCHES if s[0] < 2 * rows.inner]
        fitting.sort(key=lambda s: -(-rows.inner // s[0]) * s[0] > 1.2 * rows.inner)
        yield from ((1, columns, warps) for columns, warps in fitting)
        return
    columns = 1 << (rows.inner - 1).bit_length()
    yield from ((max(1, elements // columns), columns, warps) for elements, warps in _TILES)


def rows_of(source: KernelSource) -> Rows:
    """The rows that the index variables suggest: as few idle lanes as outer divisions allow. Raises NotUnderstood."""
    numel = source.constants.get("xnumel")
    if source.heuristic != "pointwise" or source.dimensions != ("x",) or source.loops or not numel:
        raise NotUnderstood("no pointwise kernel over one static dimension")
    pairs = ((name_of(s), digit(s.value, "xindex")) for s in source.body if isinstance(s, ast.Assign) and name_of(s))
    digits = {name: d for name, d in pairs if d is not None}
    cuts = sorted({c for d in digits.values() for c in (d.divisor, d.divisor * d.modulus) if 1 < c < numel})
    fits = [c for c in cuts if c >= _LEAST and all(_nests(d, c) for d in digits.values()) and numel % c == 0]
    if not fits:
        raise NotUnderstood("no rows")
    inner = next((c for c in fits if c >= _SHORTEST), fits[-1])
    return Rows(inner, numel // inner, digits)


def _nests(d: Digit, inner: int) -> bool:
    """True if the digit is one of the row's number, one of the column, or the flat index itself."""
    if d.divisor == 1 and (not d.modulus or d.modulus % inner == 0 or inner % d.modulus == 0):
        return True
    return d.divisor % inner == 0 or (inner % d.divisor == 0 and bool(d.modulus)
                                      and inner % (d.divisor * d.modulus) == 0)


def _text(d: Digit, inner: int) -> str:
    """The digit in terms of `xrow` and `xcolumn`."""
    if d.divisor != 1 and d.divisor % inner == 0:
        factor = d.divisor // inner
        text = "xrow" if factor == 1 else f"xrow // {factor}"
        return f"{text} % {d.modulus}" if d.modulus else text
    if d.divisor == 1 and (not d.modulus or (d.modulus % inner == 0 and d.modulus != inner)):
        return f"xrow * {inner} + xcolumn" if not d.modulus else f"xrow % {d.modulus // inner} * {inner} + xcolumn"
    text = "xcolumn" if d.divisor == 1 else f"xcolumn // {d.divisor}"
    return text if not d.modulus or d.divisor * d.modulus == inner else f"{text} % {d.modulus}"


def tiled(source: KernelSource, rows: Rows, tile: int, columns: int) -> list[ast.stmt]:
    """The body for tiles of `tile` rows and `columns` columns, or for stretches of one row. Raises NotUnderstood."""
    wide = any("tl.int64" in ast.unparse(s) for s in source.body if name_of(s) in ("xoffset", "xindex"))
    pieces, inner = -(-rows.inner // columns), rows.inner
    ragged, short = rows.rows % tile != 0, inner % columns != 0
    program = "tl.program_id(0)"
    lanes, row = (("[None, :]", f" * {tile} + tl.arange(0, {tile})[:, None]") if tile > 1 else ("", ""))
    head = statements(
        f"xstretch = {program} % {pieces} * {columns}\n"
        f"xrow = {program} // {pieces}{row}\n"
        f"xcolumn = xstretch + tl.arange(0, {columns}){lanes}\n"
        f"xmask = xrow < {rows.rows}\nxcolumn_mask = xcolumn < {inner}")
    outer, body = [], []
    for statement in source.body:
        name, d = name_of(statement), digit(getattr(statement, "value", ast.Constant(0)), "xindex")
        if name in _FRAME or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            continue
        if d is None:
            body.append(copied(statement))
            continue
        text = _text(d, inner)
        grow = wide and "xrow" in text
        text = text.replace("xrow *", "xrow.to(tl.int64) *") if grow and "xcolumn" in text else text
        outer.append(statements(f"{name} = ({text}).to(tl.int64)" if grow and tile > 1 and "xcolumn" not in text
                                else f"{name} = {text}")[0])
    if any(reads(s) & {"xindex", "XBLOCK", "xoffset"} for s in body):
        raise NotUnderstood("the flat index is used otherwise")
    body = masked([*outer, *without(body, {"xmask"})], ragged, short)
    long = {"xrow"} if wide and tile == 1 else set()
    long |= {"xcolumn"} if wide and not short_columns(source, rows) else set()
    head = [t for s in head for t in ([s, *statements(f"{name_of(s)} = {name_of(s)}.to(tl.int64)")]
                                      if name_of(s) in long else [s])]
    body = quick_maxima(source, body)
    if tile > 1:
        return [*head, *body]
    return [*head, *_branches(body, outer, rows, columns)]


def short_columns(source: KernelSource, rows: Rows) -> bool:
    """True if no index moves by 2^31 elements or more along a row, so that columns do with 32 bits."""
    definitions = {name_of(s): s.value for s in source.body if isinstance(s, ast.Assign) and name_of(s)}
    definitions = {n: v for n, v in definitions.items() if n not in rows.digits}
    try:
        indices = [affine(a.index, definitions, rows.digits) for a in source.accesses]
    except NotUnderstood:
        return False
    return all(sum(abs(c) for n, c in index.terms.items() if "xrow" not in _text(rows.digits[n], rows.inner))
               * rows.inner + abs(index.constant) < 1 << 31 for index in indices)


def masked(body: list[ast.stmt], ragged: bool, short: bool) -> list[ast.stmt]:
    """Accesses along the row under the mask of columns, all under the mask of rows, where these are needed at all.
    Raises NotUnderstood for an access by the row's number alone that depends on the column in another way."""
    lanes = {"xcolumn", "xcolumn_mask"}
    result: list[ast.stmt] = []
    for statement in body:
        accesses = [a for c in ast.walk(statement) if isinstance(c, ast.Call) and (a := access_of(c)) is not None]
        scalar = [a for a in accesses if not reads(a.index) & lanes]
        if any(a.kind == "store" or (a.mask is not None and reads(a.mask) & lanes) for a in scalar):
            raise NotUnderstood("an access by the row's number alone that depends on the column")
        if reads(statement) & lanes:
            lanes |= binds(statement)
        done = [statement]
        if accesses and not scalar and short:
            done = within(done, "xcolumn_mask")
        result += within(done, "xmask") if accesses and ragged else done
    return result


def quick_maxima(source: KernelSource, body: list[ast.stmt]) -> list[ast.stmt]:
    """Maxima and minima of values that were loaded as floating-point numbers, in one instruction."""
    floats: set[str] = set()
    for statement in body:
        value = statement.value if isinstance(statement, ast.Assign) else None
        calls = [n for n in ast.walk(value) if isinstance(n, ast.Call)] if value is not None else []
        loads = [a for c in calls if (a := access_of(c)) is not None]
        if loads and all(source.signature.get(a.pointer, "") in ("*fp32", "*fp16") for a in loads):
            floats |= binds(statement)
        match value:
            case ast.Call(func=function, args=[ast.Name(id=one), ast.Name(id=other)]) if (
                    {one, other} <= floats and ast.unparse(function) in ("triton_helpers.maximum",
                                                                         "triton_helpers.minimum")):
                assert isinstance(statement, ast.Assign)
                name = ast.unparse(function).rpartition(".")[2]
                statement.value = expression(f"tl.{name}({one}, {other}, propagate_nan=tl.PropagateNan.ALL)")
                floats |= binds(statement)
    return body


def _branches(body: list[ast.stmt], outer: list[ast.stmt], rows: Rows, columns: int) -> list[ast.stmt]:
    """A branch for each long part of the row, or of an outer index, in which comparisons are decided; then the rest."""
    names = {name_of(s): ast.unparse(s.value) for s in outer if isinstance(s, ast.Assign)}
    found = comparisons([s for s in body if name_of(s) not in names], names)
    tests: list[tuple[str, str, tuple[int, int]]] = []
    for variable in dict.fromkeys(v for v, _, _ in found.values() if v):
        if names[variable] == "xcolumn":
            parts = [p for p in regions(found, variable, rows.inner) if p[1] - p[0] >= 2 * columns]
            tests += [(variable, f"(xstretch >= {p[0]}) & (xstretch + {columns} <= {p[1]})", p) for p in parts]
        elif "xcolumn" not in names[variable]:
            d = rows.digits[variable]
            extent = d.modulus or rows.rows * rows.inner // d.divisor
            parts = regions(found, variable, extent)
            tests += [(variable, f"({variable} >= {p[0]}) & ({variable} < {p[1]})", p) for p in parts
                      if (p[1] - p[0]) * 8 >= extent]
    if not tests:
        return body
    chains: list[tuple[str, list[ast.stmt]]] = []
    for variable, test, part in tests[:_BRANCHES]:
        whole = {"xcolumn_mask"} if names[variable] == "xcolumn" else set()
        chains.append((test, within_region(without(body, whole), found, variable, part)))
    lines: list[str] = []
    shared = [s for s in body if name_of(s) in names]
    for number, (test, branch) in enumerate(chains):
        inside = _renamed([s for s in branch if name_of(s) not in names], f"_part{number}")
        lines += [f"{'if' if number == 0 else 'elif'} {test}:", *indented(inside)]
    rest = drop_dead([s for s in body if name_of(s) not in names])
    lines += ["else:", *indented(rest)]
    return [*shared, *statements("\n".join(lines))]


def _renamed(branch: list[ast.stmt], suffix: str) -> list[ast.stmt]:
    """With names of its own: what two branches bind must have one type, and a decided value can have another shape."""
    bound = set[str]().union(*(binds(s) for s in branch))
    for node in (n for s in branch for n in ast.walk(s)):
        if isinstance(node, ast.Name) and node.id in bound:
            node.id += suffix
    return branch


TECHNIQUE = RowTiles()
