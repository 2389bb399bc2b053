"""Where a program's time goes: each step's time against the bytes and operations it cannot do without."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from kernelopt_bot.compiler.program import Graph, Program, Step, TensorMeta
from kernelopt_bot.device.profile import Profile, Roofs, StepProfile

_ITEM_BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "uint32": 4,
    "float32": 4, "int64": 8, "uint64": 8, "float64": 8, "complex64": 8, "complex128": 16,
}
_INDIRECT = "index out of bounds"
"""Inductor asserts so round every index that was itself loaded (embedding, gather): the tensor is read in part."""


def build(program: Program, raw: Mapping[int, Mapping[str, Any]], roofs: Roofs) -> Profile:
    """`raw`: graph index -> answer of the worker's `profile` (`steps` with `line` and `times_us`, `call_us` of the
    whole compiled call), in microseconds.

    Steps without times get None and their floors; nothing is guessed.
    """
    steps = []
    for graph in program.graphs:
        times = {int(s["line"]): _median(s["times_us"]) for s in raw.get(graph.index, {}).get("steps", ())}
        results = _results(graph)
        for step in graph.steps:
            if step.kind in ("kernel", "vendor"):
                steps.append(_step(graph, step, times.get(step.lines[0]), results, roofs))
    call_us = _median([us for answer in raw.values() for us in answer["call_us"]])
    timed = [s.time_us for s in steps if s.time_us is not None]
    device_us = sum(timed) if timed and len(timed) == len(steps) else None
    gap = max(0.0, 1 - device_us / call_us) if device_us is not None and call_us else None
    ranked = sorted(steps, key=lambda s: (-s.savings_us, -(s.time_us or 0.0), -s.floor_us, s.graph, s.step))
    return Profile(roofs, call_us, device_us, gap, tuple(ranked))


def physical_floor_s(program: Program, roofs: Roofs) -> float | None:
    """Seconds that no implementation of a call can beat: bytes of inputs and outputs, less what the L2 may still hold,
    at specification peak. None where the peak is unknown. Inputs that only indexed reads touch are not counted."""
    if not roofs.peak_bytes_per_s:
        return None
    total = 0
    for graph in program.graphs:
        whole = {a.buffer for s in graph.steps if not _is_indirect(graph, s) for a in s.arguments if a.buffer}
        total += sum(unique_bytes(i.tensor) for i in graph.inputs if i.tensor is not None and i.name in whole)
        if graph is program.graphs[-1]:
            total += sum(unique_bytes(t) for t in graph.outputs if t is not None)
    return max(0, total - roofs.l2_bytes) / roofs.peak_bytes_per_s


def unique_bytes(tensor: TensorMeta) -> int:
    """Bytes of its distinct elements: an expanded dimension (stride 0) counts once, and never more than the storage."""
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride, strict=True):
        elements *= size if stride or size == 0 else 1
    size = elements * _ITEM_BYTES.get(tensor.dtype, 1)
    return min(size, tensor.storage_bytes) if tensor.storage_bytes else size


def _median(values: Any) -> float | None:
    return float(statistics.median(values)) if values else None


def _results(graph: Graph) -> dict[str, TensorMeta]:
    """Shapes of the variables that some step takes as an argument: what vendor calls answer is seen there."""
    return {a.buffer: a.tensor for s in graph.steps for a in s.arguments if a.buffer and a.tensor is not None}


def _is_indirect(graph: Graph, step: Step) -> bool:
    if step.kind == "kernel":
        kernel = graph.kernels.get(step.name)
        return kernel is not None and _INDIRECT in kernel.source
    return "embedding" in step.name or "index" in step.name or "gather" in step.name


def _bytes(graph: Graph, step: Step, results: Mapping[str, TensorMeta]) -> int:
    kernel = graph.kernels.get(step.name) if step.kind == "kernel" else None
    reads: dict[str, int] = {}
    writes: dict[str, int] = {}
    for a in step.arguments:
        if a.tensor is None:
            continue
        key, size = a.buffer or a.name, unique_bytes(a.tensor)
        written = a.name in kernel.written if kernel else a.name == "out"
        if written:
            writes[key] = max(writes.get(key, 0), size)
        # Inductor calls a buffer that is only written out_ptr; every other one is read, in-out buffers too.
        if not (written and (kernel is None or a.name.startswith("out_"))):
            reads[key] = max(reads.get(key, 0), size)
    if kernel is None:
        writes |= {r: unique_bytes(results[r]) for r in step.results if r in results and r not in writes}
    if _is_indirect(graph, step):
        written_bytes = sum(writes.values())
        reads = {key: min(size, written_bytes) for key, size in reads.items()}
    return sum(reads.values()) + sum(writes.values())


def _step(
    graph: Graph, step: Step, time_us: float | None, results: Mapping[str, TensorMeta], roofs: Roofs
) -> StepProfile:
    moved = _bytes(graph, step, results)
    floor = moved / roofs.copy_bytes_per_s
    dtype = next((a.tensor.dtype for a in step.arguments if a.tensor is not None), "")
    rate = roofs.matrix_flops_per_s.get(dtype)
    # torch lets cuDNN use TF32 in float32 convolutions by default, so that the IEEE rate is no ceiling for them.
    if step.flops and rate and not (dtype == "float32" and "conv" in step.name):
        floor = max(floor, step.flops / rate)
    floor_us = floor * 1e6
    return StepProfile(
        graph=graph.index, step=step.index, name=step.name, kind=step.kind, time_us=time_us, bytes=moved,
        flops=step.flops, floor_us=floor_us, headroom=time_us / floor_us if time_us and floor_us else 1.0,
        savings_us=max(0.0, time_us - floor_us) if time_us is not None else 0.0)
