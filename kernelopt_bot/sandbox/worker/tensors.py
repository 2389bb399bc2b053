"""Tensors as they cross the protocol, copies that keep strides and aliasing, and leaves of nested values."""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from kernelopt_bot.sandbox.worker.protocol import WorkerFault

CHUNK = 1 << 24
"""Elements that are widened at a time."""


class Scratch(Protocol):
    """What of `main.Context` this module needs."""

    def path(self, name: str) -> str: ...


def dtype_name(dtype: torch.dtype) -> str:
    """`float32` of torch.float32."""
    return str(dtype).removeprefix("torch.")


def meta(tensor: Tensor) -> dict[str, Any]:
    """`compiler.program.TensorMeta` as JSON: shape, stride and offset in elements, storage in bytes."""
    return {
        "dtype": dtype_name(tensor.dtype),
        "shape": [int(s) for s in tensor.shape],
        "stride": [int(s) for s in tensor.stride()],
        "offset": int(tensor.storage_offset()),
        "storage_bytes": int(tensor.untyped_storage().nbytes()),
        "device": str(tensor.device),
    }


def stats(tensor: Tensor) -> dict[str, Any] | None:
    """{min, max, mean, std, finite} over the finite elements; None for empty, complex or quantised tensors.

    Needs memory for a chunk, and for a copy where the elements do not lie one after another.
    """
    if tensor.numel() == 0 or tensor.is_complex() or tensor.is_quantized:
        return None
    values = tensor.detach()
    for dim, stride in enumerate(values.stride()):
        # Every element is repeated equally often, so that one of each says the same.
        values = values.narrow(dim, 0, 1) if stride == 0 else values
    flat = values.reshape(-1)
    chunks = [flat[start:start + CHUNK] for start in range(0, flat.numel(), CHUNK)]
    count, total, every = 0, 0.0, True
    lows: list[float | int] = []
    highs: list[float | int] = []
    for chunk in chunks:
        known = _finite(chunk)
        every &= known.numel() == chunk.numel()
        if known.numel():
            lows.append(known.min().item())
            highs.append(known.max().item())
            count, total = count + known.numel(), total + float(known.double().sum())
    if not count:
        return {"min": 0.0, "max": 0.0, "mean": 0.0, "std": 0.0, "finite": False}
    mean = total / count
    square = sum(float((_finite(chunk).double() - mean).square().sum()) for chunk in chunks)
    return {"min": min(lows), "max": max(highs), "mean": mean, "std": math.sqrt(square / count), "finite": every}


def _finite(chunk: Tensor) -> Tensor:
    """The finite elements, in a type that has an order and arithmetic."""
    if not chunk.is_floating_point():
        return chunk.to(torch.int64)
    chunk = chunk.float() if chunk.element_size() < 4 else chunk
    finite = chunk.isfinite()
    return chunk if bool(finite.all()) else chunk[finite]


def half_digits(like: Tensor) -> float:
    """The relative error at which half of the type's digits agree; 1e-6 for integers."""
    return float(torch.finfo(like.dtype).eps) ** 0.5 if like.is_floating_point() or like.is_complex() else 1e-6


