"""A candidate's programs in other orders: its result must be the same in each.

CUDA runs the blocks of a launch in any order, in parallel or in series, and requires kernels to be right in all of
them (CUDA C++ Programming Guide, "Thread Hierarchy"). A GPU that happens to start all blocks at once, and the
interpreter, which takes one after the other, each show one order only: two programs that both update an element in
place look right on the first, a program that repairs what its neighbour spoiled looks right on the second.

On a GPU every launch is split in two by one bit of the linear program number, one half after the other, and the other
way round. Any two programs differ in some bit, so that over all bits each pair runs in both orders, in 2 log2(programs)
runs. The interpreter is serial already: one run with all grids reversed gives every pair its other order.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from kernelopt_bot.contract.candidate import Plan, Scratch
from kernelopt_bot.sandbox.worker import interpret
from kernelopt_bot.sandbox.worker.launchers import Candidate, Replaced, Runner

_GUARD = """
{0}_bit = tl.load({0})
{0}_half = tl.load({0} + 1)
{0}_program = tl.program_id(0) + tl.num_programs(0) * (
    tl.program_id(1) + tl.num_programs(1) * tl.program_id(2).to(tl.int64))
if (({0}_program >> {0}_bit) & 1) != {0}_half:
    return
"""


def halves(source: str, plan: Plan) -> tuple[str, Plan, str]:
    """(source, plan, name of an int32 scratch buffer of two elements): the candidate with launches of which only the
    programs run whose number has, at the bit that the buffer's first element says, its second element."""
    stem, names = "turn", [*(p.name for p in plan.parameters), *(s.name for s in plan.scratch)]
    while stem in source or any(stem in name for name in names):
        stem += "s"
    module = ast.parse(source)
    functions = {n.name: n for n in module.body if isinstance(n, ast.FunctionDef)}
    launched = sorted({launch.function for launch in plan.launches})
    for name in launched:
        half = copy.deepcopy(functions[name])
        half.name = f"{stem}_{name}"
        half.args.args.insert(0, ast.arg(stem))
        half.body[:0] = ast.parse(_GUARD.format(stem)).body
        module.body.append(half)
    launches = tuple(
        dataclasses.replace(launch, function=f"{stem}_{launch.function}", arguments=(stem, *launch.arguments))
        for launch in plan.launches)
    split = dataclasses.replace(plan, scratch=(*plan.scratch, Scratch(stem, "2", "int32", True)), launches=launches)
    return ast.unparse(ast.fix_missing_locations(module)), split, stem


class _Halves(Candidate):
    """Every launch twice, each time one half of its programs."""

    def __init__(self, source: str, plan: Plan, baseline: Replaced, integers: Mapping[str, Any],
                 device: torch.device) -> None:
        split, split_plan, self.turn = halves(source, plan)
        super().__init__(split, split_plan, baseline, integers, device)
        self.bit, self.first = 0, 0

    def __call__(self, arguments: Mapping[str, Any]) -> None:
        known = {**{p.name: arguments[p.name] for p in self.plan.parameters}, **self._allocate()}
        for launch, kernel in zip(self.launches, self.kernels, strict=True):
            for half in (self.first, 1 - self.first):
                known[self.turn].copy_(torch.tensor([self.bit, half], dtype=torch.int32))
                kernel.launch([known[a] if isinstance(a, str) else a for a in launch.arguments])


class _Reversed:
    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate

    def __call__(self, arguments: Mapping[str, Any]) -> None:
        with interpret.reversed_order():
            self.candidate(arguments)


def orders(candidate: Candidate, source: str, baseline: Replaced, integers: Mapping[str, Any],
           device: torch.device) -> Iterator[tuple[str, Runner]]:
    """Each further order in words, and what runs the candidate in it. Nothing for launches of one program.

    Raises WorkerFault compile_failed if the split kernels do not compile (GPU only).
    """
    programs = max(math.prod(launch.grid) for launch in candidate.launches)
    if programs == 1:
        return
    if baseline.lane == "interpret":
        yield "last program first", _Reversed(candidate)
        return
    split = _Halves(source, candidate.plan, baseline, integers, device)
    for split.bit in range((programs - 1).bit_length()):
        for split.first in (0, 1):
            yield f"programs with bit {split.bit} {'clear' if split.first == 0 else 'set'} first", split
