"""A manifest and its kernels, read as data that nobody vouches for."""

from __future__ import annotations

import json
import math
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelopt_bot.compiler.shipped.errors import ArtifactError
from kernelopt_bot.compiler.shipped.kernels import kernel_hash
from kernelopt_bot.compiler.shipped.recipe import recipe_permits
from kernelopt_bot.compiler.shipped.substitution import Run

SCHEMA = 1
_LIMIT = 16 * 1024 * 1024
"""Largest file in bytes that is read."""
_KERNEL = re.compile(r"kernels/[A-Za-z0-9_][A-Za-z0-9_.-]*\.py")
_HASH = re.compile(r"[0-9a-f]{24}")


@dataclass(frozen=True)
class Manifest:
    target: str
    runs: Mapping[str, Run]
    options: Mapping[str, Any]
    clone_outputs: bool
    environment: Mapping[str, Any]
    evidence: Mapping[str, Any]
    edited: tuple[str, ...]
    """Kernel files whose code is not the one that was verified: they are left out of `runs`."""

    @property
    def capability(self) -> int | None:
        """Compute capability that the kernels were verified on, `90` for 9.0."""
        pair = self.environment.get("capability")
        return pair[0] * 10 + pair[1] if pair else None


def _need(condition: bool, what: str) -> None:
    if not condition:
        raise ArtifactError(f"manifest.json is not valid: {what}; write the artifact anew")


def _integer(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _text(path: Path) -> str:
    try:
        facts = path.stat()
        # A pipe would block, a device never end.
        _need(stat.S_ISREG(facts.st_mode), f"{path.name} is no regular file")
        _need(facts.st_size <= _LIMIT, f"{path.name} is over {_LIMIT} bytes")
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as e:
        raise ArtifactError(f"cannot read {path.name}: {type(e).__name__}; write the artifact anew") from None


def _kernel_text(root: Path, name: Any) -> str:
    """The code of `kernels/<name>.py`, without its header. Below `root` no part of the path may be a link."""
    _need(isinstance(name, str) and _KERNEL.fullmatch(name) is not None, f"{name!r} is no .py file in kernels/")
    path = root / name
    try:
        _need(path.resolve() == root.resolve() / name, f"{name!r} is a link, not in kernels/")
    except (OSError, RuntimeError) as e:
        if isinstance(e, ArtifactError):
            raise
        raise ArtifactError(f"cannot read {name}: {type(e).__name__}; write the artifact anew") from None
    lines = _text(path).split("\n")
    while lines and (lines[0].startswith("#") or not lines[0].strip()):
        del lines[0]
    return "\n".join(lines)


def _constant(value: Any) -> bool:
    return isinstance(value, (int, str)) or (isinstance(value, float) and math.isfinite(value))


def _names(items: Any) -> bool:
    return isinstance(items, list) and all(isinstance(i, dict) and isinstance(i.get("name"), str) for i in items)


def _check_plan(plan: Any) -> None:
    _need(isinstance(plan, dict) and _names(plan.get("parameters")) and _names(plan.get("scratch", [])), "plan")
    _need(all(isinstance(p.get("type"), str) for p in plan["parameters"]), "plan parameters")
    launches = plan.get("launches")
    _need(isinstance(launches, list) and 1 <= len(launches) <= 16, "plan launches")
    for launch in launches:
        _need(isinstance(launch, dict) and isinstance(launch.get("function"), str), "launch function")
        _need(all(isinstance(launch.get(k), list) for k in ("grid", "arguments")), "launch grid and arguments")
        _need(all(isinstance(a, (str, int)) for a in launch["grid"] + launch["arguments"]), "launch expressions")
        constants = launch.get("constexprs", {})
        _need(isinstance(constants, dict) and all(_constant(v) for v in constants.values()), "launch constexprs")
        _need(_integer(launch.get("num_warps", 4), 1, 32) and _integer(launch.get("num_stages", 1), 0, 16),
              "num_warps and num_stages")


def load_manifest(folder: str | Path) -> Manifest:
    """Read and check `folder`. Raises ArtifactError with what is wrong and what to do."""
    root = Path(folder)
    try:
        data = json.loads(_text(root / "manifest.json"))
        # Python reads more than JSON: NaN, infinities, and halves of surrogate pairs, which no file or terminal takes.
        json.dumps(data, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        raise ArtifactError("manifest.json is not JSON; write the artifact anew") from None
    _need(isinstance(data, dict) and data.get("schema") == SCHEMA, f"schema {SCHEMA} is what this runtime reads")
    recipe, environment = data.get("recipe", {}), data.get("environment", {})
    _need(isinstance(recipe, dict) and isinstance(environment, dict), "recipe and environment")
    options, pair = recipe.get("options", {}), environment.get("capability")
    _need(isinstance(options, dict), "recipe options")
    for name, value in options.items():
        _need(recipe_permits(name, value), f"the recipe may not set {name[:80]!r} to {repr(value)[:80]}")
    _need(isinstance(recipe.get("clone_outputs", False), bool), "recipe clone_outputs")
    _need(isinstance(data.get("target", ""), str) and isinstance(data.get("evidence", {}), dict), "target and evidence")
    _need(pair is None or (isinstance(pair, list) and len(pair) == 2 and all(_integer(v, 0, 99) for v in pair)),
          "capability")
    runs: dict[str, Run] = {}
    edited: list[str] = []
    entries = data.get("runs", [])
    _need(isinstance(entries, list), "runs")
    for entry in entries:
        _need(isinstance(entry, dict) and isinstance(entry.get("hash"), str), "run hash")
        _need(_HASH.fullmatch(entry["hash"]) is not None, "run hash")
        counts = entry.get("graphs", [entry.get("count", 0)])
        _need(isinstance(counts, list) and all(_integer(c, 0, 10**6) for c in counts), "run counts")
        _need(_integer(entry.get("steps"), 1, 64), "run steps")
        _check_plan(entry.get("plan"))
        source = _kernel_text(root, entry.get("kernel"))
        # A formatter may touch the file; a changed program may not pass for the verified one.
        if kernel_hash(source) != entry.get("source_hash"):
            edited.append(entry["kernel"])
            continue
        runs[entry["hash"]] = Run(entry["hash"], entry["steps"], source, entry["plan"], tuple(counts), entry["kernel"])
    return Manifest(data.get("target", ""), runs, options, recipe.get("clone_outputs", False), environment,
                    data.get("evidence", {}), tuple(edited))
