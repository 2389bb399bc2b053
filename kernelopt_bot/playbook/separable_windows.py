"""A reduction over windows is done first down the rows, in whole vectors, then along the row out of registers.

Inductor gives each output its own window: neighbouring outputs read the same elements again, lanes read `stride`
elements apart, and every element pays for its index and its masks. A sum and a maximum separate: here a program adds
up the rows of the windows for a stretch of columns, each column read once a row by contiguous vector loads, and then
takes each output's columns out of that one row by `tl.gather`. For windows of w x h at stride s that is w h + s w
instead of w h s loads a row of lanes. Expected: 1.5x to 4x where windows overlap or are wide.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kernelopt_bot.contract.candidate import KernelCandidate, Launch
from kernelopt_bot.playbook.affine import Affine
from kernelopt_bot.playbook.emit import Function, candidate, plain, runtime_parameters, understood
from kernelopt_bot.playbook.kernel_source import KernelSource, NotUnderstood, access_of, name_of
from kernelopt_bot.playbook.masks import within, without
from kernelopt_bot.playbook.rewrite import binds, expression, reads, statements
from kernelopt_bot.playbook.syntax import copied
from kernelopt_bot.playbook.technique import Expectation, Site, width
from kernelopt_bot.playbook.windows import COMBINE, Window, window_of

_VECTOR = 16
"""Bytes of the widest load of a thread (CUDA C++ Programming Guide, device memory accesses)."""
_COLUMNS = (128, 256, 64)
"""Widths of a stretch: a warp holds four columns a lane of the first, which is what gathers by shuffles want."""
_TILES = ((4, 4), (8, 4), (16, 4), (8, 8), (2, 2))
"""(rows, warps)."""
_UNROLLED = 32
_WIDEST_STRIDE, _WIDEST_WINDOW = 32, 64
"""Beyond these a stretch holds too few outputs."""


@dataclass(frozen=True)
class Stretch:
    columns: int
    outputs: int
    pieces: int
    rows: int
    warps: int


class SeparableWindows:
    name = "separable_windows"
    citation = ("Separable filters: Podlozhnyuk, Image Convolution with CUDA, NVIDIA 2007; van Herk, A fast algorithm "
                "for local minimum and maximum filters, Pattern Recognition Letters 13, 1992")

    def applies(self, site: Site) -> Expectation | None:
        try:
            source = understood(site)
            window = aligned_window(source)
            stretch = next(stretches(source, window), None)
        except NotUnderstood:
            return None
        if stretch is None or site.headroom < 1.05 or not _distinct(site, source, window):
            return None
        lanes = _lanes(source, window)
        now = window.taps * window.width * min(window.stride, 8)
        then = window.taps * stretch.columns / (stretch.outputs * lanes) + 4 * window.width
        gain = min(4.0, max(1.1, now / then), site.headroom)
        return Expectation(gain, f"windows of {window.taps} x {window.width} at stride {window.stride}: rows first, "
                                 f"then along the row")

    def propose(self, site: Site) -> Iterator[KernelCandidate]:
        try:
            source = understood(site)
            window = aligned_window(source)
            if not _distinct(site, source, window):
                return
            parameters = runtime_parameters(source)
            for stretch in stretches(source, window):
                function = Function(source.name, parameters, (), separated(site, source, window, stretch))
                programs = -(-window.rows // stretch.rows) * stretch.pieces
                launch = Launch(plain(source.name), (str(programs),), parameters, {}, stretch.warps)
                yield candidate(site, self.name, [function], [launch],
                                f"{stretch.rows} rows of {stretch.outputs} outputs out of {stretch.columns} columns, "
                                f"{stretch.warps} warps")
        except NotUnderstood:
            return


def _distinct(site: Site, source: KernelSource, window: Window) -> bool:
    """True if what is read in windows is not written by the kernel."""
    return all(site.distinct(pointer, store.pointer) for pointer, _ in window.loads for store in source.stores)


def _lanes(source: KernelSource, window: Window) -> int:
    """Elements of a vector."""
    return _VECTOR // min(width(source.signature.get(pointer, "")) for pointer, _ in window.loads)


def aligned_window(source: KernelSource) -> Window:
    """The kernel's window, columns counted so that multiples of a vector's elements are aligned in memory as far as the
    rows are. Raises NotUnderstood."""
    window = window_of(source)
    if not window.loads:
        raise NotUnderstood("nothing is read along a row")
    shift = window.loads[0][1].constant % _lanes(source, window)
    return window_of(source, shift) if shift else window


def stretches(source: KernelSource, window: Window) -> Iterator[Stretch]:
    """Tiles, most promising first: the width with the least idle columns an output, then its tiles, then other widths.
    Raises NotUnderstood where a window is too wide or its columns are too far apart."""
    if window.stride > _WIDEST_STRIDE or window.dilation * window.width > _WIDEST_WINDOW or window.width < 2:
        raise NotUnderstood("windows too wide or too far apart")
    lanes = _lanes(source, window)
    found = []
    for columns in _COLUMNS:
        low, high = window.valid
        if high - low // lanes * lanes <= columns:
            found.append((columns / window.outputs, columns, window.outputs))
            continue
        outputs = (columns - lanes - window.dilation * (window.width - 1)) // window.stride + 1
        if outputs >= 4:
            pieces = -(-window.outputs // outputs)
            found.append((columns * pieces / window.outputs, columns, outputs))
    least = min(found, default=(0.0, 0, 0))[0]
    found.sort(key=lambda f: (f[0] > 1.3 * least, f[1] != _COLUMNS[0], f[0]))
    for n, (_, columns, outputs) in enumerate(found):
        pieces = -(-window.outputs // outputs)
        vectors = sorted(_TILES, key=lambda t: t[0] * columns < lanes * 32 * t[1])
        for rows, warps in vectors if n == 0 else vectors[:2]:
            yield Stretch(columns, outputs, pieces, rows, warps)


def separated(site: Site, source: KernelSource, window: Window, stretch: Stretch) -> list[ast.stmt]:
    """The body: a program makes `stretch.outputs` outputs of each of `stretch.rows` rows. Raises NotUnderstood."""
    wide = any("tl.int64" in ast.unparse(s) for s in source.body if name_of(s) in ("xoffset", "xindex"))
    if window.rows * stretch.pieces >= 1 << 31:
        raise NotUnderstood("more rows than a grid has")
    lanes, (low, high) = _lanes(source, window), window.valid
    first = str(low // lanes * lanes)
    if stretch.pieces > 1:
        first = f"(xpiece * {window.stride * stretch.outputs} + {window.shift}) // {lanes} * {lanes}"
    clipped = high - low != window.stride * (window.outputs - 1) + window.dilation * (window.width - 1) + 1
    padded = 1 << (stretch.outputs - 1).bit_length()
    loop = "tl.static_range" if window.taps <= _UNROLLED else "tl.range"
    combine = COMBINE[window.function]
    head = f"""