def relative_error(got: Tensor, expected: Tensor) -> float:
    """RMS of the difference over RMS of `expected`, over the elements finite in both; inf if shape or dtype differ."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return float("inf")
    wide = torch.complex128 if expected.is_complex() else torch.float64
    difference = size = 0.0
    flat_got, flat_expected = got.reshape(-1), expected.reshape(-1)
    for start in range(0, flat_got.numel(), CHUNK):
        a, b = flat_got[start:start + CHUNK].to(wide), flat_expected[start:start + CHUNK].to(wide)
        finite = a.isfinite() & b.isfinite()
        difference += float((a - b)[finite].abs().square().sum())
        size += float(b[finite].abs().square().sum())
    return 0.0 if difference == 0.0 else math.sqrt(difference / size) if size else float("inf")


def save(scratch: Scratch, tensor: Tensor) -> dict[str, Any]:
    """Write the raw storage to the scratch folder; equal storages share a file. Returns a TensorRef.

    Raises OSError if the disk is full.
    """
    storage = tensor.detach().untyped_storage().cpu()  # type: ignore[no-untyped-call]
    size = storage.nbytes()
    # numpy may be missing in the user's environment, so the bytes are read where they lie
    raw = memoryview((ctypes.c_char * size).from_address(storage.data_ptr()) if size else b"").cast("B")
    name = f"tensor-{hashlib.sha256(raw).hexdigest()[:32]}.raw"
    path = scratch.path(name)
    if not os.path.exists(path) or os.path.getsize(path) != size:
        with open(path + ".part", "wb") as file:
            file.write(raw)
        os.replace(path + ".part", path)
    facts = meta(tensor)
    return {"file": name, **{k: facts[k] for k in ("dtype", "shape", "stride", "offset", "storage_bytes")}}


def load(scratch: Scratch, reference: Mapping[str, Any], device: str = "cpu") -> Tensor:
    """The tensor of a TensorRef. Raises WorkerFault (bad_request) if the file does not fit the reference."""
    path, size = scratch.path(str(reference["file"])), int(reference["storage_bytes"])
    dtype = getattr(torch, str(reference["dtype"]), None)
    if not isinstance(dtype, torch.dtype) or not os.path.isfile(path) or os.path.getsize(path) != size:
        what = f"{size} bytes of {reference['dtype']}"
        raise WorkerFault("bad_request", f"there are no {what} in {reference['file']!r}")
    raw = torch.empty(0, dtype=torch.uint8)
    if size:
        raw = torch.from_file(path, shared=False, size=size, dtype=torch.uint8)
    storage = raw.to(device).untyped_storage()
    shape, stride = tuple(reference["shape"]), tuple(reference["stride"])
    return torch.empty(0, dtype=dtype, device=device).set_(storage, int(reference["offset"]), shape, stride)


def storage_key(tensor: Tensor) -> tuple[str, int]:
    """Equal for tensors that share a storage."""
    return str(tensor.device), tensor.untyped_storage().data_ptr()


def clone(tensor: Tensor, memo: dict[tuple[str, int], torch.UntypedStorage] | None = None) -> Tensor:
    """A copy with the same dtype, shape, strides and offset over a copied storage; `memo` keeps aliasing."""
    if tensor.layout is not torch.strided or type(tensor) not in (Tensor, torch.nn.Parameter):
        return tensor.detach().clone()
    memo = {} if memo is None else memo
    key = storage_key(tensor)
    if key not in memo:
        memo[key] = tensor.untyped_storage().clone()  # type: ignore[no-untyped-call]
    copied = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return copied.set_(memo[key], tensor.storage_offset(), tensor.shape, tensor.stride())


def clone_all(values: list[Any]) -> list[Any]:
    """Copies of the tensors of a list, aliasing kept; other values as they are."""
    memo: dict[tuple[str, int], torch.UntypedStorage] = {}
    return [clone(v, memo) if isinstance(v, Tensor) else v for v in values]


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A nested value (tuple, list, dict, dataclass, their subclasses) with its tensors replaced."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(v, change) for v in value))
    if type(value) in (tuple, list):
        return type(value)(map_tensors(v, change) for v in value)
    if isinstance(value, dict):
        changed = {k: map_tensors(v, change) for k, v in value.items()}
        return changed if type(value) is dict else type(value)(changed)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [f.name for f in dataclasses.fields(value) if f.init]
        return dataclasses.replace(value, **{f: map_tensors(getattr(value, f), change) for f in fields})
    return value


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """(name, leaf) of a nested value in order: `0`, `hidden.1`; tensors and anything that is not a container."""
    items: list[tuple[str, Any]]
    if isinstance(value, Tensor):
        items = []
    elif isinstance(value, dict):
        items = [(str(k), v) for k, v in value.items()]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)]
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        items = list(zip(value._fields, value, strict=True))
    elif isinstance(value, tuple | list):
        items = [(str(i), v) for i, v in enumerate(value)]
    else:
        items = []
    if not items and not isinstance(value, tuple | list | dict):
        yield name, value
    for key, inner in items:
        yield from leaves(inner, f"{name}.{key}" if name else key)


def tensor_leaves(value: Any, name: str = "") -> list[tuple[str, Tensor]]:
    return [(n, v) for n, v in leaves(value, name) if isinstance(v, Tensor)]
