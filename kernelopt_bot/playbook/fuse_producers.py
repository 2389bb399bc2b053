"""Kernels are computed where their results are read, instead of being stored and read back.

Inductor leaves neighbours apart where a reduction was split (statistics of few long rows: the partial results are
combined by one small kernel and scaled by another, before the apply kernel starts), where a vendor's output gets its
bias before a window or a reduction reads it several times, and where one window follows another. The combine and the
scale are repeated by each program of the apply kernel, whose lanes all lie in one row; the bias is added where the
element is read. Expected: a launch less for each moved kernel, and the bytes of what is no longer stored.
"""

from __future__ import annotations

import ast
import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.playbook.emit import Function, grid, plain
from kernelopt_bot.playbook.fusion import FusedLaunch, RunSite, candidate
from kernelopt_bot.playbook.inline import Site, definitions, lanes_masked, moved
from kernelopt_bot.playbook.kernel_source import Access, KernelSource, NotUnderstood, access_of, name_of
from kernelopt_bot.playbook.masks import without
from kernelopt_bot.playbook.rewrite import expression, statements, substitute
from kernelopt_bot.playbook.syntax import copied
from kernelopt_bot.playbook.technique import BaselineConfig, Expectation
from kernelopt_bot.playbook.values import Node, Unmovable, Values

LEAST_GAIN = 1.03
SHORTEST_ROW = 128
"""Elements of a row below which programs of one row each would be too small."""
MOST_LOADS = 64
"""Loads of one kernel after its producers are moved in: beyond it registers spill and caches thrash."""
_TILES = ((1024, 4), (2048, 8), (512, 4), (4096, 8))
"""(elements, warps) of a pointwise program: 8 to 16 elements a thread."""


class FuseProducers:
    name = "fuse_producers"
    citation = ("Recomputation instead of a round trip through memory: Jia et al., TASO, SOSP 2019; Niu et al., "
                "DNNFusion, PLDI 2021")

    def applies(self, site: RunSite) -> Expectation | None:
        try:
            fused = fuse(site)
        except NotUnderstood:
            return None
        if fused[0].node.position == 0:
            return None  # a shorter run does as well
        before = site.model_us([site.traffic(i) for i in range(len(site.run.calls))])
        gain = before / site.model_us([(k.loads, k.stores) for k in fused])
        if gain < LEAST_GAIN:
            return None
        return Expectation(gain, f"{len(site.run.calls)} launches become {len(fused)}, {1 - 1 / gain:.0%} less moved "
                                 "and launched")

    def propose(self, site: RunSite) -> Iterator[KernelCandidate]:
        try:
            fused = fuse(site)
            seen: set[str] = set()
            for choice in range(len(_TILES)):
                launches = [_launch(k, site, choice) for k in fused]
                helpers = [h for n in fused for s in n.sources for h in s.helpers]
                made = candidate(site, self.name, launches, helpers,
                                 f"{len(site.run.calls)} kernels in {len(fused)} launches, "
                                 f"{launches[-1].num_warps} warps in the last")
                if made.id not in seen:
                    seen.add(made.id)
                    yield made
        except NotUnderstood:
            return


@dataclass(frozen=True)
class Fused:
    """A kernel of the run with its producers moved in. `row`: elements that share the moved rows' values, 0 where
    the kernel keeps its own index arithmetic; `loads` and `stores` are buffers of the run."""

    node: Node
    body: tuple[ast.stmt, ...]
    row: int
    loads: frozenset[str]
    stores: frozenset[str]
    sources: tuple[KernelSource, ...]


def fuse(site: RunSite) -> tuple[Fused, ...]:
    """The launches of the run with as many kernels moved as can be. Raises NotUnderstood where none can."""
    values = Values.of(site)
    while values.moved:
        try:
            return tuple(_Consumer(node, values, site).fused() for node in values.kept())
        except Unmovable as e:
            values.moved.discard(e.position)
    raise NotUnderstood("no kernel of the run can be moved into another")


