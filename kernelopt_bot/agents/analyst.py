"""What limits a spot, by its speed of light: arithmetic, no model (KernelOPT, arXiv:2609.30059, section 4.2, reported).

Near-optimal where memory or arithmetic is above 80% of its roof; else limited by the one that is used more, and
underutilised where neither is used more than the other.
"""

from __future__ import annotations

from kernelopt_bot.agents.brain import Bound, DeviceFacts, StepFacts

EQUAL = 0.02
"""Shares of the roofs that differ by less are taken as equal: the noise of a step's median."""


def bound(steps: tuple[StepFacts, ...], device: DeviceFacts, near_optimal: float) -> Bound:
    """`unknown` without times. `near_optimal`: share of a roof, 0.8 in the paper."""
    times = [s.time_us for s in steps]
    if not times or any(not t for t in times):
        return "unknown"
    seconds = 1e-6 * sum(t for t in times if t)
    memory = sum(s.bytes for s in steps) / device.copy_bytes_per_s / seconds if device.copy_bytes_per_s else 0.0
    rate = device.matrix_flops_per_s.get("float32", 0.0)
    compute = sum(s.flops or 0 for s in steps) / rate / seconds if rate else 0.0
    if max(memory, compute) > near_optimal:
        return "near-optimal"
    if abs(memory - compute) <= EQUAL:
        return "underutilised"
    return "memory-bound" if memory > compute else "compute-bound"
