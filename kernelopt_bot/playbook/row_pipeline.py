"""Long rows are normalised with one trip to memory: the second pass over a row follows the first within L2's reach.

A row that is too long for registers is read twice; with one program a row, all rows in flight together exceed L2, so
the second pass goes to memory again. Here a row is cut into chunks that many programs share, and the passes are put in
one order: a few rows are reduced ahead, then each row's second pass follows the reduction of a row further on. Programs
take their place in that order by a ticket, so what a program waits for was always begun by one that is running already:
no program waits for one that has not started (the argument of single-pass scans with decoupled look-back). Partial
results are reduced in a fixed order. Expected: traffic of both passes over traffic of one.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from kernelopt_bot.contract.candidate import KernelCandidate, Launch, Scratch
from kernelopt_bot.playbook.block_softmax import maximum_first
from kernelopt_bot.playbook.emit import Function, candidate, plain, runtime_parameters, understood
from kernelopt_bot.playbook.kernel_source import KernelSource, NotUnderstood, access_of, name_of
from kernelopt_bot.playbook.launch_space import WARP, contiguous
from kernelopt_bot.playbook.masks import within
from kernelopt_bot.playbook.phases import Phases, chunked, combine, leave, phases, stores, uses
from kernelopt_bot.playbook.rewrite import drop_dead, expression, merge_equal, statements
from kernelopt_bot.playbook.syntax import copied
from kernelopt_bot.playbook.technique import Expectation, Site, width
from kernelopt_bot.playbook.traffic import row_traffic
from kernelopt_bot.playbook.welford import two_pass

_SHORTEST = 1 << 14
"""Elements of a row below which one program holds it whole."""
_REACH = 0.5
"""Share of L2 that rows between their passes may take, with what is written meanwhile: the halves of an H100 or H200's
L2 each hold what their own multiprocessors read (NVIDIA H100 Tensor Core GPU Architecture, 2022)."""
_SHAPES = ((8192, 8, 2), (16384, 16, 1), (4096, 4, 4), (8192, 16, 2), (8192, 8, 4), (4096, 8, 3))
"""(chunk, warps, programs of each multiprocessor whose chunks are reduced ahead). Eight thousand values of four bytes
for each multiprocessor cover the latency of memory: 4 TB/s for a microsecond are 4 MB, 32 KB for each of 132."""
_REGISTERS = 48
"""Of a thread for what one pass loads, so that two programs of eight warps fit a multiprocessor at least."""
_MOST_PROGRAMS = 2**31 - 1


@dataclass(frozen=True)
class Pipeline:
    chunk: int
    chunks: int
    rows: int
    ahead: int
    """Rows that are reduced before the first second pass: enough that the programs in flight rarely wait."""


class RowPipeline:
    name = "row_pipeline"
    citation = ("Order by tickets and forward progress: Merrill and Garland, Single-pass Parallel Prefix Scan with "
                "Decoupled Look-back, NVIDIA NVR-2016-002; traffic as the bound: Ivanov et al., Data Movement Is "
                "All You Need, MLSys 2021")

    def applies(self, site: Site) -> Expectation | None:
        source = site.source
        try:
            if source is None or not _two(source, site).phases or not _pipelines(source, site):
                return None
        except NotUnderstood:
            return None
        traffic = row_traffic(site, source)
        if traffic.passes <= traffic.once:
            return None
        gain = min(0.95 * traffic.passes / traffic.once, site.headroom)
        return Expectation(gain, f"{traffic.passes} row elements moved, {traffic.once} needed; "
                                 f"a row of {source.constants['r0_numel']} elements shared by several programs")

    def propose(self, site: Site) -> Iterator[KernelCandidate]:
        with contextlib.suppress(NotUnderstood):
            source = understood(site)
            found = _two(source, site)
            for p, warps in _pipelines(source, site):
                functions, launch, scratch = pipelined(source, found, p, warps)
                rationale = f"{p.chunks} chunks of {p.chunk} a row, {p.ahead} rows ahead, {warps} warps"
                yield candidate(site, self.name, functions, [launch], rationale, scratch)


def _two(source: KernelSource, site: Site) -> Phases:
    """Raises NotUnderstood unless the kernel reduces neighbouring elements of a row and then goes over it again."""
    found = phases(source, site)
    if (len(found.phases) != 2 or found.last_reduces or contiguous(source) != "r0_" or stores(found.phases[1])
            or "xnumel" not in source.constants):
        raise NotUnderstood("not one pass that reduces a row and one that uses the result")
    written = {a.pointer for a in source.stores}
    if any(not site.distinct(a.pointer, w) for a in source.loads for w in written):
        raise NotUnderstood("what is written is read, and rows are on their way at the same time")
    return found


def _pipelines(source: KernelSource, site: Site) -> list[tuple[Pipeline, int]]:
    length, rows = source.constants["r0_numel"], source.constants["xnumel"]
    if length < _SHORTEST:
        return []
    bytes_ = max((width(source.signature.get(a.pointer, "")) for a in source.loads if a.loop == 0), default=4)
    result: list[tuple[Pipeline, int]] = []
    for chunk, warps, each in _SHAPES:
        chunks = -(-length // chunk)
        ahead = -(-each * max(1, site.roofs.multiprocessors) // chunks)
        masked = source.masked("r0_") or length % chunk == 0
        fits = 2 * ahead * length * bytes_ <= _REACH * site.roofs.l2_bytes or ahead == 1
        if masked and fits and ahead < rows and 2 * rows * chunks <= _MOST_PROGRAMS:
            result.append((Pipeline(chunk, chunks, rows, ahead), warps))
    # Operands of the second pass take registers beside the row: fewer elements a thread where there are several.
    streams = sum(a.loop == 1 and "r0_" in ast.unparse(a.index) for a in source.loads)
    return sorted(result, key=lambda r: streams * r[0].chunk / (r[1] * WARP) > _REGISTERS)


def pipelined(
    source: KernelSource, found: Phases, pipeline: Pipeline, warps: int,
) -> tuple[list[Function], Launch, list[Scratch]]:
    """One launch whose programs take tickets, a device function for each pass."""
    reduce, apply = found.phases
    parts = [f"part{n}" for n in range(len(reduce.lanes))]
    first = [*(_row(s) for s in found.before), *_chunk(pipeline), *_once(reduce.loop)]
    where = f"xindex * {pipeline.chunks} + chunk"
    first = _simplified([*first, *leave(reduce, 0, where, "xmask")])
    block = 1 << (pipeline.chunks - 1).bit_length()
    second = [*(_row(s) for s in found.before), *_chunk(pipeline), *statements(
        f"part_index = tl.arange(0, {block})[None, :]\npart_mask = xmask & (part_index < {pipeline.chunks})")]
    # Other programs wrote the partial results during this launch: past the first-level cache.
    second += combine(reduce, 0, "xindex", pipeline.chunks, ", cache_modifier='.cg'")
    second += _streaming(_once(apply.loop))
    once = stores(reduce)
    second = drop_dead([*second, *(within(once, "xmask & (chunk == 0)") if once else [])])
    runtime = runtime_parameters(source)
    name = plain(source.name)
    functions, called = [], []
    for suffix, body in (("reduce", first), ("apply", second)):
        parameters = uses(body, (*runtime, *parts))
        constexprs = ("XBLOCK", "R0_BLOCK")
        functions.append(Function(f"{name}_{suffix}", (*parameters, "row", "chunk"), constexprs, body))
        called.append(f"{name}_{suffix}({', '.join((*parameters, 'row', 'chunk', *constexprs))})")
    used = [p for p in runtime if any(p in f.parameters for f in functions)]
    parameters = (*used, "tickets", "ready", *parts)
    functions.append(Function(name, parameters, ("XBLOCK", "R0_BLOCK"), _order(pipeline, *called)))
    launch = Launch(name, (str(2 * pipeline.rows * pipeline.chunks),), parameters,
                    {"XBLOCK": 1, "R0_BLOCK": pipeline.chunk}, warps)
    scratch = [Scratch("tickets", "1", "int32", True), Scratch("ready", str(pipeline.rows), "int32", True),
               *(Scratch(p, str(pipeline.rows * pipeline.chunks), lane.dtype)
                 for p, lane in zip(parts, reduce.lanes, strict=True))]
    return functions, launch, scratch


def _order(p: Pipeline, reduce: str, apply: str) -> list[ast.stmt]:
    """Ticket -> (row, chunk, pass). The first `ahead` rows are reduced; then second passes and reductions alternate by
    rows; the last `ahead` rows have only their second pass left."""
    steady = 2 * (p.rows - p.ahead)
    return statements(f"""
