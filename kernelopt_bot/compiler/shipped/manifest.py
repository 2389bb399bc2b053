"""A manifest and its kernels, read as data that nobody vouches for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelopt_bot.compiler.shipped.errors import ArtifactError
from kernelopt_bot.compiler.shipped.kernels import kernel_hash
from kernelopt_bot.compiler.shipped.substitution import Run

SCHEMA = 1
_LIMIT = 16 * 1024 * 1024
"""Largest file in bytes that is read."""


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
        _need(path.stat().st_size <= _LIMIT, f"{path.name} is over {_LIMIT} bytes")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise ArtifactError(f"cannot read {path.name}: {type(e).__name__}; write the artifact anew") from None


def _kernel_text(root: Path, name: Any) -> str:
    """The code of `kernels/<name>.py`, without its header. The path may not leave the folder, not by a link either."""
    _need(isinstance(name, str) and name.endswith(".py"), "a kernel is no .py file")
    base, path = (root / "kernels").resolve(), (root / name).resolve()
    _need(path.parent == base, f"{name!r} is not in kernels/")
    lines = _text(path).split("\n")
    while lines and (lines[0].startswith("#") or not lines[0].strip()):
        del lines[0]
    return "\n".join(lines)


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
        _need(isinstance(constants, dict) and all(isinstance(v, (int, float, str)) for v in constants.values()),
              "launch constexprs")
        _need(_integer(launch.get("num_warps", 4), 1, 32) and _integer(launch.get("num_stages", 1), 0, 16),
              "num_warps and num_stages")


def load_manifest(folder: str | Path) -> Manifest:
    """Read and check `folder`. Raises ArtifactError with what is wrong and what to do."""
    root = Path(folder)
    try:
        data = json.loads(_text(root / "manifest.json"))
    except (ValueError, RecursionError):
        raise ArtifactError("manifest.json is not JSON; write the artifact anew") from None
    _need(isinstance(data, dict) and data.get("schema") == SCHEMA, f"schema {SCHEMA} is what this runtime reads")
    recipe, environment = data.get("recipe", {}), data.get("environment", {})
    _need(isinstance(recipe, dict) and isinstance(environment, dict), "recipe and environment")
    options, pair = recipe.get("options", {}), environment.get("capability")
    _need(isinstance(options, dict) and all(isinstance(v, (bool, int, float, str)) for v in options.values()),
          "recipe options")
    _need(pair is None or (isinstance(pair, list) and len(pair) == 2 and all(_integer(v, 0, 99) for v in pair)),
          "capability")
    runs: dict[str, Run] = {}
    edited: list[str] = []
    entries = data.get("runs", [])
    _need(isinstance(entries, list), "runs")
    for entry in entries:
        _need(isinstance(entry, dict) and isinstance(entry.get("hash"), str) and len(entry["hash"]) == 24, "run hash")
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
    return Manifest(str(data.get("target", "")), runs, options, bool(recipe.get("clone_outputs")), environment,
                    data.get("evidence", {}), tuple(edited))
