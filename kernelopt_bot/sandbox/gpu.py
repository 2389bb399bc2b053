"""Which GPU a worker gets, and the device nodes that this takes."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from kernelopt_bot.device.state import VISIBLE, GpuState, gpus, visible
from kernelopt_bot.errors import Unavailable

SHARED_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-caps")


@dataclass(frozen=True)
class Gpu:
    visible: str
    """For CUDA_VISIBLE_DEVICES: its UUID."""
    nodes: tuple[Path, ...]


def device_minor(bus_id: str, index: int, *, proc: Path = Path("/proc/driver/nvidia/gpus")) -> int:
    """The number in /dev/nvidiaN, from the driver's own table; the index where the driver does not say."""
    for file in proc.glob("*/information"):
        # nvidia-smi prints a domain of 8 digits, the driver one of 4.
        if bus_id.lower().endswith(file.parent.name.lower()) and (
            found := re.search(r"Device Minor:\s*(\d+)", file.read_text())
        ):
            return int(found.group(1))
    return index


def pick(device: str, present: list[GpuState]) -> GpuState:
    """The GPU that `cuda`, `cuda:N` or a UUID names, of those in CUDA_VISIBLE_DEVICES. Raises Unavailable."""
    wanted = device.removeprefix("cuda").removeprefix(":") or "0"
    shown = visible(present)
    for number, gpu in enumerate(shown):
        if wanted in (str(number), gpu.uuid):
            return gpu
    names = ", ".join(f"cuda:{number} ({gpu.name})" for number, gpu in enumerate(shown)) or "none"
    if len(shown) < len(present):
        names += f" with {VISIBLE}={os.environ.get(VISIBLE)}"
    raise Unavailable(
        f"there is no GPU {device!r} on this machine", where=f"present: {names}",
        fix="choose another device, or `device: cpu` or `device: pretend` in .kernelopt.yml",
    )


def find_gpu(device: str, *, dev: Path = Path("/dev")) -> Gpu | None:
    """None for `cpu` and `pretend`; `auto` is the first GPU if any. Raises Unavailable if there is no such GPU."""
    if device in ("cpu", "pretend"):
        return None
    present = visible(gpus())
    if device == "auto" and not present:
        return None
    state = pick("cuda" if device == "auto" else device, present)
    nodes = [dev / name for name in (f"nvidia{device_minor(state.bus_id, state.index)}", *SHARED_NODES)]
    return Gpu(state.uuid, tuple(node for node in nodes if node.exists()))
