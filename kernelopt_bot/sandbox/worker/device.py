"""What timing needs of a device: waiting for it, emptying its L2 cache, and saying what state it is in."""

from __future__ import annotations

import os
import time
from typing import Any

import torch

from kernelopt_bot.sandbox.worker.hello import nvidia_smi

FLUSH_FACTOR = 2
"""Bytes written to empty a cache, in units of its size."""
SLEEP_CYCLES_PER_SECOND = 2.0e9
"""Upper bound of the clock that `torch.cuda._sleep` counts, so that a sleep is at least as long as asked."""
STATE_FIELDS = ["clocks.sm", "clocks.max.sm", "clocks.mem", "power.draw", "power.limit", "temperature.gpu",
                "utilization.gpu", "memory.used", "clocks_throttle_reasons.active"]
"""Read, never set."""


class Device:
    """One device during a measurement. On a CPU there is no cache flush: `cold` says so."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.gpu = device.type == "cuda"
        self._flush: torch.Tensor | None = None

    def wait(self) -> None:
        if self.gpu:
            torch.cuda.synchronize(self.device)

    def flush(self) -> None:
        """Overwrite the L2 cache, without waiting. Nothing on a CPU."""
        if not self.gpu:
            return
        if self._flush is None:
            l2 = torch.cuda.get_device_properties(self.device).L2_cache_size
            self._flush = torch.empty(FLUSH_FACTOR * l2, dtype=torch.uint8, device=self.device)
        self._flush.zero_()

    def busy(self, seconds: float) -> None:
        """Keep the device busy for about `seconds`, without waiting, so that the host gets ahead of it."""
        if self.gpu:
            torch.cuda._sleep(int(seconds * SLEEP_CYCLES_PER_SECOND))  # type: ignore[no-untyped-call]

    def allocated(self) -> int:
        return torch.cuda.memory_allocated(self.device) if self.gpu else 0

    def free(self) -> int | None:
        """Free bytes of the device's memory; None on a CPU."""
        return torch.cuda.mem_get_info(self.device)[0] if self.gpu else None

    def crowded(self) -> bool:
        """Whether this process's tensors take more than half of the device's memory."""
        return self.gpu and 2 * self.allocated() > torch.cuda.get_device_properties(self.device).total_memory

    def private_unused(self) -> int:
        """Bytes that CUDA graphs keep for their intermediates: part of their pools, but of no live tensor."""
        if not self.gpu:
            return 0
        segments = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
        return sum(s["total_size"] - s["allocated_size"] for s in segments
                   if tuple(s.get("segment_pool_id", (0, 0))) != (0, 0))

    def state(self) -> dict[str, Any]:
        """Clocks (MHz), power (W), temperature (C), utilisation (%), memory (MiB), the driver's mask of reasons why the
        clocks are held down (hexadecimal text), and the host's load average."""
        found: dict[str, Any] = {"load_average": os.getloadavg()[0], "time": time.time()}
        if self.gpu:
            uuid = str(getattr(torch.cuda.get_device_properties(self.device), "uuid", ""))
            name = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}" if uuid else str(self.device.index or 0)
            for key, text in nvidia_smi(STATE_FIELDS, name).items():
                try:
                    found[key] = float(text)
                except ValueError:
                    found[key] = text
        return found
