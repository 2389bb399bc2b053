"""A looped reduction as phases: what one loop over a row leaves behind, so that other programs can go on from it.

Inductor keeps an accumulator a lane, `[XBLOCK, R0_BLOCK]`, and reduces it along the row after the loop. What that
reduction yields for one part of a row is again a lane, so the partial results of all parts, side by side, go through
the very same statement: no operator needs a rule of its own beyond its neutral element.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kernelopt_bot.playbook.kernel_source import KernelSource, NotUnderstood, access_of, name_of
from kernelopt_bot.playbook.rewrite import binds, expression, impure, reads, statements, substitute
from kernelopt_bot.playbook.syntax import copied
from kernelopt_bot.playbook.technique import Site

REDUCERS = frozenset({
    "tl.sum", "triton_helpers.max2", "triton_helpers.min2", "triton_helpers.prod", "triton_helpers.any",
    "triton_helpers.welford", "triton_helpers.online_softmax_reduce", "triton_helpers.max_with_index",
    "triton_helpers.min_with_index",
})
"""Reductions along axis 1 whose results for parts of a row can be reduced again."""

_DTYPES = {"tl.float32": "float32", "tl.float64": "float64", "tl.int32": "int32", "tl.int64": "int64",
           "tl.int1": "int8"}
"""Type of an accumulator -> dtype of its partial results in memory."""

_RANGES = ("tl.range(0, r0_numel, R0_BLOCK)", "range(0, r0_numel, R0_BLOCK)")
_ELSEWHERE = ("tl.associative_scan", "tl.cumsum", "tl.sort", "triton_helpers.sort_with_index", "tl.rand", "tl.randn",
              "tl.dot")


@dataclass(frozen=True)
class Lane:
    """An accumulator: its variable, the type of its elements (`tl.float32`), its neutral element as text."""

    name: str
    type: str
    neutral: str

    @property
    def dtype(self) -> str:
        """torch's name for the buffer that holds partial results."""
        return _DTYPES[self.type]


@dataclass(frozen=True)
class Finish:
    """The statement that reduces `lanes` along the row; `targets` are the names it binds, one for each lane."""

    statement: ast.Assign
    call: ast.Call
    lanes: tuple[Lane, ...]
    again: ast.Assign
    """The same for lanes that are partial results: `statement`, unless that computes the lanes from something else."""


@dataclass(frozen=True)
class Phase:
    """One loop over the row and what follows it up to the next loop."""

    loop: ast.For
    after: tuple[ast.stmt, ...]
    finishes: tuple[Finish, ...]

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return tuple(lane for finish in self.finishes for lane in finish.lanes)


@dataclass(frozen=True)
class Phases:
    before: tuple[ast.stmt, ...]
    phases: tuple[Phase, ...]

    @property
    def last_reduces(self) -> bool:
        return bool(self.phases[-1].finishes)


def phases(source: KernelSource, site: Site) -> Phases:
    """Raises NotUnderstood where a loop depends on the order of a row's blocks, or where what is written is read again
    in a way that needs one program a row."""
    if (source.heuristic != "reduction" or source.dimensions != ("x", "r0_") or source.grid_type != "Grid1D"
            or source.tunable != ("XBLOCK", "R0_BLOCK") or "r0_numel" not in source.constants or not source.loops):
        raise NotUnderstood("no looped reduction over one dimension of known length")
    if source.calls(*_ELSEWHERE) or any(impure(s) and "tl.atomic_" in ast.unparse(s) for s in source.body):
        raise NotUnderstood("the row is scanned, sorted, or updated atomically")
    if not definition(source, "xindex") or not definition(source, "xmask"):
        raise NotUnderstood("rows have no index or mask of the known name")
    separate(source, site)
    positions = [n for n, s in enumerate(source.body) if isinstance(s, ast.For)]
    before = source.body[:positions[0]]
    found: list[Phase] = []
    known: list[ast.stmt] = list(before)
    earlier: set[str] = set()
    for position, end in zip(positions, [*positions[1:], len(source.body)], strict=True):
        loop, after = source.body[position], source.body[position + 1:end]
        assert isinstance(loop, ast.For)
        if kept := (_read_first(loop.body) & earlier) - {n for s in known for n in binds(s)}:
            raise NotUnderstood(f"{', '.join(sorted(kept))} is kept from the loop before")
        found.append(_phase(loop, after, known))
        earlier |= {n for s in loop.body for n in binds(s)}
        known += after
    if not any(p.finishes for p in found):
        raise NotUnderstood("no reduction of a known form")
    return Phases(tuple(before), tuple(found))


