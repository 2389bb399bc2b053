"""`device_time`: for how long the device works on one call, by torch.profiler: a second opinion on a wall time.

It asks another source (the driver's activity records through CUPTI) about another thing: the device's work, without
the host's. A call that is done in less cannot have moved its bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function

from kernelopt_bot.sandbox.worker.arms import Arm
from kernelopt_bot.sandbox.worker.device import Device
from kernelopt_bot.sandbox.worker.load import current
from kernelopt_bot.sandbox.worker.main import Context
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from kernelopt_bot.sandbox.worker.time_model import kept_arm

MARK = "kernelopt: one call"
WARM_UPS = 2

Interval = tuple[float, float]


def union_length(intervals: Sequence[Interval]) -> float:
    """Length of the union of (start, end), so that work side by side on several streams counts once."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def busy_in(windows: Sequence[Interval], work: Sequence[Interval]) -> list[float]:
    """For each window the length of the union of the work whose middle lies in it."""
    return [union_length([(a, b) for a, b in work if start <= (a + b) / 2 <= end]) for start, end in windows]


def intervals(events: Sequence[FunctionEvent], kind: DeviceType) -> tuple[list[Interval], list[Interval]]:
    """(our marks on the host, work of devices of that kind) in microseconds of the profiler's clock.

    Ranges that somebody named are not work: the profiler repeats them on the device's time line, idle gaps included.
    """
    marks = [e for e in events if e.name == MARK and e.device_type == DeviceType.CPU]
    work = [e for e in events if e.device_type == kind and e.name != MARK and not e.is_user_annotation]
    return _ranges(marks), _ranges(work)


def _ranges(events: Sequence[FunctionEvent]) -> list[Interval]:
    return [(e.time_range.start, e.time_range.end) for e in events]


def device_time(context: Context, params: dict[str, Any]) -> dict[str, Any]:
    """`{arm, calls}` -> `{device_s: [..], timer}`: seconds of device work of each call, the L2 cache emptied before it.

    Uses the arm as `time_model` left it. Raises WorkerFault: unsupported without a GPU, or where the profiler sees no
    work of the device.
    """
    target = current(context)
    device, calls = Device(target.device), int(params["calls"])
    if not device.gpu:
        raise WorkerFault("unsupported", "the profiler's device times need a GPU")
    arm = kept_arm(context, target, Arm.from_json(params["arm"]))
    inputs = [target.copies() for _ in range(WARM_UPS + calls)]
    with torch.no_grad():
        for args, kwargs in inputs[:WARM_UPS]:
            arm.call(*args, **kwargs)
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as profiler:
            for args, kwargs in inputs[WARM_UPS:]:
                device.flush()
                device.wait()
                with record_function(MARK):
                    arm.call(*args, **kwargs)
                    device.wait()
    windows, work = intervals(profiler.events() or [], DeviceType.CUDA)
    device_us = busy_in(windows, work)
    if len(device_us) != calls or min(device_us) <= 0:
        raise WorkerFault("unsupported", "the profiler saw no work of the device in some call")
    return {"device_s": [1e-6 * t for t in device_us], "timer": "torch.profiler, device activity"}