XBLOCK: tl.constexpr = {stretch.rows}
R0_BLOCK: tl.constexpr = {stretch.columns}
xpiece = tl.program_id(0) % {stretch.pieces}
row_number = tl.program_id(0) // {stretch.pieces} * {stretch.rows} + tl.arange(0, {stretch.rows})[:, None]
xmask = row_number < {window.rows}
window_first = {first}
window_column = window_first + tl.arange(0, {stretch.columns})[None, :]
window_mask = (window_column >= {low}) & (window_column < {_last(site, window, lanes)})
window_total = tl.full([{stretch.rows}, {stretch.columns}], {window.neutral}, tl.float32)
for tap in {loop}(0, {window.taps}):
    pass
"""
    body = statements(head)
    rows_loop = body[-1]
    assert isinstance(rows_loop, ast.For)
    rows_loop.body = [*_widened(_inside(window), wide),
                      *statements("window_total = " + combine.format(a="window_total", b=window.value))]
    along = f"""
window_lane = tl.arange(0, {padded})[None, :]
window_x = xpiece * {stretch.outputs} + window_lane
window_ok = (window_lane < {stretch.outputs}) & (window_x < {window.outputs})
{window.result} = tl.full([{stretch.rows}, {padded}], {window.neutral}, tl.float32)
for window_r in tl.static_range(0, {window.width}):
    window_at = {window.stride} * window_x + {window.dilation} * window_r + {window.shift} - window_first
    window_near = tl.minimum(tl.maximum(window_at, 0), {stretch.columns - 1})
    window_taken = tl.gather(window_total, tl.broadcast_to(window_near, [{stretch.rows}, {padded}]), 1)
