"""Few long rows (or few columns) are shared by several programs each.

Where a kernel has fewer rows than keep all multiprocessors busy, each row is cut into chunks with a program each. One
launch a pass: the partial results of a chunk (sums, maxima, Welford triples) go to a small buffer, and the next launch
reduces them again in a fixed order, so that results do not vary between runs (no float atomics). A pass that only
applies what was reduced is chunked likewise. Expected: idle share of the device, up to the step's headroom.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kernelopt_bot.contract.candidate import KernelCandidate, Launch, Scratch
from kernelopt_bot.playbook.emit import Function, candidate, plain, runtime_parameters, understood
from kernelopt_bot.playbook.kernel_source import KernelSource, NotUnderstood
from kernelopt_bot.playbook.launch_space import contiguous
from kernelopt_bot.playbook.masks import within
from kernelopt_bot.playbook.phases import Phases, chunked, combine, leave, phases, stores, uses
from kernelopt_bot.playbook.rewrite import drop_dead, statements
from kernelopt_bot.playbook.shifted_sums import shifted
from kernelopt_bot.playbook.syntax import copied
from kernelopt_bot.playbook.technique import Expectation, Site

_SHORTEST = 2048
"""Elements of the part of the tensor that one program reduces, below which sharing it costs more than it brings."""
_FEW = 4
"""Programs for each multiprocessor that keep memory busy; a kernel with this many rows is left alone."""
_PARTS = 1024
"""Most partial results of a row: they are reduced as one block."""
_GATHERED = 8192
"""Most partial results that one program holds at a time."""
_INNER = ((1, 4096, 8, 4), (1, 2048, 4, 8), (1, 8192, 16, 2), (1, 4096, 16, 2), (1, 1024, 4, 8))
_OUTER = ((64, 32, 8, 4), (128, 16, 8, 4), (32, 64, 8, 4), (256, 8, 8, 4), (64, 64, 8, 2))
"""(rows, block along the row, warps, programs for each multiprocessor)."""


@dataclass(frozen=True)
class Cut:
    """Rows a program, block along the row, chunk a program (a multiple of the block), chunks a row."""

    rows: int
    block: int
    chunk: int
    count: int

    @property
    def parts(self) -> int:
        """Partial results of a row, rounded up to a power of two."""
        return 1 << (self.count - 1).bit_length()

    @classmethod
    def of(cls, length: int, extent: int, rows: int, block: int, programs: int) -> Cut | None:
        """For about `programs` programs in all; None where a row would not be cut."""
        wanted = max(1, programs // -(-extent // rows))
        chunk = -(-max(1, length // wanted) // block) * block
        count = -(-length // chunk)
        return cls(rows, block, chunk, count) if 2 <= count <= _PARTS else None


class SplitReduction:
    name = "split_reduction"
    citation = ("Two-kernel reduction: Harris, Optimizing Parallel Reduction in CUDA, NVIDIA 2007; partial moments "
                "combined as in Chan, Golub, LeVeque, The American Statistician 37(3), 1983")

    def applies(self, site: Site) -> Expectation | None:
        source = site.source
        if source is None or site.numel("x") is None:
            return None
        try:
            found = phases(source, site)
        except NotUnderstood:
            return None
        units = _units(source, site)
        full = _FEW * max(1, site.roofs.multiprocessors)
        if units >= full or not _cuts(source, site):
            return None
        idle = min(2.0, full / max(1, units))
        gain = min(max(1.05, 0.9 * idle), site.headroom)
        return Expectation(gain, f"{units} programs for {site.roofs.multiprocessors} multiprocessors, "
                                 f"{len(found.phases)} passes over each row")

    def propose(self, site: Site) -> Iterator[KernelCandidate]:
        try:
            source = understood(site)
            plain_body = phases(source, site)
            quick = shifted(source, site)
        except NotUnderstood:
            return
        for number, (cut, warps) in enumerate(_cuts(source, site)):
            used = quick if quick is not None and number % 2 == 0 else plain_body
            functions, launches, scratch = split(source, site, used, cut, warps)
            why = f"{cut.count} chunks of {cut.chunk} a row, {len(launches)} launches, {warps} warps"
            yield candidate(site, self.name, functions, launches, why, scratch)


def _units(source: KernelSource, site: Site) -> int:
    """Programs of a kernel that cuts no row: one a row, or one for 32 neighbouring columns (a line of memory)."""
    extent = site.numel("x") or 1
    return extent if contiguous(source) == "r0_" else -(-extent // 32)


def _cuts(source: KernelSource, site: Site) -> list[tuple[Cut, int]]:
    length, extent = source.constants["r0_numel"], site.numel("x") or 1
    found: list[tuple[Cut, int]] = []
    for rows, block, warps, each in _INNER if contiguous(source) == "r0_" else _OUTER:
        block = min(block, 1 << (length - 1).bit_length())
        if (not source.masked("r0_") and length % block) or (not source.masked("x") and extent % rows):
            continue
        cut = Cut.of(length, extent, rows, block, each * max(1, site.roofs.multiprocessors))
        several = len(source.loops) > 1
        if (cut is not None and cut.chunk * rows >= min(_SHORTEST, length) and (cut, warps) not in found
                and not (several and rows * cut.parts > _GATHERED)):
            found.append((cut, warps))
    return found


def split(
    source: KernelSource, site: Site, found: Phases, cut: Cut, warps: int,
) -> tuple[list[Function], list[Launch], list[Scratch]]:
    """A launch for each pass, and one more where the last pass reduces."""
    functions: list[Function] = []
    launches: list[Launch] = []
    scratch: list[Scratch] = []
    extent = str(source.constants.get("xnumel", "xnumel"))
    every = [f"part{n}" for n in range(sum(len(p.lanes) for p in found.phases))]
    passes = len(found.phases) + found.last_reduces
    first = 0
    for number in range(passes):
        body = _gathered(found, number, cut)
        chunks = cut.count
        if number < len(found.phases):
            phase = found.phases[number]
            body += [*statements(f"chunk = tl.program_id(1)\nchunk_start = chunk * {cut.chunk}\n"
                                 f"chunk_end = tl.minimum(chunk_start + {cut.chunk}, r0_numel)"), chunked(phase.loop)]
            body += leave(phase, first, f"xindex * {cut.count} + chunk", "xmask")
            scratch += [Scratch(f"part{first + n}", f"{extent} * {cut.count}", lane.dtype)
                        for n, lane in enumerate(phase.lanes)]
            first += len(phase.lanes)
        else:
            chunks = 1
        if number > 0:
            once = stores(found.phases[number - 1])
            body += within(once, "xmask & (chunk == 0)" if chunks > 1 else "xmask") if once else []
        if number == len(found.phases) - 1 and not found.last_reduces:
            body += within(stores(found.phases[-1]), "xmask & (chunk == 0)")
        body = drop_dead(body)
        parameters = uses(body, (*runtime_parameters(source), *every))
        constexprs = ("XBLOCK", "R0_BLOCK") if chunks > 1 else ("XBLOCK",)
        name = f"{plain(source.name)}_pass{number}"
        functions.append(Function(name, parameters, constexprs, body))
        rows = cut.rows if chunks > 1 else max(1, min(cut.rows, _GATHERED // cut.parts))
        values = {"XBLOCK": rows, "R0_BLOCK": cut.block}
        grid = (f"cdiv({extent}, {rows})", str(chunks)) if chunks > 1 else (f"cdiv({extent}, {rows})",)
        launches.append(Launch(name, grid, parameters, {n: values[n] for n in constexprs},
                               warps if chunks > 1 else max(1, min(8, rows * cut.parts // 128))))
    return functions, launches, scratch


def _gathered(found: Phases, number: int, cut: Cut) -> list[ast.stmt]:
    """What precedes the loop of pass `number`: the prologue, and the results of all passes before."""
    body = [copied(s) for s in found.before]
    if number == len(found.phases):
        body = [s for s in body if not _tile(s)]
    if number:
        parts = cut.parts
        mask = f"xmask & (part_index < {cut.count})" if parts != cut.count else "xmask & (part_index >= 0)"
        body += statements(f"part_index = tl.arange(0, {parts})[None, :]\npart_mask = {mask}")
    first = 0
    for phase in found.phases[:number]:
        body += combine(phase, first, "xindex", cut.count)
        first += len(phase.lanes)
    if number == len(found.phases):
        body = [s for s in body if not _tile(s)]
    return body


def _tile(statement: ast.stmt) -> bool:
    """True for a value with a lane for each element of the row, which a pass without a loop has no use for."""
    return "R0_BLOCK" in {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)}


TECHNIQUE = SplitReduction()
