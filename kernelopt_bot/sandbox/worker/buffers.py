"""The arguments of a step, and guarded memory for them.

A `Slot` is one tensor argument. An `Arena` holds a fresh copy of every storage between two guard bands, with the same
alignment modulo 256 bytes and the same strides, aliasing and offsets as in the wrapper; `Contents` is what of it is
kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from kernelopt_bot.sandbox.worker import tensors
from kernelopt_bot.sandbox.worker.protocol import WorkerFault

Scalar = int | float | bool | str | None
GUARD_BYTE = 0xFF
"""All ones: nan in every floating type, -1 in integers."""
GUARD_WORD = -1
"""Eight of them as int64."""
LEAST_GUARD, MOST_GUARD = 1 << 16, 1 << 24
"""Bytes of one guard band: as large as the storage within these bounds, so that a lost mask of a whole row shows."""
ALIGNMENT = 256
"""Bytes; what the CUDA caching allocator aligns to is a multiple of it."""
WORD = 8
CHECKSUM_CHUNK = 1 << 21
"""Words summed at a time."""


@dataclass(frozen=True)
class Slot:
    """One tensor argument: dtype, shape and stride in elements, offset in elements into its storage."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    storage: str
    """Arguments with the same text share memory."""
    stats: Mapping[str, Any] | None = None
    saved: Mapping[str, Any] | None = None
    """TensorRef of the recorded values, None where only the statistics are known."""
    loaded: bool = True
    stored: bool = False
    changed: bool = False
    """Whether the baseline stores to it though its contents afterwards do not count."""

    @property
    def extent(self) -> int:
        """Elements from the first to behind the last."""
        if 0 in self.shape:
            return 0
        return sum((n - 1) * s for n, s in zip(self.shape, self.stride, strict=True)) + 1

    def recorded(self, scratch: tensors.Scratch) -> Tensor:
        """The recorded values on the CPU, or an empty-handed tensor on `meta` of the same layout.

        Raises WorkerFault bad_request if the file does not fit.
        """
        if self.saved is None:
            return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device="meta")
        return tensors.load(scratch, self.saved)


def parse_argument(argument: Any, name: str) -> Slot | Scalar:
    """One element of `arguments`: TensorRef, {meta, stats}, CallJson's {tensor, value, stats, saved}, or a plain value.

    Arguments alias each other only where they carry an equal `storage` text: equal files are no sign of it, since
    equal contents share a file. Raises WorkerFault bad_request.
    """
    if not isinstance(argument, dict):
        return cast(Scalar, argument)
    if "tensor" in argument and argument["tensor"] is None:
        return cast(Scalar, argument.get("value"))
    stats = argument.get("stats")
    saved = argument.get("saved") or (argument if "file" in argument else None)
    meta: Any = saved or argument.get("meta") or argument.get("tensor")
    try:
        dtype = getattr(torch, meta["dtype"])
        return Slot(
            name=name, dtype=dtype, shape=tuple(meta["shape"]), stride=tuple(meta["stride"]),
            offset=int(meta["offset"]), storage=str(argument.get("storage") or f"alone:{name}"),
            stats=stats, saved=saved,
        )
    except (TypeError, KeyError, AttributeError) as e:
        raise WorkerFault("bad_request", f"argument {name} is not understood: {e}") from e


@dataclass(frozen=True)
class Block:
    """One storage's memory in bytes, the payload from `start` on; `low` is where the payload begins in the wrapper's
    own storage."""

    memory: Tensor
    start: int
    size: int
    low: int


NO_BLOCKS: Mapping[str, Block] = {}


def spans(slots: Sequence[Slot], promoted: bool = False) -> dict[str, tuple[int, int]]:
    """Storage -> (first byte, bytes) that its arguments cover; floating types in float64 where `promoted`.

    Raises ValueError where `promoted` and a storage is seen under two types.
    """
    groups: dict[str, list[Slot]] = {}
    for slot in slots:
        groups.setdefault(slot.storage, []).append(slot)
    found = {}
    for storage, group in groups.items():
        if promoted and len({s.dtype for s in group}) > 1:
            raise ValueError("two arguments see one buffer under different types")
        low = min(s.offset * _dtype(s, promoted).itemsize for s in group)
        high = max((s.offset + s.extent) * _dtype(s, promoted).itemsize for s in group)
        found[storage] = low, max(high - low, 0)
    return found


def _dtype(slot: Slot, promoted: bool) -> torch.dtype:
    return torch.float64 if promoted and slot.dtype.is_floating_point else slot.dtype


