"""What GPUs are doing now, as nvidia-smi tells it. Nothing is set, everything is read."""

from __future__ import annotations

import csv
import io
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kernelopt_bot import process
from kernelopt_bot.errors import Unavailable

FIELDS = (
    "index", "uuid", "name", "pci.bus_id", "driver_version", "memory.total", "memory.used", "utilization.gpu",
    "clocks.sm", "power.draw", "temperature.gpu", "clocks_throttle_reasons.active",
)
MIB = 1 << 20
TOOL_FOLDERS = ("/usr/local/nvidia/bin", "/usr/lib/wsl/lib")
"""Where container runtimes and WSL put nvidia-smi, outside the usual path."""

VISIBLE = "CUDA_VISIBLE_DEVICES"

BUSY_UTILISATION = 5
"""Per cent: an idle GPU reads 0; a single sample may catch the tail of our own work."""
BUSY_MEMORY = 1 << 30
"""Bytes in use by others: an idle data-centre GPU shows up to some hundred MiB for the driver itself."""


@dataclass(frozen=True)
class GpuProcess:
    pid: int
    name: str
    memory_bytes: int | None
    """None where the driver does not say (other container, MIG)."""


@dataclass(frozen=True)
class GpuState:
    index: int
    uuid: str
    name: str
    bus_id: str
    driver: str
    memory_total: int
    """Bytes."""
    memory_used: int
    utilisation: int | None
    """Per cent of the last sample period in which a kernel ran; None where not supported (MIG)."""
    sm_clock_mhz: int | None
    power_w: float | None
    temperature_c: int | None
    throttle: str
    """The driver's bit mask of reasons why clocks are held down, hexadecimal; 0x0 for none."""
    processes: tuple[GpuProcess, ...] = ()


def _rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text)) if any(c.strip() for c in row)]


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        # "[N/A]", "[Not Supported]", "[Unknown Error]"
        return None


def _whole(cell: str) -> int | None:
    value = _number(cell)
    return None if value is None else int(value)


def parse_gpus(text: str, processes: str = "") -> list[GpuState]:
    """From `--query-gpu` and `--query-compute-apps` output in csv,noheader,nounits; other rows are skipped."""
    using: dict[str, list[GpuProcess]] = {}
    for row in _rows(processes):
        if len(row) == 4 and row[1].isdigit():
            memory = _whole(row[3])
            using.setdefault(row[0], []).append(
                GpuProcess(int(row[1]), row[2], None if memory is None else memory * MIB)
            )
    found = []
    for row in _rows(text):
        if len(row) != len(FIELDS) or not row[0].isdigit():
            continue
        index, uuid, name, bus_id, driver, total, used, utilisation, clock, power, temperature, throttle = row
        found.append(GpuState(
            index=int(index), uuid=uuid, name=name, bus_id=bus_id, driver=driver,
            memory_total=(_whole(total) or 0) * MIB, memory_used=(_whole(used) or 0) * MIB,
            utilisation=_whole(utilisation), sm_clock_mhz=_whole(clock), power_w=_number(power),
            temperature_c=_whole(temperature),
            throttle=hex(int(throttle, 16)) if throttle.lower().startswith("0x") else "unknown",
            processes=tuple(using.get(uuid, ())),
        ))
    return found


def parse_information(texts: dict[str, str]) -> list[GpuState]:
    """From the driver's own files: bus address -> text of `/proc/driver/nvidia/gpus/<address>/information`."""
    found: list[GpuState] = []
    for bus_id, text in sorted(texts.items()):
        facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
        if facts.get("GPU UUID", "").startswith("GPU-"):
            found.append(GpuState(
                index=len(found), uuid=facts["GPU UUID"], name=facts.get("Model", "NVIDIA GPU"), bus_id=bus_id,
                driver="", memory_total=0, memory_used=0, utilisation=None, sm_clock_mhz=None, power_w=None,
                temperature_c=None, throttle="unknown",
            ))
    return found


