"""What a device can do, and where a program's time goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Roofs:
    """Measured ceilings of one device. Bandwidth counts bytes read plus bytes written."""

    device: str
    uuid: str
    copy_bytes_per_s: float
    matrix_flops_per_s: dict[str, float]
    """By dtype: `float32` (IEEE), `bfloat16`, `float16`."""
    l2_bytes: int
    multiprocessors: int
    source: Literal["measured", "specification", "assumed"]
    measured_on: str = ""
    """ISO date of the measurement."""
    peak_bytes_per_s: float = 0.0
    """Specification peak, for gate 4's physical floor; 0 if unknown."""


@dataclass(frozen=True)
class StepProfile:
    graph: int
    step: int
    name: str
    kind: str
    time_us: float | None
    """Median device time of the step alone; None where not measured."""
    bytes: int
    """Unique bytes of its tensor arguments, each counted once a read and once a write."""
    flops: int | None
    floor_us: float
    """max(bytes / copy bandwidth, flops / matrix rate)."""
    headroom: float
    """time / floor; 1.0 where at the floor or not measured."""
    savings_us: float
    """time - floor, at least 0: what the step can still save of the call."""
    calls: int = 1


@dataclass(frozen=True)
class Profile:
    roofs: Roofs
    call_us: float | None
    """Synchronised latency of one compiled call."""
    device_us: float | None
    """Sum of the steps' times."""
    launch_gap: float | None
    """Share of the call in which the device waits for the host: max(0, 1 - device/call)."""
    steps: tuple[StepProfile, ...]
    """Ranked by savings, largest first."""
