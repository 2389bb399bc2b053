"""Copies from one layout to another in square tiles of one matrix, both sides in whole lines.

A kernel that reads along one dimension and writes along another (a transposition, channels last to channels first) is
tiled in two dimensions by Inductor, but its outer dimension is a flat one: tiles straddle two matrices, every element
divides for its place, and masks break vectors up. Here a tile lies in one matrix, whose number is a scalar, and its
sides follow from the vectors and lines of both layouts; neighbours share lines in L2. Expected: 1.05x to 1.5x.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelopt_bot.contract.candidate import KernelCandidate, Launch
from kernelopt_bot.playbook.affine import Digit, digit
from kernelopt_bot.playbook.emit import Function, candidate, plain, runtime_parameters, understood
from kernelopt_bot.playbook.kernel_source import KernelSource, NotUnderstood, access_of, name_of
from kernelopt_bot.playbook.masks import within, without
from kernelopt_bot.playbook.rewrite import binds, reads, statements
from kernelopt_bot.playbook.syntax import copied
from kernelopt_bot.playbook.technique import Expectation, Site

_TILES = ((64, 64, 4), (32, 64, 4), (64, 64, 8), (64, 32, 4), (32, 32, 4), (128, 32, 4), (16, 128, 4))
"""(y, x, warps): at least 128 bytes along both dimensions in four-byte types, 8 to 32 elements a thread."""
_FRAME = frozenset({"xnumel", "ynumel", "xoffset", "xindex", "xmask", "yoffset", "yindex", "ymask"})


class LayoutTiles:
    name = "layout_tiles"
    citation = "Ruetsch and Micikevicius, Optimizing Matrix Transpose in CUDA, NVIDIA 2009"

    def applies(self, site: Site) -> Expectation | None:
        try:
            source = understood(site)
            rows, _ = matrix_of(source)
        except NotUnderstood:
            return None
        if site.headroom < 1.03:
            return None
        columns, count = source.constants["xnumel"], source.constants["ynumel"] // rows
        return Expectation(min(1.1, site.headroom), f"{count} matrices of {rows} x {columns} change their layout")

    def propose(self, site: Site) -> Iterator[KernelCandidate]:
        try:
            source = understood(site)
            rows, _ = matrix_of(source)
            columns, parameters = source.constants["xnumel"], runtime_parameters(source)
            for y, x, warps in _shapes(rows, columns):
                function = Function(source.name, parameters, (), tiled(source, y, x))
                programs = source.constants["ynumel"] // rows * -(-rows // y) * -(-columns // x)
                launch = Launch(plain(source.name), (str(programs),), parameters, {}, warps)
                yield candidate(site, self.name, [function], [launch],
                                f"tiles of {y} x {x} in matrices of {rows} x {columns}, {warps} warps")
        except NotUnderstood:
            return


def _shapes(rows: int, columns: int) -> list[tuple[int, int, int]]:
    """Tiles, most promising first: sides no longer than the matrix needs, few idle lanes, then as listed."""
    def fitted(side: int, extent: int) -> int:
        return min(side, max(4, 1 << (extent - 1).bit_length()))

    def idle(shape: tuple[int, int, int]) -> float:
        y, x, _ = shape
        return -(-rows // y) * y * -(-columns // x) * x / (rows * columns)

    shapes = list(dict.fromkeys((fitted(y, rows), fitted(x, columns), warps) for y, x, warps in _TILES))
    # A short side leaves room for a longer other one in the same number of elements.
    shapes = [(y, x if y >= 16 else min(4 * x, 512, 1 << (columns - 1).bit_length()), w) for y, x, w in shapes]
    shapes = list(dict.fromkeys(s for s in shapes if s[0] * s[1] >= 32 * s[2]))
    return sorted(shapes, key=lambda s: idle(s) > 1.25 * min(map(idle, shapes)))


def matrix_of(source: KernelSource) -> tuple[int, dict[str, Digit]]:
    """Extent of the inner part of the kernel's y dimension, and the variables that y is cut into. Raises
    NotUnderstood for anything but a tiled pointwise kernel whose y is one matrix dimension and a batch."""
    if (source.heuristic != "pointwise" or set(source.dimensions) != {"x", "y"} or source.loops
            or not {"xnumel", "ynumel"} <= set(source.constants)):
        raise NotUnderstood("no pointwise kernel over two static dimensions")
    pairs = ((name_of(s), digit(s.value, "yindex")) for s in source.body if isinstance(s, ast.Assign) and name_of(s))
    digits = {name: d for name, d in pairs if d is not None}
    inner = {d.modulus for d in digits.values() if d.divisor == 1 and d.modulus}
    if len(inner) != 1 or source.constants["ynumel"] % min(inner):
        raise NotUnderstood("no matrices")
    rows = min(inner)
    if any(d.divisor % rows for d in digits.values() if d.divisor != 1):
        raise NotUnderstood("index variables that do not nest")
    return rows, digits


def tiled(source: KernelSource, y: int, x: int) -> list[ast.stmt]:
    """The body for tiles of `y` by `x` elements. Raises NotUnderstood."""
    rows, digits = matrix_of(source)
    columns = source.constants["xnumel"]
    across, down = -(-columns // x), -(-rows // y)
    wide = any("tl.int64" in ast.unparse(s) for s in source.body if name_of(s) in ("yindex", "xindex", "yoffset"))
    long = ".to(tl.int64)" if wide else ""
    head = (f"matrix_number = (tl.program_id(0) // {across * down}){long}\n"
            f"xindex = tl.program_id(0) % {across} * {x} + tl.arange(0, {x})[None, :]{long}\n"
            f"matrix_row = tl.program_id(0) // {across} % {down} * {y} + tl.arange(0, {y})[:, None]{long}\n"
            f"xmask = xindex < {columns}\nymask = matrix_row < {rows}\n")
    for name, d in digits.items():
        factor = d.divisor // rows
        if d.divisor == 1:
            text = "matrix_row" if d.modulus else f"matrix_number * {rows} + matrix_row"
        else:
            text = "matrix_number" if factor == 1 else f"matrix_number // {factor}"
            text += f" % {d.modulus}" if d.modulus else ""
        head += f"{name} = {text}\n"
    body = [copied(s) for s in source.body if name_of(s) not in _FRAME | set(digits)
            and not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    if any(reads(s) & {"yindex", "XBLOCK", "YBLOCK", "xoffset", "yoffset"} for s in body):
        raise NotUnderstood("the flat index is used otherwise")
    ragged = {"xmask": columns % x != 0, "ymask": rows % y != 0}
    body = _masked(statements(head) + without(body, set(ragged)), {m for m, needed in ragged.items() if needed})
    return body


def _masked(body: list[ast.stmt], needed: set[str]) -> list[ast.stmt]:
    """Each access under the masks of the sides that it runs along. Raises NotUnderstood for a store, or a mask, that
    runs along a side that the access's index does not."""
    along = {"xmask": {"xindex", "xmask"}, "ymask": {"matrix_row", "ymask"}}
    result: list[ast.stmt] = []
    for statement in body:
        done = [statement]
        for call in [n for n in ast.walk(statement) if isinstance(n, ast.Call)]:
            access = access_of(call)
            if access is None:
                continue
            for mask, names in along.items():
                runs = bool(reads(access.index) & names)
                if not runs and (access.kind == "store" or (access.mask is not None and reads(access.mask) & names)):
                    raise NotUnderstood("an access that does not run along the tile")
                if runs and mask in needed:
                    done = within(done, mask)
        result += done
        for names in along.values():
            if reads(statement) & names:
                names |= binds(statement)
    return result


TECHNIQUE = LayoutTiles()