class _Consumer:
    """Moves producers into one kernel that stays."""

    def __init__(self, node: Node, values: Values, site: RunSite) -> None:
        self.node, self.values, self.site = node, values, site
        self.known = definitions(node.source)
        self.loads: set[str] = set()
        self.sources: list[KernelSource] = [node.source]
        self.count = self.here = self.block = 0
        self.done: dict[tuple[object, ...], str] = {}
        self.row = self._row()

    def fused(self) -> Fused:
        source = self.node.source
        if source.heuristic == "pointwise":
            shape = {("x",): ("XBLOCK",), ("x", "y"): ("YBLOCK", "XBLOCK")}.get(source.dimensions, ())
        else:
            shape = ("XBLOCK", "R0_BLOCK") if source.dimensions == ("x", "r0_") else ()
        # Blocks that divide the whole extent, for which the compiler leaves masks out, need not divide a row.
        body = self._body(lanes_masked(source) if self.row else source.body, shape)
        if self.count > MOST_LOADS:
            raise Unmovable(max(self.values.moved), f"{self.count} loads in one kernel")
        if self.row:
            body = _by_row(body, self.row)
        return Fused(self.node, tuple(body), self.row, frozenset(self.loads), self.node.stores, tuple(self.sources))

    def fresh(self) -> str:
        """A variable that holds what a load of the kernel itself would have yielded."""
        self.here += 1
        return f"f0_{self.here}"

    def _body(self, body: Sequence[ast.stmt], shape: tuple[str, ...]) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        for statement in body:
            if isinstance(statement, ast.For):
                loop, around = copy.copy(statement), self.block
                self.block = statement.lineno
                loop.body = self._body(statement.body, shape)
                self.block = around
                result.append(loop)
                continue
            changer = _Replaced(self, shape)
            changed = changer.visit(copied(statement))
            result += [*changer.before, ast.fix_missing_locations(changed)]
        return result

    def _producer(self, buffer: str, position: int) -> Node | None:
        writer = self.values.writer(buffer, position)
        return self.values.nodes[writer] if writer is not None and writer in self.values.moved else None

    def _row(self) -> int:
        """Elements in which every load of a moved producer that allows it stays at one element; 0 if there is none."""
        source, periods = self.node.source, []
        for access in source.loads:
            if self._producer(self.node.buffers[access.pointer], self.node.position) is not None:
                period = _period(substitute(access.index, self.known))
                if period:
                    periods.append(period)
        if source.heuristic != "pointwise" or source.dimensions != ("x",) or not periods:
            return 0
        row, numel = math.gcd(*periods), source.numel("x") or 0
        return row if row >= SHORTEST_ROW and numel % row == 0 and numel < 1 << 31 else 0

    def moved_in(self, access: Access, shape: tuple[str, ...], target: str) -> list[ast.stmt] | None:
        """Statements that bind `target` to what a load of this kernel yields, None where it stays a load."""
        buffer = self.node.buffers[access.pointer]
        producer = self._producer(buffer, self.node.position)
        if producer is None:
            self.loads.add(buffer)
            self.count += 1
            return None
        if not shape:
            raise Unmovable(producer.position, "the consumer's tile has more dimensions")
        index = substitute(access.index, self.known)
        once = self._once(index)
        if once is not None:
            return self._move(producer, buffer, Site(once, None, ("1",), target, True))
        return self._move(producer, buffer, Site(access.index, access.mask, shape, target, False))

    def _once(self, index: ast.expr) -> ast.expr | None:
        """The index as one number for the program, None where it differs between lanes."""
        if not any(isinstance(n, ast.Name) for n in ast.walk(index)):
            return index
        if not self.row:
            return None
        found: ast.expr = _PerRow(self.row).visit(copied(index))
        return None if any(isinstance(n, ast.Name) and n.id != "fused_row" for n in ast.walk(found)) else found

    def _move(self, producer: Node, buffer: str, at: Site) -> list[ast.stmt]:
        self.values.check(producer.position, self.node.position)
        outputs = {a.pointer: self.site.run.buffer[producer.buffers[a.pointer]].type for a in producer.source.stores}
        pointer = next(p for p in outputs if producer.buffers[p] == buffer)
        # Code inside a loop does not reach what follows the loop.
        key = (self.block, producer.position, ast.unparse(at.index), at.mask and ast.unparse(at.mask), at.shape)
        if key in self.done:
            return statements(f"{at.target} = {self.done[key]}{pointer}")
        self.sources.append(producer.source)
        prefix = self.done[key] = f"f{len(self.sources)}_"

        def expand(access: Access, site: Site) -> list[ast.stmt] | None:
            inner = producer.buffers[access.pointer]
            further = self._producer(inner, producer.position)
            if further is None:
                self.loads.add(inner)
                self.count += 1
                return None
            return self._move(further, inner, site)

        def rename(name: str) -> str:
            return producer.buffers.get(name, name)

        try:
            return [*moved(producer.source, outputs, at, prefix, expand, rename),
                    *statements(f"{at.target} = {prefix}{pointer}")]
        except Unmovable:
            raise
        except NotUnderstood as e:
            raise Unmovable(producer.position, str(e)) from e


