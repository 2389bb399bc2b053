"""What `kernelopt doctor` shows: one `Finding` a fact, each with what to do where it is wanting."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernelopt_bot import process
from kernelopt_bot.device.state import gpus, why_busy
from kernelopt_bot.errors import KerneloptError, Unavailable
from kernelopt_bot.sandbox.binds import resolve_python
from kernelopt_bot.sandbox.gpu import pick
from kernelopt_bot.sandbox.probe import ORDER, probe_name

Level = Literal["ok", "note", "missing", "blocking"]

DISK_BYTES = 2 << 30
"""A run's compiler caches and saved tensors took up to about this much."""
TORCH = ((2, 11), (2, 13))
"""First and last minor version of torch that is supported."""
PYTHON = ((3, 11), (3, 12))

ASK_INTERPRETER = """
import json, sys
facts = {"python": sys.version.split()[0]}
for name in ("torch", "triton"):
    try:
        module = __import__(name)
        facts[name] = module.__version__
    except Exception as e:
        facts[name + "_error"] = f"{type(e).__name__}: {e}"[:300]
if "torch" in facts:
    facts["cuda"] = sys.modules["torch"].version.cuda
if "triton" in facts:
    try:
        from triton import knobs
        facts["ptxas"] = knobs.nvidia.ptxas.path
    except Exception as e:
        facts["ptxas_error"] = f"{type(e).__name__}: {e}"[:300]
print("\\n" + json.dumps(facts))
"""


@dataclass(frozen=True)
class Finding:
    topic: str
    level: Level
    """`blocking`: no run is possible; `missing`: something is not possible; `note`: worth knowing."""
    text: str
    fix: str = ""


def interpreter(python: str) -> tuple[list[Finding], str]:
    """Findings about the configured interpreter, and its resolved path ('' if it cannot be used)."""
    try:
        path = resolve_python(python)
        done = process.run([path, "-I", "-c", ASK_INTERPRETER], timeout=120, environment=process.environment())
        facts = json.loads(done.stdout.strip().splitlines()[-1])
    except (KerneloptError, ValueError, IndexError) as e:
        return [Finding("python", "blocking", str(e).splitlines()[0], "set environment.python in .kernelopt.yml")], ""
    found = [_version("python", facts["python"], PYTHON, path)]
    if "torch" in facts:
        found.append(_version("torch", facts["torch"], TORCH, f"CUDA {facts['cuda'] or 'none: a CPU build'}"))
    else:
        found.append(Finding("torch", "blocking", facts["torch_error"], f"{path} -m pip install torch"))
    if "triton" in facts:
        found.append(Finding("triton", "ok", facts["triton"]))
    else:
        found.append(Finding("triton", "missing", facts["triton_error"], "install the triton that your torch pins; "
                             "without it the `kernel` lever is off"))
    found.append(_ptxas(facts))
    return found, path


def _version(topic: str, text: str, supported: tuple[tuple[int, int], tuple[int, int]], more: str) -> Finding:
    first, last = supported
    numbers = tuple(int(part) for part in text.split("+")[0].split(".")[:2] if part.isdigit())
    span = f"{first[0]}.{first[1]} to {last[0]}.{last[1]}"
    if first <= numbers <= last:
        return Finding(topic, "ok", f"{text} ({more})")
    return Finding(topic, "blocking", f"{text} ({more}) is not supported", f"use {topic} {span}")


def _ptxas(facts: dict[str, str]) -> Finding:
    path = facts.get("ptxas", "")
    if path and os.access(path, os.X_OK):
        return Finding("compiler without GPU", "ok", "ptxas of triton: kernels compile for any architecture")
    why = facts.get("ptxas_error") or "triton brings no ptxas"
    return Finding("compiler without GPU", "missing", why, "install triton's own wheel; gate 1 needs its ptxas")


