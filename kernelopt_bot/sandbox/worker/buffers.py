"""The arguments of a step, and guarded memory for them.

A `Slot` is one tensor argument. An `Arena` holds a fresh copy of every storage between two guard bands, with the same
alignment modulo 256 bytes and the same strides, aliasing and offsets as in the wrapper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor

from kernelopt_bot.sandbox.worker import tensors
from kernelopt_bot.sandbox.worker.protocol import WorkerFault

Scalar = int | float | bool | str | None
GUARD_BYTE = 0xFF
"""All ones: nan in every floating type, -1 in integers."""
LEAST_GUARD, MOST_GUARD = 1 << 16, 1 << 24
"""Bytes of one guard band: as large as the storage within these bounds, so that a lost mask of a whole row shows."""
ALIGNMENT = 256
"""Bytes; what the CUDA caching allocator aligns to is a multiple of it."""
CHECKSUM_CHUNK = 1 << 24


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


@dataclass
class _Block:
    """One storage's memory: [guard | lead-in | payload | guard] in bytes; `low` is where the payload begins in the
    wrapper's own storage."""

    memory: Tensor
    start: int
    size: int
    low: int


@dataclass
class Arena:
    """Guarded memory for `slots` on `device`; floating tensors in float64 where `promoted`.

    Raises WorkerFault out_of_memory or, where `promoted`, ValueError for a storage seen under two types.
    """

    slots: Sequence[Slot]
    device: torch.device
    promoted: bool = False
    blocks: dict[str, _Block] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        groups: dict[str, list[Slot]] = {}
        for slot in self.slots:
            groups.setdefault(slot.storage, []).append(slot)
        for storage, group in groups.items():
            if self.promoted and len({s.dtype for s in group}) > 1:
                raise ValueError("two arguments see one buffer under different types")
            low = min(s.offset * self._dtype(s).itemsize for s in group)
            high = max((s.offset + s.extent) * self._dtype(s).itemsize for s in group)
            self.blocks[storage] = self._allocate(low, max(high - low, 0))

    def _dtype(self, slot: Slot) -> torch.dtype:
        return torch.float64 if self.promoted and slot.dtype.is_floating_point else slot.dtype

    def _allocate(self, low: int, size: int) -> _Block:
        guard = min(max(LEAST_GUARD, size), MOST_GUARD)
        guard = -(-guard // ALIGNMENT) * ALIGNMENT
        total = -(-(2 * guard + ALIGNMENT + size) // 16) * 16
        try:
            memory = torch.full((total + ALIGNMENT,), GUARD_BYTE, dtype=torch.uint8, device=self.device)
        except (torch.OutOfMemoryError, RuntimeError) as e:
            if "memory" not in str(e):
                raise
            raise WorkerFault("out_of_memory", f"{total} bytes for a guarded buffer are not free") from e
        shift = -memory.data_ptr() % ALIGNMENT
        return _Block(memory[shift : shift + total], guard + low % ALIGNMENT, size, low)

    def view(self, slot: Slot) -> Tensor:
        block, dtype = self.blocks[slot.storage], self._dtype(slot)
        begin = block.start + slot.offset * dtype.itemsize - block.low
        flat = block.memory[begin : begin + slot.extent * dtype.itemsize].view(dtype)
        return flat.as_strided(slot.shape, slot.stride)

    def payload(self, storage: str) -> Tensor:
        """The storage's bytes between the guards."""
        block = self.blocks[storage]
        return block.memory[block.start : block.start + block.size]

    def intact(self) -> bool:
        """Whether both guard bands of every storage are as they were."""
        for block in self.blocks.values():
            before, after = block.memory[: block.start], block.memory[block.start + block.size :]
            if not (bool((before == GUARD_BYTE).all()) and bool((after == GUARD_BYTE).all())):
                return False
        return True

    def checksum(self, storage: str, key: int) -> tuple[int, int]:
        """Two sums of a storage's bytes, the second weighted by place and by the secret `key`."""
        data, plain, weighted = self.payload(storage), 0, 0
        for begin in range(0, data.numel(), CHECKSUM_CHUNK):
            part = data[begin : begin + CHECKSUM_CHUNK].to(torch.int64)
            place = torch.arange(begin, begin + part.numel(), device=part.device)
            weights = ((place + 1) * (key | 1)) % 2147483647
            plain += int(part.sum())
            weighted += int((part * weights).sum())
        return plain, weighted

    def nbytes(self) -> int:
        return sum(block.memory.numel() for block in self.blocks.values())