"""
    if clipped:
        along += (f"    window_in = (window_at + window_first >= {low}) & (window_at + window_first < {high})\n"
                  f"    window_taken = tl.where(window_in, window_taken, {window.neutral})\n")
    along += f"    {window.result} = " + combine.format(a=window.result, b="window_taken") + "\n"
    if wide:
        along += "window_x = window_x.to(tl.int64)\n"
    body += [*statements(along), *_widened(_outputs(window), wide)]
    return body if window.rows % stretch.rows else without(body, {"xmask"})


def _widened(body: list[ast.stmt], wide: bool) -> list[ast.stmt]:
    """With the digits of a row's number in 64 bits, cut out of it in 32: a division of 64 bits is a long routine."""
    for statement in body:
        if wide and isinstance(statement, ast.Assign) and reads(statement) == {"row_number"}:
            statement.value = expression(f"({ast.unparse(statement.value)}).to(tl.int64)")
    return body


def _inside(window: Window) -> list[ast.stmt]:
    """What is computed for each element; loads along the row also under the stretch's mask, all under the rows'."""
    result: list[ast.stmt] = []
    along = {"window_column", "window_mask"}
    for statement in copied(list(window.inside)):
        depends = bool(reads(statement) & along)
        if depends:
            along |= binds(statement)
        accesses = [a for c in ast.walk(statement) if isinstance(c, ast.Call) and (a := access_of(c)) is not None]
        if any(reads(a.index) & along for a in accesses):
            result += within(within([statement], "window_mask"), "xmask")
        elif any(a.mask is not None and reads(a.mask) & along for a in accesses):
            raise NotUnderstood("a row's own value under a mask of columns")
        else:
            result += within([statement], "xmask") if accesses else [statement]
    return result


def _outputs(window: Window) -> list[ast.stmt]:
    """What is done with the results, under the masks of the outputs that exist."""
    result: list[ast.stmt] = []
    lanes = {"window_x", "xindex", window.result}
    for statement in copied(list(window.after)):
        accesses = [a for c in ast.walk(statement) if isinstance(c, ast.Call) and (a := access_of(c)) is not None]
        scalar = [a for a in accesses if not reads(a.index) & lanes]
        if any(a.kind == "store" for a in scalar) or any(a.mask is not None and reads(a.mask) & lanes for a in scalar):
            raise NotUnderstood("an access by the row alone that depends on the output")
        if accesses and not scalar:
            result += within(within([statement], "window_ok"), "xmask")
        else:
            result += within([statement], "xmask") if accesses else [statement]
        if reads(statement) & lanes:
            lanes |= binds(statement)
    return result


def _last(site: Site, window: Window, lanes: int) -> int:
    """The column to stop before: a whole number of vectors where the rows of every tensor reach that far, so that the
    mask does not break the last vector up."""
    high = window.valid[1]
    whole = -(-high // lanes) * lanes
    return whole if all(_reaches(site, pointer, index, whole) for pointer, index in window.loads) else high


def _reaches(site: Site, pointer: str, index: Affine, columns: int) -> bool:
    """True if the index walks whole rows of a contiguous tensor and these hold at least that many columns."""
    tensor = next((a.tensor for a in site.step.arguments if a.name == pointer), None)
    if tensor is None or not tensor.shape or index.constant:
        return False
    contiguous, expected = True, 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride), strict=True):
        contiguous, expected = contiguous and stride == expected, expected * size
    length = tensor.shape[-1]
    return contiguous and columns <= length and all(
        c % length == 0 for n, c in index.terms.items() if n != "window_column")


TECHNIQUE = SeparableWindows()
