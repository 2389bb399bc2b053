"""Bounds of memory accesses in the interpreter lane: each masked-in load, store or atomic must fall in known memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from torch import Tensor

_known: list[tuple[int, int]] | None = None


class OutOfBounds(Exception):
    """An access outside of every buffer of the launch."""


@contextmanager
def only(tensors: Sequence[Tensor]) -> Iterator[None]:
    """Inside, kernels may touch the storage ranges of these views (first to last element) and nothing else."""
    global _known
    before = _known
    _known = _merged([_range(t) for t in tensors if t.numel()])
    try:
        yield
    finally:
        _known = before


def _range(tensor: Tensor) -> tuple[int, int]:
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    begin = tensor.data_ptr()
    return begin, begin + (last + 1) * tensor.element_size()


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def check(what: str, pointers: Any, mask: Any, size: int) -> None:
    """Raises OutOfBounds. `pointers` are addresses, `mask` which of them count, `size` the element's bytes."""
    if _known is None:
        return
    addresses = np.broadcast_to(pointers, np.broadcast_shapes(np.shape(pointers), np.shape(mask)))
    addresses = addresses[np.broadcast_to(mask, addresses.shape).astype(bool)]
    if addresses.size == 0:
        return
    begins = np.array([b for b, _ in _known], dtype=np.uint64)
    ends = np.array([e for _, e in _known], dtype=np.uint64)
    place = np.searchsorted(begins, addresses, side="right").astype(np.int64) - 1
    if not begins.size:
        raise OutOfBounds(f"a {what} touches {addresses.size} elements outside of every buffer")
    bad = (place < 0) | (addresses + np.uint64(size) > ends[np.maximum(place, 0)])
    if bad.any():
        raise OutOfBounds(f"a {what} touches {int(bad.sum())} elements outside of every buffer")


def install(builder: Any) -> None:
    """Put the check before the interpreter's memory operations."""
    load, store = builder.create_masked_load, builder.create_masked_store
    cas, rmw = builder.create_atomic_cas, builder.create_atomic_rmw

    def width(pointer: Any) -> int:
        return max(1, int(pointer.get_element_ty().primitive_bitwidth) // 8)

    def checked_load(self: Any, pointer: Any, mask: Any, *rest: Any) -> Any:
        check("load", pointer.data, mask.data, width(pointer))
        return load(self, pointer, mask, *rest)

    def checked_store(self: Any, pointer: Any, value: Any, mask: Any, *rest: Any) -> Any:
        check("store", pointer.data, mask.data, width(pointer))
        return store(self, pointer, value, mask, *rest)

    def checked_cas(self: Any, pointer: Any, *rest: Any) -> Any:
        check("compare-and-swap", pointer.data, True, width(pointer))
        return cas(self, pointer, *rest)

    def checked_rmw(self: Any, operation: Any, pointer: Any, value: Any, mask: Any, *rest: Any) -> Any:
        check("atomic operation", pointer.data, mask.data, width(pointer))
        return rmw(self, operation, pointer, value, mask, *rest)

    builder.create_masked_load, builder.create_masked_store = checked_load, checked_store
    builder.create_atomic_cas, builder.create_atomic_rmw = checked_cas, checked_rmw
