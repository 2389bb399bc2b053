"""Several searches on one GPU of which one at a time is timed: a benchmark compiles while another problem is measured.

Calls of workers are of three kinds. What times kernels has the GPU **alone**. What uses it without timing goes
**beside** others of its kind, never beside a timing. What leaves it alone is **apart** and needs no turn. Who waits to
be alone goes before those who come later. The locks are of files, so that the kernel lets go of them however a process
ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from kernelopt_bot.errors import InputError

Kind = Literal["alone", "beside", "apart"]
VARIABLE = "KERNELOPT_GPU_TURNS"
"""Folder of the locks. Whoever sets it holds the GPU's own lock (`device/lock.py`) for all who share it."""
TIMED = frozenset({"device_time", "first_call", "profile", "roofs", "time_model", "time_step", "tune_step"})
HOST_ONLY = frozenset({"check_interpreted", "compile_baseline", "compile_candidate", "compile_each", "interpret_graph"})
"""Methods of workers that never start CUDA."""


def kind(method: str, params: Mapping[str, Any]) -> Kind:
    """Of a worker's method. `time_model` without pairs only compiles its arms."""
    if method in HOST_ONLY:
        return "apart"
    if method == "time_model" and not params.get("pairs"):
        return "beside"
    return "alone" if method in TIMED else "beside"


class Turns:
    """The locks of one GPU, in a folder that all who take turns share. Used from several threads and processes."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder, self._clock = folder, clock

    @contextlib.contextmanager
    def turn(self, kind: Kind) -> Iterator[float]:
        """Hold a turn of this kind, which may take any time to come; gives the seconds waited. Raises OSError."""
        if kind == "apart":
            yield 0.0
            return
        begin = self._clock()
        with contextlib.ExitStack() as held:
            with contextlib.ExitStack() as gate:
                # Whoever wants to be alone keeps the gate shut while the others finish.
                (held if kind == "alone" else gate).enter_context(self._locked("gate", kind))
                held.enter_context(self._locked("turn", kind))
            yield max(0.0, self._clock() - begin)

    @contextlib.contextmanager
    def _locked(self, name: str, kind: Kind) -> Iterator[None]:
        descriptor = os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if kind == "alone" else fcntl.LOCK_SH)
            yield
        finally:
            os.close(descriptor)


def turns_in(environment: Mapping[str, str]) -> Turns | None:
    """Those that `KERNELOPT_GPU_TURNS` names; None where it is empty or not set. Raises InputError."""
    text = environment.get(VARIABLE, "")
    if not text:
        return None
    folder = Path(text)
    if not folder.is_absolute() or not folder.is_dir():
        raise InputError(f"{VARIABLE} names no folder", where=repr(text)[:200],
                         fix="leave it unset: `kernelopt bench` sets it for what it starts")
    return Turns(folder)