def gpus(*, timeout: float = 20.0, proc: Path = Path("/proc/driver/nvidia/gpus")) -> list[GpuState]:
    """The GPUs of this machine. Without a working nvidia-smi only what the driver's files say: name, UUID, address."""
    own = process.environment((*process.BASE_ENVIRONMENT, "LD_LIBRARY_PATH"))
    own["PATH"] = ":".join([own.get("PATH", ""), *TOOL_FOLDERS]).lstrip(":")
    form = "--format=csv,noheader,nounits"
    try:
        main = process.run(["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", form], timeout=timeout, environment=own)
        apps = process.run(
            ["nvidia-smi", "--query-compute-apps=gpu_uuid,pid,process_name,used_memory", form], timeout=timeout,
            environment=own, check=False,
        )
        found = parse_gpus(main.stdout, apps.stdout)
    except process.ProcessError:
        found = []
    if found:
        return found
    return parse_information({file.parent.name: file.read_text() for file in proc.glob("*/information")})


def visible(present: list[GpuState], setting: str | None = None) -> list[GpuState]:
    """The GPUs that CUDA would show to this process, in its numbering: `cuda:N` is the N-th.

    `setting` is the value of CUDA_VISIBLE_DEVICES (default: this process's; not set: all of them). Numbers are those of
    nvidia-smi, which is CUDA's order with CUDA_DEVICE_ORDER=PCI_BUS_ID; the first entry that names no GPU ends the list
    (CUDA C++ Programming Guide, environment variables). Raises Unavailable for a MIG instance.
    """
    wanted = os.environ.get(VISIBLE) if setting is None else setting
    if wanted is None:
        return present
    found: list[GpuState] = []
    for entry in (e.strip() for e in wanted.split(",")):
        if entry.startswith("MIG-"):
            raise Unavailable("timing on a part of a GPU (MIG) is not supported", where=f"{VISIBLE}={wanted}",
                              fix="assign a whole GPU to the run")
        gpu = next((g for g in present if entry == str(g.index) or (entry[4:] and g.uuid.startswith(entry))), None)
        if gpu is None or gpu in found:
            break
        found.append(gpu)
    return found


def why_busy(state: GpuState, ours: frozenset[int] = frozenset()) -> str:
    """Why the GPU is not ours alone, in words; empty if it is. `ours`: process numbers that do not count."""
    others = [p for p in state.processes if p.pid not in ours]
    if others:
        return "used by " + ", ".join(f"{p.name} (process {p.pid})" for p in others[:5])
    if state.utilisation is not None and state.utilisation > BUSY_UTILISATION:
        return f"{state.utilisation} % busy with work of a process that is not visible here"
    if not state.processes and state.memory_used > BUSY_MEMORY:
        return f"{state.memory_used / MIB:.0f} MiB are held by a process that is not visible here"
    return ""


def wait_until_idle(
    uuid: str,
    *,
    timeout: float,
    ours: frozenset[int] = frozenset(),
    interval: float = 2.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    waiting: Callable[[str], None] | None = None,
) -> GpuState:
    """The state of the GPU once nobody else uses it; `waiting` is told when what keeps it busy changes.

    Raises Unavailable after `timeout` seconds, or if it is gone.
    """
    deadline, told = clock() + timeout, ""
    while True:
        state = next((gpu for gpu in gpus() if gpu.uuid == uuid), None)
        if state is None:
            raise Unavailable(f"GPU {uuid} is not there", fix="run `kernelopt doctor`")
        reason = why_busy(state, ours)
        if not reason:
            return state
        if clock() >= deadline:
            raise Unavailable(
                f"GPU {state.index} ({state.name}) is busy: {reason}", where=uuid,
                fix=f"end the other work, choose another GPU, or wait for longer than {timeout:g} s "
                    "(budget.gpu_wait_s in .kernelopt.yml)",
            )
        if waiting is not None and reason != told:
            left = max(0.0, deadline - clock())
            waiting(f"waiting up to {left:.0f} s for GPU {state.index} ({state.name}): {reason}")
            told = reason
        sleep(interval)
