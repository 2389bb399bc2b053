"""Measured ceilings of the GPU: copy bandwidth and matrix rates. About a second of device time."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from kernelopt_bot.sandbox.worker.lane import need_lane

COPY_BYTES = 1 << 30
"""Far beyond any L2, so that the copy runs from memory; less where the GPU has not that much free."""
MATRIX_SIZE = {"bfloat16": 8192, "float16": 8192, "float32": 4096}
"""Square products; large enough to fill the machine, some milliseconds each."""
REPEATS = 12
WARM_UPS = 4


def event() -> torch.cuda.Event:
    """A CUDA event with timing."""
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _seconds(work: Callable[[], object]) -> float:
    """Median device time of one call."""
    for _ in range(WARM_UPS):
        work()
    times = []
    for _ in range(REPEATS):
        start, end = event(), event()
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(float(start.elapsed_time(end)) / 1000.0)
    return statistics.median(times)


@contextmanager
def _ieee() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def copy_rate(device: torch.device) -> float:
    """Bytes read plus bytes written a second by a device-to-device copy."""
    free, _ = torch.cuda.mem_get_info(device)
    size = min(COPY_BYTES, free // 4)
    source = torch.randint(0, 255, (size,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / _seconds(lambda: target.copy_(source))


def matrix_rate(dtype: torch.dtype, n: int, device: torch.device) -> float:
    """Floating-point operations a second of `torch.mm` on random n x n matrices; float32 in IEEE arithmetic."""
    a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    with _ieee():
        return 2 * n**3 / _seconds(lambda: torch.mm(a, b, out=out))


def roofs() -> dict[str, Any]:
    """Method `roofs` of docs/architecture.md. Raises WorkerFault bad_request without a GPU.

    `peak_bytes_per_s` is computed from the driver's memory clock and bus width, 0 where torch does not give them.
    """
    device = need_lane("cuda")
    properties = torch.cuda.get_device_properties(device)
    clock_khz, bus_bits = (int(getattr(properties, n, 0) or 0) for n in ("memory_clock_rate", "memory_bus_width"))
    rates = {name: matrix_rate(getattr(torch, name), n, device) for name, n in MATRIX_SIZE.items()}
    return {
        "copy_bytes_per_s": copy_rate(device), "matrix_flops_per_s": rates,
        "l2_bytes": int(properties.L2_cache_size), "multiprocessors": int(properties.multi_processor_count),
        "peak_bytes_per_s": 2.0 * clock_khz * 1000 * bus_bits / 8,
    }