def graphics(device: str) -> list[Finding]:
    present = gpus()
    if device not in ("auto", "cpu", "pretend"):
        try:
            pick(device, present)
        except Unavailable as e:
            return [Finding("gpu", "blocking", e.what, e.fix)]
    if not present:
        why = "no GPU: nvidia-smi finds none" if shutil.which("nvidia-smi") else "no GPU: there is no nvidia-smi"
        return [Finding("gpu", "note", f"{why}. The `kernel` lever stops at gate 3 and adopts nothing; `dispatch` and "
                        "`launch` work on the CPU", "a runner with an NVIDIA GPU, to measure and adopt kernels")]
    found = []
    for gpu in present:
        busy = why_busy(gpu)
        free = (gpu.memory_total - gpu.memory_used) / 2**30
        text = f"{gpu.name}, driver {gpu.driver}, {free:.1f} of {gpu.memory_total / 2**30:.1f} GiB free"
        if not gpu.memory_total:
            text = f"{gpu.name}; there is no nvidia-smi, so whether others use it is not known"
        found.append(Finding(f"gpu {gpu.index}", "note" if busy else "ok", text + (f"; {busy}" if busy else ""),
                             "a run waits until it is idle" if busy else ""))
    return found


def jails(wanted: str, python: str, device: str) -> list[Finding]:
    """Each jail tried for real; blocking if the wanted one, or with `auto` every one, does not work."""
    found = []
    for name in ORDER:
        _, result = probe_name(name, python=python, device=device)
        level: Level = "ok" if result.works else "blocking" if wanted == name else "missing"
        found.append(Finding(f"jail {name}", level, f"{result.reason} ({result.seconds:.1f} s)", result.fix))
    if wanted == "process":
        found.append(Finding("jail process", "note", "chosen in .kernelopt.yml: no isolation", "sandbox: auto"))
    elif wanted == "auto" and not any(f.level == "ok" for f in found):
        found.append(Finding("jail", "blocking", "none works, and a run fails closed",
                             "one of the above; or `sandbox: process`, where the code under test is trusted"))
    return found


def tools() -> list[Finding]:
    wanted = {
        "git": ("blocking", ["git", "--version"], "install git"),
        "gcc": ("missing", ["gcc", "--version"], "install a C compiler: Triton and Inductor on the CPU need it"),
        "nsight compute": ("note", ["ncu", "--version"], "optional: install Nsight Compute for hardware counters"),
        "compute-sanitizer": ("note", ["compute-sanitizer", "--version"], "optional: part of the CUDA toolkit"),
    }
    found = []
    for topic, (level, command, fix) in wanted.items():
        try:
            done = process.run(command, timeout=20, environment=process.environment())
            lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
            text = next((line for line in lines if any(c.isdigit() for c in line)), "present")
            found.append(Finding(topic, "ok", text[:100]))
        except process.ProcessError as e:
            found.append(Finding(topic, level, f"not usable: {e.why}", fix))  # type: ignore[arg-type]
    return found


def disk(folder: Path, wanted: int = DISK_BYTES) -> Finding:
    """`wanted` in bytes."""
    free = shutil.disk_usage(folder).free
    text = f"{free / 2**30:.1f} GiB free in {folder}"
    if free >= wanted:
        return Finding("disk", "ok", text)
    return Finding("disk", "blocking", text, f"a run wants {wanted / 2**30:.0f} GiB: free some, or set TMPDIR")


def token() -> Finding:
    """Whether there is one; it is not read further, sent or shown."""
    if os.environ.get("GITHUB_TOKEN") or os.environ.get("GH_TOKEN"):
        return Finding("github token", "ok", "present (what it may do shows when it is used)")
    return Finding("github token", "note", "none: results are written into the local repository or as files",
                   "set GITHUB_TOKEN to open pull requests")


def examine(*, python: str = "", sandbox: str = "auto", device: str = "auto") -> list[Finding]:
    """Everything about this machine, in the order in which it is read."""
    found, path = interpreter(python or sys.executable)
    found += graphics(device)
    if path:
        found += jails(sandbox, path, device)
    return [*found, *tools(), disk(Path(tempfile.gettempdir())), token()]


def possible(findings: Iterable[Finding]) -> bool:
    return not any(finding.level == "blocking" for finding in findings)