class _Replaced(ast.NodeTransformer):
    """The consumer's loads of moved values become variables; its pointers get the names of the run's buffers."""

    def __init__(self, consumer: _Consumer, shape: tuple[str, ...]) -> None:
        self.consumer, self.shape = consumer, shape
        self.before: list[ast.stmt] = []

    def visit_Call(self, node: ast.Call) -> ast.expr:
        access = access_of(node)
        if access is not None and access.kind == "load":
            target = self.consumer.fresh()
            more = self.consumer.moved_in(access, self.shape, target)
            if more is not None:
                self.before += more
                other = next((k.value for k in node.keywords if k.arg == "other"), None)
                text = target if other is None or access.mask is None else (
                    f"tl.where({ast.unparse(access.mask)}, {target}, {ast.unparse(other)})")
                return expression(text)
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        name = self.consumer.node.buffers.get(node.id)
        return ast.Name(name, node.ctx) if name is not None else node


class _PerRow(ast.NodeTransformer):
    """`xindex // c` is one number in a row of `row` elements if `row` divides `c`."""

    def __init__(self, row: int) -> None:
        self.row = row

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        divisor = _divisor(node)
        if divisor and divisor % self.row == 0:
            return expression("fused_row" if divisor == self.row else f"fused_row // {divisor // self.row}")
        self.generic_visit(node)
        return node


def _divisor(node: ast.AST) -> int:
    """`c` of `xindex // c`, else 0."""
    match node:
        case ast.BinOp(left=ast.Name(id="xindex"), op=ast.FloorDiv(), right=ast.Constant(value=int() as divisor)):
            return divisor
    return 0


def _period(index: ast.expr) -> int:
    """Elements for which an index stays the same; 0 if it changes from one element to the next or never."""
    divisors = [d for n in ast.walk(index) if (d := _divisor(n))]
    bare = sum(isinstance(n, ast.Name) for n in ast.walk(index))
    return math.gcd(*divisors) if divisors and bare == len(divisors) else 0


def _by_row(body: Sequence[ast.stmt], row: int) -> list[ast.stmt]:
    """The body with programs that each lie within one row; `PARTS` programs share a row."""
    result: list[ast.stmt] = []
    for statement in body:
        if name_of(statement) == "xoffset":
            result += statements("fused_row = tl.program_id(0) // PARTS\n"
                                 "fused_column = tl.program_id(0) % PARTS * XBLOCK + tl.arange(0, XBLOCK)")
        elif name_of(statement) == "xindex":
            result += statements(f"xindex = fused_row * {row} + fused_column")
        elif name_of(statement) == "xmask":
            result += statements(f"xmask = fused_column < {row}")
        else:
            result.append(copied(statement))
    return result


def _launch(fused: Fused, site: RunSite, choice: int) -> FusedLaunch:
    source = fused.node.source
    name = plain(f"{source.name}_{fused.node.position}")
    pointers = tuple(sorted(fused.loads | fused.stores))
    numbers = [p for p in source.parameters if p not in fused.node.buffers and p not in source.constants]
    if numbers:
        raise NotUnderstood(f"{source.name} takes {', '.join(numbers)}")
    if fused.row:
        block, warps = _TILES[choice]
        block = min(block, 1 << (fused.row - 1).bit_length())
        parts, whole = -(-fused.row // block), fused.row % block == 0
        body = without(fused.body, {"xmask"}) if whole else fused.body
        return FusedLaunch(Function(name, pointers, ("XBLOCK", "PARTS"), body),
                           (str((source.numel("x") or 0) // fused.row * parts),), pointers,
                           {"XBLOCK": block, "PARTS": parts}, warps)
    config = _config(fused, site, choice)
    return FusedLaunch(Function(name, pointers, source.tunable, fused.body), grid(source, config.constexprs), pointers,
                       {n: config.constexprs[n] for n in source.tunable}, config.num_warps, config.num_stages)


def _config(fused: Fused, site: RunSite, choice: int) -> BaselineConfig:
    """Configurations for a kernel's own index arithmetic: its baseline's, or usual ones where it was not compiled."""
    source = fused.node.source
    if site.configs and site.configs[fused.node.position]:
        known = site.configs[fused.node.position]
        return known[min(choice, len(known) - 1)]
    if source.heuristic == "pointwise" and source.dimensions == ("x",) and source.masked("x"):
        block, warps = _TILES[choice]
        return BaselineConfig({"XBLOCK": block}, warps, 1)
    if source.heuristic == "persistent_reduction":
        return BaselineConfig({"XBLOCK": 1}, 4, 1)
    raise NotUnderstood(f"no configuration of {source.name} is known")


FUSION = FuseProducers()
