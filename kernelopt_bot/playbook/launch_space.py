"""The launch configurations worth trying for one kernel: derived from the kernel, not from a list."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from kernelopt_bot.playbook.kernel_source import BLOCKS, Access, KernelSource, name_of, walk
from kernelopt_bot.playbook.technique import Site, width

WARP = 32
REGISTERS_PER_THREAD = 128
"""Budget of 32-bit registers for loaded values: half of the 255 that a thread can have (CUDA C++ Programming
Guide, technical specifications), the rest being addresses, masks and temporaries."""
_BLOCK_LIMIT: Mapping[str, int] = {"x": 4096, "y": 1024, "z": 1024, "r0_": 65536, "r1_": 32768}
"""Largest blocks that Inductor itself uses (`TRITON_MAX_BLOCK` of torch._inductor.runtime.hints)."""
_LONG_ROW = 1024
_TILE_LIMIT = 1 << 17
"""Largest tile in elements: 128 values for each of 1024 threads."""


@dataclass(frozen=True)
class LaunchConfig:
    blocks: Mapping[str, int]
    num_warps: int
    num_stages: int = 1

    @property
    def key(self) -> tuple[tuple[tuple[str, int], ...], int, int]:
        return tuple(sorted(self.blocks.items())), self.num_warps, self.num_stages


@dataclass(frozen=True)
class LaunchSpace:
    """Axes of powers of two, and which combinations are legal."""

    extents: Mapping[str, int]
    """Dimension prefix -> extent in elements."""
    blocks: Mapping[str, tuple[int, ...]]
    """`XBLOCK` -> values. Only what the kernel leaves open."""
    fixed: Mapping[str, int]
    warps: tuple[int, ...]
    stages: tuple[int, ...]
    registers_per_element: float
    """32-bit registers that the values loaded for one element of the tile take."""
    multiprocessors: int
    contiguous: str
    """Dimension along which most bytes lie next to each other in memory."""

    def tile(self, config: LaunchConfig) -> int:
        return math.prod(config.blocks.values()) * math.prod(self.fixed.values())

    def programs(self, config: LaunchConfig) -> int:
        blocks = {**self.fixed, **config.blocks}
        return math.prod(-(-n // blocks.get(BLOCKS[p], 1)) for p, n in self.extents.items() if not p.startswith("r"))

    def legal(self, config: LaunchConfig) -> bool:
        if any(config.blocks.get(b) not in values for b, values in self.blocks.items()):
            return False
        if config.num_warps not in self.warps or config.num_stages not in self.stages:
            return False
        tile, threads = self.tile(config), config.num_warps * WARP
        registers = max(1.0, tile / threads) * self.registers_per_element
        enough = self.programs(config) >= min(self.multiprocessors, self.programs(self._smallest()))
        return tile <= _TILE_LIMIT and registers <= REGISTERS_PER_THREAD and tile * 4 >= threads and enough

    def _smallest(self) -> LaunchConfig:
        return LaunchConfig({b: values[0] for b, values in self.blocks.items()}, self.warps[0])

    def all(self) -> Iterator[LaunchConfig]:
        """Every legal configuration, best score first."""
        points: list[dict[str, int]] = [{}]
        for block, values in self.blocks.items():
            points = [{**p, block: v} for p in points for v in values]
        legal = [c for p in points for w in self.warps for s in self.stages if self.legal(c := LaunchConfig(p, w, s))]
        yield from sorted(legal, key=lambda c: (self.penalty(c), c.key))

    def neighbours(self, config: LaunchConfig) -> tuple[LaunchConfig, ...]:
        """Legal configurations one step away along one axis, or along two that keep the tile or its share a thread."""
        found = []
        for block, values in self.blocks.items():
            for step in (-1, 1):
                moved = _shift(values, config.blocks[block], step)
                if moved is None:
                    continue
                one = replace(config, blocks={**config.blocks, block: moved})
                found.append(one)
                if (w := _shift(self.warps, config.num_warps, step)) is not None:
                    found.append(replace(one, num_warps=w))
                for other, others in self.blocks.items():
                    if other != block and (back := _shift(others, config.blocks[other], -step)) is not None:
                        found.append(replace(one, blocks={**one.blocks, other: back}))
        found += [replace(config, num_warps=w) for s in (-1, 1) if (w := _shift(self.warps, config.num_warps, s))]
        found += [replace(config, num_stages=w) for s in (-1, 1) if (w := _shift(self.stages, config.num_stages, s))]
        unique = {c.key: c for c in found if self.legal(c)}
        return tuple(sorted(unique.values(), key=lambda c: (self.penalty(c), c.key)))

    def penalty(self, config: LaunchConfig) -> float:
        """How far a configuration is from what usually saturates memory (lower is better): 4 to 16 registers of
        loaded data in flight a thread, whole 128-byte lines along the contiguous dimension, 128 to 512 threads,
        at least two programs for each multiprocessor, few rows at once where rows are long (a later pass then finds
        them in L2)."""
        blocks = {**self.fixed, **config.blocks}
        threads = config.num_warps * WARP
        in_flight = max(1.0, self.tile(config) / threads) * self.registers_per_element
        line = blocks.get(BLOCKS[self.contiguous], 1)
        waves = self.programs(config) / self.multiprocessors
        long = self.contiguous.startswith("r") and self.extents[self.contiguous] >= _LONG_ROW
        rows = math.prod(b for name, b in blocks.items() if not name.startswith("R")) if long else 1
        return (
            _distance(in_flight, 4, 16)
            + 2.0 * _distance(min(line, self.extents[self.contiguous]), 32, 4096)
            + 0.5 * _distance(threads, 128, 512)
            + 0.5 * _distance(waves, 2, math.inf)
            + 0.25 * (config.num_stages - 1)
            + 0.5 * math.log2(rows)
        )


def derive(site: Site) -> LaunchSpace | None:
    """The kernel's space; None where it is not understood or an extent is unknown."""
    source = site.source
    if source is None or not source.dimensions:
        return None
    extents = {p: n for p in source.dimensions if (n := site.numel(p)) is not None}
    if set(extents) != set(source.dimensions) or min(extents.values()) < 1:
        return None
    blocks = {}
    for prefix in source.dimensions:
        block = BLOCKS[prefix]
        if block not in source.tunable:
            continue
        top = min(_BLOCK_LIMIT[prefix], 1 << (extents[prefix] - 1).bit_length())
        values = [1 << i for i in range(top.bit_length()) if 1 << i <= top]
        if not source.masked(prefix):
            values = [v for v in values if extents[prefix] % v == 0]
        blocks[block] = tuple(values)
    if set(blocks) != set(source.tunable) or not all(blocks.values()):
        return None
    wide = [a for a in source.loads if not _broadcast(site, source, a)]
    registers = sum(max(1.0, width(source.signature.get(a.pointer, "")) / 4) for a in _once(wide))
    return LaunchSpace(
        extents=extents, blocks=blocks, fixed=dict(source.fixed), warps=(1, 2, 4, 8, 16, 32),
        stages=(1, 2, 3) if source.loops else (1,), registers_per_element=max(1.0, registers),
        multiprocessors=max(1, site.roofs.multiprocessors), contiguous=contiguous(source),
    )


