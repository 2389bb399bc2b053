"""What a compiled kernel is made of: registers, spills, shared memory and the kinds of its instructions.

Read from the cubin by the `cuobjdump` and `nvdisasm` that Triton ships, so that no GPU is needed.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from typing import Any

KINDS = (
    "HGMMA", "QGMMA", "IGMMA", "HMMA", "QMMA", "IMMA", "DMMA", "MUFU", "ATOM", "ATOMG", "ATOMS", "RED", "REDG",
    "LDL", "STL", "LDG", "STG", "LDS", "STS", "LDGSTS", "UTMALDG", "UTMASTG", "LDSM", "SHFL", "BAR", "FFMA", "DFMA",
    "F2F", "CALL",
)
"""SASS mnemonics worth counting: matrix units, special functions, atomics, local (spilled) and global memory."""
TIMEOUT_S = 60


def _tool(name: str) -> str | None:
    import triton

    path = os.path.join(os.path.dirname(triton.__file__), "backends", "nvidia", "bin", name)
    return path if os.access(path, os.X_OK) else None


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return done.stdout if done.returncode == 0 else ""


def resources(usage: str) -> dict[str, int]:
    """`REG:26 STACK:0 SHARED:512 LOCAL:0 ...` of `cuobjdump -res-usage`, largest over the functions."""
    found: dict[str, int] = {}
    for word in usage.split():
        name, _, number = word.partition(":")
        if number.isdigit():
            found[name] = max(found.get(name, 0), int(number))
    return found


def instructions(sass: str) -> dict[str, int]:
    """Counts of the mnemonics in KINDS in a `cuobjdump -sass` or `nvdisasm` listing."""
    counts: dict[str, int] = {}
    for line in sass.splitlines():
        text = line.partition("*/")[2].strip() if "/*" in line else ""
        words = text.split()
        if words and words[0].startswith("@"):
            words = words[1:]
        if not words:
            continue
        parts = words[0].rstrip(";").split(".")
        kind = parts[0]
        if kind in KINDS:
            counts[kind] = counts.get(kind, 0) + 1
        if kind in ("HMMA", "HGMMA") and "TF32" in parts:
            counts["TF32"] = counts.get("TF32", 0) + 1
        if kind in ("HMMA", "HGMMA") and "BF16" in parts:
            counts["BF16"] = counts.get("BF16", 0) + 1
    return counts


def of_cubin(cubin: bytes, metadata: Any) -> dict[str, Any]:
    """`Facts` of docs/architecture.md.

    `spills` is in 32-bit words a thread, like Triton's `n_spills`; registers and spills are None where the tools are
    missing. `shared` is Triton's own figure in bytes, static and dynamic. `TF32` and `BF16` in `instructions` count
    the matrix instructions of those input types once more.
    """
    facts: dict[str, Any] = {"registers": None, "spills": None, "shared": int(metadata.shared),
                             "cubin_bytes": len(cubin), "instructions": {}}
    cuobjdump, nvdisasm = _tool("cuobjdump"), _tool("nvdisasm")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        if cuobjdump is not None:
            usage = resources(_run(cuobjdump, "-res-usage", file.name))
            facts["registers"] = usage.get("REG")
            if "STACK" in usage:
                facts["spills"] = (usage["STACK"] + usage.get("LOCAL", 0)) // 4
        if nvdisasm is not None:
            # Without its data-flow analysis, which is a third of its time and adds labels alone.
            facts["instructions"] = instructions(_run(nvdisasm, "-c", "-ndf", file.name))
    return facts


def worst(facts: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Element-wise larger of two `Facts`' sizes, instructions added."""
    sizes = {key: max(facts[key] or 0, other[key] or 0) for key in ("registers", "spills", "shared", "cubin_bytes")}
    kinds = {*facts["instructions"], *other["instructions"]}
    both = {k: facts["instructions"].get(k, 0) + other["instructions"].get(k, 0) for k in sorted(kinds)}
    return {**sizes, "instructions": both}