def separate(source: KernelSource, site: Site) -> None:
    """Raises NotUnderstood unless each pointer that is stored through is known not to overlap any that is loaded
    through, except for an element that is read and written in the same place of the code."""
    for store in source.stores:
        for load in source.loads:
            same = (store.pointer == load.pointer and store.loop == load.loop
                    and ast.unparse(store.index) == ast.unparse(load.index))
            if not same and not site.distinct(store.pointer, load.pointer):
                raise NotUnderstood(f"{store.pointer} is written and may be what {load.pointer} reads")
    if len(source.stores) + len(source.loads) != sum(
            ast.unparse(n.func) in ("tl.load", "tl.store") for s in source.body for n in ast.walk(s)
            if isinstance(n, ast.Call)):
        raise NotUnderstood("an access of another form")


def _phase(loop: ast.For, after: Sequence[ast.stmt], known: Sequence[ast.stmt]) -> Phase:
    if ast.unparse(loop.iter) not in _RANGES or ast.unparse(loop.target) != "r0_offset":
        raise NotUnderstood(f"a loop over {ast.unparse(loop.iter)}")
    for statement in loop.body:
        if isinstance(statement, ast.For | ast.If | ast.While):
            raise NotUnderstood("a nested statement")
        if "rbase" in reads(statement):
            raise NotUnderstood("a block's own offset is used")
    allowed = sum(1 for s in loop.body for n in ast.walk(s) if _first_iteration(n))
    offsets = [n.id for s in loop.body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
               and n.id == "roffset"]
    if len(offsets) != allowed:
        raise NotUnderstood("a block's offset is used")
    carried = {n for s in loop.body for n in binds(s)} & {n for s in known for n in binds(s)}
    carried -= {"r0_index", "r0_mask", "rindex", "roffset"}
    lanes = {name: _lane(name, known) for name in sorted(carried & _read_first(loop.body))}
    finishes = tuple(f for s in after if (f := _finish(s, lanes)) is not None)
    reduced = {lane.name for f in finishes for lane in f.lanes}
    if reduced != set(lanes):
        raise NotUnderstood(f"{', '.join(sorted(set(lanes) - reduced))} is carried and not reduced")
    inside = {"r0_offset", *(n for s in loop.body for n in binds(s))}
    results = {n for f in finishes for n in binds(f.statement)}
    rebound: set[str] = set(results)
    for statement in after:
        if any(statement is f.statement for f in finishes):
            continue
        if (reads(statement) & inside) - rebound:
            raise NotUnderstood(f"{ast.unparse(statement)} uses a lane")
        rebound |= binds(statement)
    return Phase(loop, tuple(after), finishes)


def _read_first(body: Sequence[ast.stmt]) -> set[str]:
    """Names that the statements read before they bind them."""
    bound: set[str] = set()
    found: set[str] = set()
    for statement in body:
        found |= reads(statement) - bound
        bound |= binds(statement)
    return found


def _lane(name: str, known: Sequence[ast.stmt]) -> Lane:
    """From `name = tl.full([XBLOCK, R0_BLOCK], neutral, type)` or `tl.zeros(...)`."""
    for statement in reversed(known):
        if name not in binds(statement):
            continue
        value = getattr(statement, "value", None)
        if isinstance(value, ast.Call) and not value.keywords and value.args:
            function, arguments = ast.unparse(value.func), [ast.unparse(a) for a in value.args]
            if arguments[0] == "[XBLOCK, R0_BLOCK]" and arguments[-1] in _DTYPES:
                if function == "tl.full" and len(arguments) == 3:
                    return Lane(name, arguments[2], arguments[1])
                if function == "tl.zeros" and len(arguments) == 2:
                    return Lane(name, arguments[1], "0")
        break
    raise NotUnderstood(f"{name} is no accumulator of a known form")


