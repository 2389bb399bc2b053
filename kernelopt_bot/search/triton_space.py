"""What a user's Triton kernel may be launched with instead: the neighbourhood of its own configurations."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kernelopt_bot.contract.candidate import Scalar
from kernelopt_bot.contract.plan import STAGES
from kernelopt_bot.search.triton_calls import TritonConfig
from kernelopt_bot.targets.triton_edit import Handle

MOST = 24
"""Configurations tried: each is compiled for every distinct launch."""
WARPS = (1, 2, 4, 8, 16)
BLOCKS = (16, 1 << 15)
"""Smallest and largest constexpr that is a power of two and taken for the extent of a tile."""


def space(own: Sequence[TritonConfig], handle: Handle, kernel: ast.FunctionDef) -> list[TritonConfig]:
    """Configurations beside `own`, those that change one thing first; at most `MOST`."""
    loops = any(isinstance(n, ast.For | ast.While) for n in ast.walk(kernel))
    seen = set(own)
    found: list[TritonConfig] = []
    for depth in (1, 2):
        for config in own:
            for other in _moves(config, handle, loops, depth):
                if other not in seen and len(found) < MOST:
                    seen.add(other)
                    found.append(other)
    return found


def _moves(config: TritonConfig, handle: Handle, loops: bool, depth: int) -> Iterator[TritonConfig]:
    if depth > 1:
        for first in _moves(config, handle, loops, 1):
            yield from _moves(first, handle, loops, 1)
        return
    if "num_warps" in handle.options:
        for warps in (config.num_warps * 2, config.num_warps // 2):
            if warps in WARPS:
                yield replace(config, num_warps=warps)
    for at, (name, value) in enumerate(config.constexprs):
        if name in handle.constexprs and tile(value):
            for new in (int(value) * 2, int(value) // 2):
                if BLOCKS[0] <= new <= BLOCKS[1]:
                    yield replace(config, constexprs=(*config.constexprs[:at], (name, new),
                                                      *config.constexprs[at + 1:]))
    if loops and "num_stages" in handle.options:
        for stages in (config.num_stages + 1, config.num_stages - 1):
            if stages in STAGES:
                yield replace(config, num_stages=stages)


def tile(value: Scalar) -> bool:
    return type(value) is int and BLOCKS[0] <= value <= BLOCKS[1] and value & (value - 1) == 0
