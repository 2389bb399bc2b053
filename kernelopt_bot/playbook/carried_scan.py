"""A scan along a row carries its total from block to block by a sum that does not wait for the scan.

Inductor takes the total of a block out of the scan's last element (a masked reduction over the scanned values) and so
puts the whole scan on the path from one block to the next; its blocks are short and several rows share a program. Here
a program owns one row, the total is reduced from the block's input beside the scan, the next block is fetched
meanwhile, and a row that fits one block has no loop at all. Expected: 1.1x to 1.6x.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kernelopt_bot.contract.candidate import KernelCandidate, Launch
from kernelopt_bot.playbook.emit import Function, candidate, plain, runtime_parameters, understood
from kernelopt_bot.playbook.kernel_source import KernelSource, NotUnderstood, name_of
from kernelopt_bot.playbook.masks import without
from kernelopt_bot.playbook.rewrite import reads, statements
from kernelopt_bot.playbook.syntax import copied
from kernelopt_bot.playbook.technique import Expectation, Site

_SHORTEST = 512
_SHAPES = ((2048, 4, 3), (4096, 8, 3), (4096, 8, 1), (8192, 16, 1), (2048, 4, 1), (16384, 32, 1), (1024, 2, 3))
"""(block, warps, stages): 16 elements a thread, the next blocks fetched asynchronously where there are stages."""
_ONE_BLOCK = 16384
"""Longest row that is scanned at once: 16 elements for each of 1024 threads."""
_OPERATORS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("0", "tl.sum({value}, 1)[:, None]"), ast.Mult: ("1", "triton_helpers.prod({value}, 1)[:, None]")}
"""Operator -> neutral element, and the total of a block."""


@dataclass(frozen=True)
class Scan:
    """What a looped scan is made of, by the names of the kernel's variables."""

    loop: int
    """Position of the loop in the kernel's body."""
    value: str
    scanned: str
    carry: str
    result: str
    dtype: str
    operator: type[ast.operator]
    replaced: frozenset[str]
    """Names whose statements in the loop make the carry."""


class CarriedScan:
    name = "carried_scan"
    citation = ("Blelloch, Prefix Sums and Their Applications, CMU-CS-90-190, 1990 (reduce beside scan); Merrill and "
                "Garland, Single-pass Parallel Prefix Scan with Decoupled Look-back, NVIDIA NVR-2016-002")

    def applies(self, site: Site) -> Expectation | None:
        try:
            scan_of(understood(site))
        except NotUnderstood:
            return None
        length = understood(site).constants["r0_numel"]
        if length < _SHORTEST or site.headroom < 1.02:
            return None
        return Expectation(min(1.3, site.headroom), f"a scan over rows of {length} in one pass, carried by its totals")

    def propose(self, site: Site) -> Iterator[KernelCandidate]:
        try:
            source = understood(site)
            scan = scan_of(source)
            length, parameters = source.constants["r0_numel"], runtime_parameters(source)
            for block, warps, stages in _shapes(length):
                function = Function(source.name, parameters, ("R0_BLOCK",), carried(source, scan, block, stages))
                rows = str(source.constants.get("xnumel", "xnumel"))
                launch = Launch(plain(source.name), (rows,), parameters, {"R0_BLOCK": block}, warps, stages)
                how = "in one block" if block >= length else f"in blocks of {block}"
                yield candidate(site, self.name, [function], [launch], f"rows of {length} {how}, {warps} warps")
        except NotUnderstood:
            return