ticket = tl.atomic_add(tickets, 1)
place = ticket // {p.chunks} - {p.ahead}
chunk = ticket % {p.chunks}
applies = (place >= {steady}) | ((place >= 0) & (place % 2 == 0))
row = tl.where(place < 0, place + {p.ahead}, place // 2)
row = tl.where((place >= 0) & (place < {steady}) & (place % 2 == 1), place // 2 + {p.ahead}, row)
row = tl.where(place >= {steady}, place - {steady} + {p.rows - p.ahead}, row)
if applies:
    while tl.atomic_add(ready + row, 0, sem='acquire') < {p.chunks}:
        pass
    tl.debug_barrier()
    {apply}
else:
    {reduce}
    tl.debug_barrier()
    tl.atomic_add(ready + row, 1, sem='release')
""")


def _row(statement: ast.stmt) -> ast.stmt:
    """With the row that the ticket gave in place of the program's number."""
    statement = copied(statement)

    class Replace(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.expr:
            self.generic_visit(node)
            return ast.Name("row", ast.Load()) if ast.unparse(node) == "tl.program_id(0)" else node

    result: ast.stmt = Replace().visit(statement)
    if "tl.program_id" in ast.unparse(result):
        raise NotUnderstood("a program number along another axis")
    return result


def _chunk(pipeline: Pipeline) -> list[ast.stmt]:
    return statements(f"chunk_start = chunk * {pipeline.chunk}")


def _once(loop: ast.For) -> list[ast.stmt]:
    """The loop's body for the one block that is the chunk."""
    return [*statements("r0_offset = chunk_start"), *chunked(loop).body]


def _simplified(body: list[ast.stmt]) -> list[ast.stmt]:
    """Running updates of one block as what they amount to."""
    merged = merge_equal(body, lambda one, other: True)
    count = statements("chunk_elements = tl.minimum(R0_BLOCK, r0_numel - chunk_start).to(tl.float32)")
    start = 1 + next(n for n, s in enumerate(merged) if name_of(s) == "chunk_start")
    merged[start:start] = count
    for statement in merged:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "triton_helpers.welford_reduce":
                node.args[4] = expression("True")
    return drop_dead(maximum_first(two_pass(merged, "chunk_elements")))


def _streaming(body: list[ast.stmt]) -> list[ast.stmt]:
    """Stores that do not displace the rows that are on their way."""
    for node in (n for s in body for n in ast.walk(s)):
        access = access_of(node) if isinstance(node, ast.Call) else None
        if access is not None and access.kind == "store" and isinstance(node, ast.Call):
            node.keywords = [*(k for k in node.keywords if k.arg != "cache_modifier"),
                             ast.keyword("cache_modifier", ast.Constant(".cs"))]
    return body


TECHNIQUE = RowPipeline()