def contiguous(source: KernelSource) -> str:
    """Dimension along which neighbouring elements of most accesses lie next to each other. Accesses along fewer
    dimensions than others move fewer elements and do not count."""
    votes: dict[str, int] = {p: 0 for p in source.dimensions}
    spans = [len(_spanned(source, a)) for a in source.accesses]
    for access, span in zip(source.accesses, spans, strict=True):
        for prefix in unit_stride(source, access) if span == max(spans) else ():
            votes[prefix] += 1
    return max(votes, key=lambda p: (votes[p], -source.dimensions.index(p)))


def unit_stride(source: KernelSource, access: Access) -> set[str]:
    """Dimensions whose fastest index variable enters the access's index with coefficient one."""
    definitions = {name_of(s): s.value for s in walk(source.body) if isinstance(s, ast.Assign)}
    terms = [access.index]
    found = set()
    while terms:
        term = terms.pop()
        if isinstance(term, ast.BinOp) and isinstance(term.op, ast.Add):
            terms += [term.left, term.right]
        elif isinstance(term, ast.Name):
            value = definitions.get(term.id)
            for prefix in source.dimensions:
                if term.id == f"{prefix}index" or _fastest(value, f"{prefix}index"):
                    found.add(prefix)
    return found


def _spanned(source: KernelSource, access: Access) -> set[str]:
    """Dimensions that the access's index depends on."""
    definitions = {name_of(s): s.value for s in walk(source.body) if isinstance(s, ast.Assign)}
    names = {n.id for n in ast.walk(access.index) if isinstance(n, ast.Name)}
    bases = names | {n.id for name in names if name in definitions for n in ast.walk(definitions[name])
                     if isinstance(n, ast.Name)}
    return {p for p in source.dimensions if f"{p}index" in bases}


def _fastest(value: ast.expr | None, index: str) -> bool:
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mod):
        value = value.left
    return isinstance(value, ast.Name) and value.id == index


def _broadcast(site: Site, source: KernelSource, access: Access) -> bool:
    """True if the tensor has fewer elements than the iteration space, so that its values are shared by lanes."""
    numel = site.tensor_numel(access.pointer)
    return 0 < numel < math.prod(site.numel(p) or 1 for p in source.dimensions)


def _once(accesses: list[Access]) -> list[Access]:
    """Loads of the most loaded loop (or of the straight line): what is in flight at one time."""
    groups: dict[int | None, list[Access]] = {}
    for access in accesses:
        groups.setdefault(access.loop, []).append(access)
    return max(groups.values(), key=len, default=[])


def _shift(values: tuple[int, ...], value: int, step: int) -> int | None:
    position = values.index(value) + step if value in values else -1
    return values[position] if 0 <= position < len(values) else None


def _distance(value: float, low: float, high: float) -> float:
    """Octaves outside [low, high]."""
    if value < low:
        return math.log2(low / value)
    return math.log2(value / high) if value > high else 0.0
