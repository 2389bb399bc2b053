"""`hello`: what this worker runs on. Used by both roles."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
import triton

NVIDIA_SMI_SECONDS = 20.0


def hello(context: object, params: dict[str, Any]) -> dict[str, Any]:
    """The answer to `hello` of docs/architecture.md. Sizes in bytes; `gpu` is null without a usable GPU."""
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": torch.version.cuda,
        "platform": platform.platform(),
        "cpu": processor(),
        "threads": torch.get_num_threads(),
        "gpu": _gpu(),
    }


def processor() -> str:
    """The processor's name as the kernel gives it, else the architecture's."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _gpu() -> dict[str, Any] | None:
    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name,
        "uuid": gpu_uuid(properties),
        "capability": [properties.major, properties.minor],
        "multiprocessors": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
        "total_memory": properties.total_memory,
        "driver": nvidia_smi(["driver_version"]).get("driver_version", ""),
    }


def gpu_uuid(properties: Any) -> str:
    """`GPU-...` of a device's properties, '' where torch does not give it."""
    uuid = str(getattr(properties, "uuid", ""))
    return uuid if not uuid or uuid.startswith("GPU-") else f"GPU-{uuid}"


def nvidia_smi(fields: list[str], device: str = "0") -> dict[str, str]:
    """`nvidia-smi --query-gpu` of one device as {field: text}; {} where the tool is missing or fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    command = [tool, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", f"--id={device}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=NVIDIA_SMI_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    values = done.stdout.strip().splitlines()
    if not values:
        return {}
    return dict(zip(fields, (v.strip() for v in values[0].split(",")), strict=False))
