"""A reduction over a short window is done by each thread for itself, one step after the other.

Inductor reduces a window (pooling, a few channels) as one padded axis of the tile: lanes idle in the padding, values
travel between threads, and neighbouring windows do not meet in a cache line. Here each thread owns one output and
walks its window; neighbouring threads read neighbouring elements and overlapping windows hit L1. Expected: 1.2x, and
up to 5x where windows overlap.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelopt_bot.contract.candidate import KernelCandidate, Launch
from kernelopt_bot.playbook.emit import Function, candidate, grid, identity, plain, runtime_parameters, understood
from kernelopt_bot.playbook.kernel_source import KernelSource, NotUnderstood, name_of, walk
from kernelopt_bot.playbook.launch_space import contiguous
from kernelopt_bot.playbook.masks import without
from kernelopt_bot.playbook.rewrite import binds, expression, impure, reads, statements
from kernelopt_bot.playbook.syntax import copied
from kernelopt_bot.playbook.technique import Expectation, Site

_LONGEST = 256
"""Window length beyond which a thread walks too long by itself."""
_UNROLLED = 128
"""Longest window that is written out, so that all its loads can be in flight together."""
_SHAPES = ((256, 4), (128, 4), (512, 4), (512, 8), (1024, 8))
"""(outputs a program, warps): one to four outputs a thread."""

_COMBINE = {
    "tl.sum": ("0", "{a} + {v}"), "triton_helpers.prod": ("1", "{a} * {v}"),
    "triton_helpers.max2": ("float('-inf')", "triton_helpers.maximum({a}, {v})"),
    "triton_helpers.min2": ("float('inf')", "triton_helpers.minimum({a}, {v})"),
}
"""Reduction over axis 1 -> neutral element and the combination of two values (NaN handled alike)."""

_ACROSS = {
    *_COMBINE, "tl.max", "tl.min", "tl.argmax", "tl.argmin", "tl.reduce", "tl.associative_scan", "tl.cumsum", "tl.sort",
    "triton_helpers.any", "triton_helpers.sort_with_index", "triton_helpers.select_one",
}
"""Functions that exchange values along the row."""


class SerialReduction:
    name = "serial_reduction"
    citation = ("One thread per output, as in cuDNN's and PyTorch's pooling kernels (aten/src/ATen/native/cuda); "
                "Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009")

    def applies(self, site: Site) -> Expectation | None:
        source = site.source
        if source is None or source.dimensions != ("x", "r0_") or (contiguous(source) != "x" and not _window(source)):
            return None
        window, outputs = source.constants.get("r0_numel", 0), site.numel("x") or 0
        if not 2 <= window <= _LONGEST or len(source.loops) > 1:
            return None
        if source.heuristic == "persistent_reduction":
            try:
                serial(source)
            except NotUnderstood:
                return None
        numels = [site.tensor_numel(a.pointer) for a in source.loads]
        reuse = window * outputs / max([n for n in numels if n], default=window * outputs)
        gain = min(1.2 * max(1.0, reuse) ** 0.5, site.headroom)
        return Expectation(gain, f"{outputs} windows of {window}, each element read {reuse:.1f} times")

    def propose(self, site: Site) -> Iterator[KernelCandidate]:
        try:
            source = understood(site)
            for rows, warps in _SHAPES:
                if not source.masked("x") and (site.numel("x") or 1) % rows:
                    continue
                why = f"{rows} windows of {source.constants['r0_numel']} a program, one output a thread"
                if source.loops:
                    yield identity(site, {"XBLOCK": rows, "R0_BLOCK": 1}, warps, 1, self.name, why, unrolled(source))
                    continue
                parameters = runtime_parameters(source)
                function = Function(source.name, parameters, source.tunable, serial(source))
                launch = Launch(plain(source.name), grid(source, {"XBLOCK": rows}), parameters, {"XBLOCK": rows}, warps)
                yield candidate(site, self.name, [function], [launch], why)
        except NotUnderstood:
            return


def serial(source: KernelSource) -> list[ast.stmt]:
    """The body of a persistent reduction with its row walked by a loop. Raises NotUnderstood where the kernel uses
    the row again after reducing it, or reduces in a way that is not known."""
    length = source.constants["r0_numel"]
    if source.tunable != ("XBLOCK",):
        raise NotUnderstood(f"constexprs {source.tunable}")
    before: list[ast.stmt] = []
    inside: list[ast.stmt] = []
    after: list[ast.stmt] = []
    along = {"r0_index", "r0_mask", "rindex", "R0_BLOCK", "RBLOCK"}
    results: set[str] = set()
    for statement in source.body:
        name = name_of(statement)
        if name in {"r0_index", "r0_mask", "r0_offset", "roffset", "R0_BLOCK"}:
            continue
        uses = reads(statement)
        reduced = _reduced(statement)
        if reduced is not None:
            function, value, type_ = reduced
            if reads(ast.parse(value)) & results:
                raise NotUnderstood("a reduction of a reduction")
            neutral, combine = _COMBINE[function]
            before += statements(f"acc_{name} = tl.full([XBLOCK, 1], {neutral}, {type_})")
            inside += statements(f"acc_{name} = {combine.format(a=f'acc_{name}', v=value)}")
            after += statements(f"{name} = acc_{name}")
            results.add(name)
        elif uses & results:
            if uses & along:
                raise NotUnderstood("the row is used again after its reduction")
            after.append(copied(statement))
            results |= binds(statement)
        elif uses & along:
            if impure(statement):
                raise NotUnderstood("the row itself is stored")
            inside.append(copied(statement))
            along |= binds(statement)
        else:
            (after if impure(statement) else before).append(copied(statement))
    if not results:
        raise NotUnderstood("no reduction")
    steps = "tl.static_range" if length <= _UNROLLED else "tl.range"
    loop = statements(f"for r0_index in {steps}(0, {length}):\n    rindex = r0_index")[0]
    assert isinstance(loop, ast.For)
    loop.body += without(inside, {"r0_mask"})
    head = statements("R0_BLOCK: tl.constexpr = 1\nRBLOCK: tl.constexpr = 1")
    before = [s for s in before if name_of(s) != "RBLOCK"]
    return [*head, *before, loop, *after]


def _window(source: KernelSource) -> bool:
    """True if the reduced index is split by division, as over a window of two or three dimensions, so that it is no
    run of neighbouring elements."""
    along = [s.value for s in walk(source.body) if isinstance(s, ast.Assign) and name_of(s).startswith("r0_")]
    return any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod | ast.FloorDiv) and "r0_index" in ast.unparse(n)
               for value in along for n in ast.walk(value))


def unrolled(source: KernelSource) -> list[ast.stmt]:
    """The body of a looped reduction whose blocks hold one element, the loop written out where it is short."""
    body, length = copied(list(source.body)), source.constants["r0_numel"]
    if length <= _UNROLLED:
        for statement in body:
            if isinstance(statement, ast.For):
                statement.iter = expression(f"tl.static_range(0, {length})")
    return body


def _reduced(statement: ast.stmt) -> tuple[str, str, str] | None:
    """(function, value, type) of `name = function(value, 1)[:, None].to(type)`."""
    if not isinstance(statement, ast.Assign) or not name_of(statement):
        return None
    node: ast.expr = statement.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "to" and node.args:
        type_ = ast.unparse(node.args[0])
        node = node.func.value
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Call):
            call = node.value
            function = ast.unparse(call.func)
            if function in _COMBINE and len(call.args) == 2 and ast.unparse(call.args[1]) == "1":
                return function, ast.unparse(call.args[0]), type_
    called = {ast.unparse(n.func) for n in ast.walk(statement.value) if isinstance(n, ast.Call)}
    if called & _ACROSS:
        raise NotUnderstood(f"a reduction of the form {ast.unparse(statement)}")
    return None


TECHNIQUE = SerialReduction()