def _guard(size: int) -> int:
    return -(-min(max(LEAST_GUARD, size), MOST_GUARD) // ALIGNMENT) * ALIGNMENT


def read_only(slots: Sequence[Slot]) -> frozenset[str]:
    """Storages that are loaded from and never stored to."""
    return frozenset({s.storage for s in slots if s.loaded} - {s.storage for s in slots if s.stored or s.changed})


def arena_bytes(slots: Sequence[Slot], *, promoted: bool = False, bare: bool = False) -> int:
    """What an `Arena` of these takes. Raises ValueError as `spans`."""
    sizes = [size for _, size in spans(slots, promoted).values()]
    return sum(size + 2 * ALIGNMENT + (0 if bare else 2 * _guard(size)) for size in sizes)


@dataclass(frozen=True)
class Contents:
    """The bytes of storages, seen through slots."""

    blocks: Mapping[str, Block]
    promoted: bool = False

    def view(self, slot: Slot) -> Tensor:
        block, dtype = self.blocks[slot.storage], _dtype(slot, self.promoted)
        begin = block.start + slot.offset * dtype.itemsize - block.low
        flat = block.memory[begin : begin + slot.extent * dtype.itemsize].view(dtype)
        return flat.as_strided(slot.shape, slot.stride)

    def payload(self, storage: str) -> Tensor:
        """The storage's bytes, without guards."""
        block = self.blocks[storage]
        return block.memory[block.start : block.start + block.size]

    def kept(self, storages: Iterable[str], home: torch.device) -> Contents:
        """These storages alone: where they lie if that is `home`, else a copy there without guards."""
        kept = {}
        for storage in storages:
            block = self.blocks[storage]
            if block.memory.device != home:
                memory = self.payload(storage).to(home)
                block = Block(memory, 0, memory.numel(), block.low)
            kept[storage] = block
        return Contents(kept, self.promoted)

    def moved(self, device: torch.device) -> Contents:
        """A copy of all of it on `device`, guards included, one allocation a storage."""
        return Contents({n: Block(b.memory.to(device, copy=True), b.start, b.size, b.low)
                         for n, b in self.blocks.items()}, self.promoted)

    def nbytes(self) -> int:
        return sum(block.memory.numel() for block in self.blocks.values())


class Arena(Contents):
    """Fresh memory for `slots` on `device`, every byte of it GUARD_BYTE; floating tensors in float64 where `promoted`.

    `bare` leaves the guard bands out and ends each allocation with the storage's last byte: for tools that know where
    an allocation ends. `shared`: blocks of an earlier arena to be seen instead of fresh ones. Raises WorkerFault
    out_of_memory or, where `promoted`, ValueError as `spans`.
    """

    def __init__(
        self, slots: Sequence[Slot], device: torch.device, promoted: bool = False, *, bare: bool = False,
        shared: Mapping[str, Block] = NO_BLOCKS,
    ) -> None:
        super().__init__({storage: shared.get(storage) or _allocate(low, size, device, bare)
                          for storage, (low, size) in spans(slots, promoted).items()}, promoted)

    def intact(self) -> bool:
        """Whether both guard bands of every storage are as they were."""
        for block in self.blocks.values():
            if not _untouched(block.memory, 0, block.start):
                return False
            if not _untouched(block.memory, block.start + block.size, block.memory.numel()):
                return False
        return True

    def checksum(self, storage: str, key: int) -> tuple[int, int]:
        """Two sums modulo 2**64 of a storage's 8-byte words, the second with odd weights by place and secret `key`.

        One changed word changes both, since an odd weight has an inverse modulo 2**64. Where the storage does not
        begin or end with a word, up to 7 bytes of its guards count too.
        """
        block = self.blocks[storage]
        begin, end = block.start // WORD * WORD, -(-(block.start + block.size) // WORD) * WORD
        words = block.memory[begin:end].view(torch.int64)
        sums = torch.zeros(2, dtype=torch.int64, device=words.device)
        if words.numel():
            odd = key | 1
            weights = torch.arange(min(words.numel(), CHECKSUM_CHUNK), device=words.device) * (2 * odd) + 1
        for first in range(0, words.numel(), CHECKSUM_CHUNK):
            part = words[first : first + CHECKSUM_CHUNK]
            shift = (first * 2 * odd + (1 << 63)) % (1 << 64) - (1 << 63)
            sums[0] += part.sum()
            sums[1] += (part * (weights[: part.numel()] + shift)).sum()
        plain, weighted = sums.tolist()
        return plain, weighted


def _untouched(memory: Tensor, begin: int, end: int) -> bool:
    """Whether bytes `begin` to `end` are all GUARD_BYTE. By words: an eighth of the elements, which torch needs no
    threads for where bands are small."""
    first, last = -(-begin // WORD) * WORD, end // WORD * WORD
    if first >= last:
        return bool((memory[begin:end] == GUARD_BYTE).all())
    edges = torch.cat((memory[begin:first], memory[last:end]))
    return bool((memory[first:last].view(torch.int64) == GUARD_WORD).all()) and bool((edges == GUARD_BYTE).all())


def _allocate(low: int, size: int, device: torch.device, bare: bool) -> Block:
    """[guard | lead-in | payload | guard]; the payload's address modulo ALIGNMENT is that of the wrapper's."""
    guard = 0 if bare else _guard(size)
    start = guard + low % ALIGNMENT
    total = start + size if bare else -(-(2 * guard + ALIGNMENT + size) // 16) * 16
    # cudaMalloc's addresses are aligned, so that nothing need lie before or behind
    spare = 0 if bare and device.type == "cuda" else ALIGNMENT
    try:
        if (total + spare) % WORD:
            memory = torch.full((total + spare,), GUARD_BYTE, dtype=torch.uint8, device=device)
        else:
            memory = torch.full(((total + spare) // WORD,), GUARD_WORD, dtype=torch.int64, device=device)
            memory = memory.view(torch.uint8)
    except (torch.OutOfMemoryError, RuntimeError) as e:
        if "memory" not in str(e):
            raise
        raise WorkerFault("out_of_memory", f"{total} bytes for a guarded buffer are not free") from e
    shift = -memory.data_ptr() % ALIGNMENT if spare else 0
    return Block(memory[shift : shift + total], start, size, low)