def _finish(statement: ast.stmt, lanes: dict[str, Lane]) -> Finish | None:
    if not isinstance(statement, ast.Assign):
        return None
    calls = [n for n in ast.walk(statement.value) if isinstance(n, ast.Call) and ast.unparse(n.func) in REDUCERS]
    if len(calls) != 1:
        return None
    names = [a.id for a in calls[0].args if isinstance(a, ast.Name)]
    axis = calls[0].args[len(names)] if len(calls[0].args) > len(names) else None
    if not names or not set(names) <= set(lanes) or axis is None or ast.unparse(axis) != "1" or calls[0].keywords:
        return None
    target = statement.targets[0]
    single = isinstance(target, ast.Name) and len(names) == 1
    several = (isinstance(target, ast.Tuple) and len(target.elts) == len(names) > 1 and statement.value is calls[0])
    if not single and not several:
        return None
    return Finish(statement, calls[0], tuple(lanes[n] for n in names), statement)


def _first_iteration(node: ast.AST) -> bool:
    return isinstance(node, ast.Compare) and ast.unparse(node) in ("roffset == 0", "roffset == chunk_start")


def chunked(loop: ast.For) -> ast.For:
    """The loop over `[chunk_start, chunk_end)` instead of the whole row."""
    loop = copied(loop)
    loop.iter = expression("tl.range(chunk_start, chunk_end, R0_BLOCK)")
    for node in ast.walk(loop):
        if _first_iteration(node) and isinstance(node, ast.Compare):
            node.comparators = [ast.Name("chunk_start", ast.Load())]
    return loop


def leave(phase: Phase, first: int, where: str, mask: str) -> list[ast.stmt]:
    """Reduces the phase's lanes and stores them: lane `n` of the phase to `part<first + n>` at element `where`
    (`[XBLOCK, 1]`) under `mask`."""
    body: list[ast.stmt] = []
    number = first
    for finish in phase.finishes:
        names = [f"left_{number + n}" for n in range(len(finish.lanes))]
        body += statements(f"{', '.join(names)} = {ast.unparse(finish.call)}")
        for name, lane in zip(names, finish.lanes, strict=True):
            value = f"{name}[:, None]" + (".to(tl.int8)" if lane.type == "tl.int1" else "")
            body += statements(f"tl.store(part{number} + ({where}), {value}, {mask})")
            number += 1
    return body


def combine(phase: Phase, first: int, row: str, count: int, hint: str = "") -> list[ast.stmt]:
    """What follows the phase's loop, computed from its `count` partial results at `row + 0 .. count - 1`.

    Needs `part_index` (`[1, PARTS]`) and `part_mask` (`[XBLOCK, PARTS]`). Stores are left out: see `final_stores`.
    """
    body: list[ast.stmt] = []
    number = first
    for statement in phase.after:
        finish = next((f for f in phase.finishes if f.statement is statement), None)
        if finish is None:
            if not impure(statement):
                body.append(copied(statement))
            continue
        replaced: dict[str, ast.expr] = {}
        for lane in finish.lanes:
            loaded = f"tl.load(part{number} + ({row} * {count} + part_index), part_mask, other={lane.neutral}{hint})"
            neutral = f".to({lane.type})" if lane.type == "tl.int1" else ""
            body += statements(f"gathered_{number} = {loaded}{neutral}")
            replaced[lane.name] = ast.Name(f"gathered_{number}", ast.Load())
            number += 1
        body.append(substitute(finish.again, replaced))
    return body


def stores(phase: Phase) -> list[ast.stmt]:
    """The stores between this phase's loop and the next: one a row."""
    return [copied(s) for s in phase.after if impure(s)]


def uses(body: Sequence[ast.stmt], names: Collection[str]) -> tuple[str, ...]:
    """The names among `names` that the statements read, in the order given."""
    found = {n for s in body for n in reads(s)}
    return tuple(n for n in names if n in found)


def definition(source: KernelSource, name: str) -> str:
    """Text of what is assigned to `name` first, '' if nothing is."""
    for statement in source.body:
        if name_of(statement) == name and isinstance(statement, ast.Assign):
            return ast.unparse(statement.value)
    return ""


def pointers(body: Sequence[ast.stmt]) -> set[str]:
    return {a.pointer for s in body for n in ast.walk(s) if isinstance(n, ast.Call)
            and (a := access_of(n)) is not None}
