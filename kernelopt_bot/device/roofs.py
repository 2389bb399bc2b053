"""Measured ceilings of a device, cached per GPU; specification peaks; assumed ceilings where nothing is measured."""

from __future__ import annotations

import contextlib
import datetime
import json
import math
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from kernelopt_bot.device.profile import Roofs
from kernelopt_bot.errors import Unavailable
from kernelopt_bot.user_cache import cache_folder

SCHEMA = 1
TIMEOUT_S = 120.0
"""A first CUDA context takes some 10 s, the measurement itself about 2 s."""

PEAK_BYTES_PER_S: Mapping[str, float] = {
    "NVIDIA B200": 8.0e12,
    "NVIDIA H200": 4.8e12,
    "NVIDIA H100 80GB HBM3": 3.35e12,
    "NVIDIA H100 NVL": 3.9e12,
    "NVIDIA H100 PCIe": 2.0e12,
    "NVIDIA A100-SXM4-80GB": 2.039e12,
    "NVIDIA A100 80GB PCIe": 1.935e12,
    "NVIDIA A100-SXM4-40GB": 1.555e12,
    "NVIDIA A100-PCIE-40GB": 1.555e12,
    "NVIDIA L40S": 864e9,
    "NVIDIA L4": 300e9,
    "NVIDIA A10": 600e9,
    "NVIDIA A10G": 600e9,
    "Tesla V100-SXM2-16GB": 900e9,
    "Tesla V100-SXM2-32GB": 900e9,
    "Tesla T4": 320e9,
    "NVIDIA GeForce RTX 4090": 1008e9,
    "NVIDIA GeForce RTX 3090": 936e9,
}
"""Peak memory bandwidth in bytes a second by the driver's name of the GPU, from NVIDIA's data sheet of each product."""

_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z-]{8,64}", re.ASCII)


def specification(name: str) -> float | None:
    """Specification peak in bytes a second; None for a device that the table does not know."""
    return PEAK_BYTES_PER_S.get(name)


def measured(
    call: Callable[..., dict[str, Any]], gpu: Mapping[str, Any], *, folder: Path | None = None,
    today: Callable[[], datetime.date] = datetime.date.today,
) -> Roofs:
    """Ceilings of the GPU that `hello` described as `gpu`: from the cache, else measured by `call` and cached.

    `call` is a kernel worker's. A cached file that is not of this schema, or of another driver, is measured anew.
    Raises WorkerError, and Unavailable where the worker answers what cannot be.
    """
    folder = cache_folder() if folder is None else folder
    name, uuid, driver = str(gpu["name"]), str(gpu["uuid"]), str(gpu.get("driver", ""))
    if (cached := _load(folder, uuid, driver)) is not None:
        return cached
    roofs = _checked(call("roofs", {}, timeout=TIMEOUT_S), name, uuid, today().isoformat())
    _store(folder, roofs, driver)
    return roofs


def assumed(name: str, *, cores: int = 1) -> Roofs:
    """Ceilings of a processor nobody measured: one channel of DDR4-3200 (25.6 GB/s, JEDEC JESD79-4) and 16 float32
    operations a cycle and core at 2.5 GHz. Good for ranking steps only."""
    return Roofs(device=name, uuid="", copy_bytes_per_s=25.6e9, matrix_flops_per_s={"float32": 40e9 * max(cores, 1)},
                 l2_bytes=1 << 20, multiprocessors=max(cores, 1), source="assumed")


def pretended() -> Roofs:
    """The pretended GPU's: an H200 by its data sheet (4.8 TB/s, 67 TFLOPS float32, 989 TFLOPS half types)."""
    return Roofs(device="NVIDIA H200", uuid="", copy_bytes_per_s=4.8e12, l2_bytes=50 * 1024**2, multiprocessors=132,
                 matrix_flops_per_s={"float32": 67e12, "bfloat16": 989e12, "float16": 989e12},
                 source="specification", peak_bytes_per_s=4.8e12)


def _checked(answer: Mapping[str, Any], name: str, uuid: str, today: str) -> Roofs:
    peak = specification(name) or _rate(answer, "peak_bytes_per_s", optional=True)
    rates = answer.get("matrix_flops_per_s")
    if not isinstance(rates, Mapping):
        raise _unbelievable("matrix_flops_per_s")
    roofs = Roofs(
        device=name, uuid=uuid, copy_bytes_per_s=_rate(answer, "copy_bytes_per_s"),
        matrix_flops_per_s={str(dtype): _rate(rates, dtype) for dtype in rates},
        l2_bytes=int(_rate(answer, "l2_bytes")), multiprocessors=int(_rate(answer, "multiprocessors")),
        source="measured", measured_on=today, peak_bytes_per_s=peak)
    # 2% for the clock of the data sheet: some boards run their memory a little faster.
    if peak and roofs.copy_bytes_per_s > 1.02 * peak:
        raise _unbelievable(f"a copy of {roofs.copy_bytes_per_s:.3g} bytes/s where the memory does {peak:.3g}")
    return roofs


def _rate(answer: Mapping[str, Any], key: str, *, optional: bool = False) -> float:
    value = answer.get(key)
    if optional and not value:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise _unbelievable(key)
    return float(value)


def _unbelievable(what: str) -> Unavailable:
    return Unavailable("the device's ceilings could not be measured", where=what,
                       fix="check that nothing else uses the GPU and run again")


def _file(folder: Path, uuid: str) -> Path | None:
    return folder / f"roofs-{uuid}.json" if _UUID.fullmatch(uuid) else None


def _load(folder: Path, uuid: str, driver: str) -> Roofs | None:
    path = _file(folder, uuid)
    if path is None:
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] != SCHEMA or data["driver"] != driver or data["roofs"]["uuid"] != uuid:
            return None
        roofs = data["roofs"]
        if set(roofs) != {f.name for f in fields(Roofs)} or roofs["source"] != "measured":
            return None
        return _checked(roofs, str(roofs["device"]), uuid, str(roofs["measured_on"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, Unavailable):
        return None


def _store(folder: Path, roofs: Roofs, driver: str) -> None:
    """A cache that cannot be written only costs a second measurement."""
    path = _file(folder, roofs.uuid)
    if path is None:
        return
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=".roofs-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump({"schema": SCHEMA, "driver": driver, "roofs": asdict(roofs)}, file)
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)
