"""What a benchmark runs on, as records keep it: known before any problem is tried, so that a failed one says it too."""

from __future__ import annotations

import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import kernelopt_bot
from kernelopt_bot import __version__, process
from kernelopt_bot.device.state import gpus, visible
from kernelopt_bot.sandbox.gpu import pick

PACKAGE = Path(kernelopt_bot.__file__).resolve().parents[1]
"""The folder that this package is imported from."""


def environment(device: str) -> dict[str, str]:
    """`gpu` (the processor's architecture for `cpu`), `driver`, `torch`, `triton`, `python`, `release`, `commit`.

    Raises Unavailable: there is no such device.
    """
    gpu, driver = f"CPU {platform.processor() or platform.machine()}", ""
    if device != "cpu":
        state = pick(device, visible(gpus()))
        gpu, driver = state.name, state.driver
    return {"gpu": gpu, "driver": driver, "torch": _version("torch"), "triton": _version("triton"),
            "python": platform.python_version(), "release": __version__, "commit": commit(PACKAGE)}


def commit(folder: Path) -> str:
    """The commit that is checked out in `folder`, with `-dirty` if files differ from it; '' outside git."""
    try:
        done = process.run(["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40"], timeout=60.0,
                           environment=process.environment(), check=False)
    except process.ProcessError:
        return ""
    return done.stdout.strip() if done.code == 0 else ""


def cores(part: int, of: int) -> tuple[str, ...]:
    """Words before a command that keep it to its part of the processor's cores, so that searches on several GPUs do not
    disturb each other's host time; none where there is one part, or no `taskset`."""
    known = sorted(os.sched_getaffinity(0))
    if of < 2 or len(known) < of or shutil.which("taskset") is None:
        return ()
    share = len(known) // of
    return ("taskset", "-c", ",".join(map(str, known[part * share:(part + 1) * share])))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