def _shapes(length: int) -> list[tuple[int, int, int]]:
    """(block, warps, stages), most promising first: the row at once where it fits, else without a ragged end first."""
    whole = 1 << (length - 1).bit_length()
    at_once = [(whole, max(1, min(32, whole // (32 * n))), 1) for n in (16, 8, 32)] if whole <= _ONE_BLOCK else []
    looped = [s for s in _SHAPES if s[0] < length]
    looped.sort(key=lambda s: length % s[0] != 0 and length % 1024 == 0)
    return [*at_once, *looped]


def scan_of(source: KernelSource) -> Scan:
    """The one scan of a looped reduction over one static dimension. Raises NotUnderstood."""
    if (source.heuristic != "reduction" or source.dimensions != ("x", "r0_") or len(source.loops) != 1
            or source.tunable != ("XBLOCK", "R0_BLOCK") or "r0_numel" not in source.constants):
        raise NotUnderstood("no looped kernel over static rows")
    position = next(n for n, s in enumerate(source.body) if isinstance(s, ast.For))
    loop = source.body[position]
    assert isinstance(loop, ast.For)
    if ast.unparse(loop.iter) not in ("tl.range(0, r0_numel, R0_BLOCK)", "range(0, r0_numel, R0_BLOCK)"):
        raise NotUnderstood(f"a loop over {ast.unparse(loop.iter)}")
    found = [s for s in loop.body if isinstance(s, ast.Assign) and "tl.associative_scan(" in ast.unparse(s)]
    if len(found) != 1:
        raise NotUnderstood(f"{len(found)} scans")
    match found[0]:
        case ast.Assign(targets=[ast.Tuple(elts=[ast.Name(id=scanned)])],
                        value=ast.Call(args=[ast.Tuple(elts=[ast.Name(id=value)]), ast.Constant(value=1),
                                             ast.Name(id=helper)], keywords=[])):
            pass
        case _:
            raise NotUnderstood("a scan of several values")
    operator = _operator(source, helper)
    texts = {name_of(s): ast.unparse(s.value) for s in loop.body if isinstance(s, ast.Assign) and name_of(s)}
    sign = "+" if operator is ast.Add else "*"
    last = _one(texts, f"triton_helpers.select_one({scanned}, rbase == RBLOCK - 1, dim=-1, keep_dims=True)")
    carries = [name_of(s) for s in source.body[:position] if name_of(s) in texts]
    if len(carries) != 1:
        raise NotUnderstood("another value is carried round the loop")
    carry = carries[0]
    onward, sum_ = _one(texts, f"{carry} {sign} {last}"), _one(texts, f"{carry} {sign} {scanned}")
    result = _one(texts, f"tl.where(roffset > 0, {sum_}, {scanned})")
    if texts[carry] != f"tl.where(roffset > 0, {onward}, {last})":
        raise NotUnderstood(f"the carry is {texts[carry]}")
    replaced = frozenset({last, onward, sum_, carry, result})
    rest = [s for s in loop.body if name_of(s) not in replaced and s is not found[0]]
    if any(reads(s) & (replaced - {result} | {scanned}) for s in [*rest, *source.body[position + 1:]]):
        raise NotUnderstood("the scan's parts are used elsewhere")
    if any("roffset" in reads(s) or {"rbase", "r0_base"} & reads(s) - _index(s) for s in rest):
        raise NotUnderstood("the place of a block matters")
    start = next(s for s in source.body if name_of(s) == carry)
    assert isinstance(start, ast.Assign)
    match start.value:
        case ast.Call(func=function, args=[_, _, type_]) if ast.unparse(function) == "tl.full":
            return Scan(position, value, scanned, carry, result, ast.unparse(type_), operator, replaced)
    raise NotUnderstood(f"the carry starts as {ast.unparse(start.value)}")


def _index(statement: ast.stmt) -> set[str]:
    return {"r0_base", "rbase"} if name_of(statement) in ("r0_index", "rindex") else set()


def _one(texts: dict[str, str], wanted: str) -> str:
    names = [name for name, text in texts.items() if text == wanted]
    if len(names) != 1:
        raise NotUnderstood(f"{len(names)} values are {wanted}")
    return names[0]


def _operator(source: KernelSource, helper: str) -> type[ast.operator]:
    """The operator of a combine function `return a + b` or `a * b`."""
    function = next((h for h in source.helpers if h.name == helper), None)
    body = function.body if function is not None else []
    arguments = [a.arg for a in function.args.args] if function is not None else []
    match body:
        case [ast.Assign(value=ast.BinOp(left=ast.Name(id=left), op=op, right=ast.Name(id=right))),
              ast.Return(value=ast.Name())] if [left, right] == arguments and type(op) in _OPERATORS:
            return type(op)
    raise NotUnderstood(f"a scan by {helper}")


def carried(source: KernelSource, scan: Scan, block: int, stages: int) -> list[ast.stmt]:
    """The body with a program for each row, in blocks of `block` elements."""
    length = source.constants["r0_numel"]
    neutral, total = _OPERATORS[scan.operator]
    sign = "+" if scan.operator is ast.Add else "*"
    loop = copied(source.body[scan.loop])
    assert isinstance(loop, ast.For)
    whole = block >= length
    inside: list[ast.stmt] = []
    for statement in loop.body:
        name = name_of(statement)
        if name == scan.result:
            before = "" if whole else f"{scan.carry} {sign} "
            inside += statements(f"{name} = {before}{scan.scanned}")
        elif name == scan.carry and not whole:
            inside += statements(f"{name} = {name} {sign} {total.format(value=scan.value)}")
        elif name not in scan.replaced:
            inside.append(statement)
    body: list[ast.stmt] = statements("XBLOCK: tl.constexpr = 1")
    for statement in source.body[:scan.loop]:
        if name_of(statement) == scan.carry:
            body += statements(f"{scan.carry} = tl.full([XBLOCK, 1], {neutral}, {scan.dtype})") if not whole else []
        else:
            body.append(copied(statement))
    if whole:
        body += [*statements(f"{ast.unparse(loop.target)} = 0"), *inside]
    else:
        ahead = f", num_stages={stages}" if stages > 1 else ""
        loop.iter = ast.parse(f"tl.range(0, {length}, R0_BLOCK{ahead})", mode="eval").body
        loop.body = inside
        body.append(loop)
    body += [copied(s) for s in source.body[scan.loop + 1:]]
    return without(body, {"xmask"} if length % block else {"xmask", "r0_mask"})


TECHNIQUE = CarriedScan()
