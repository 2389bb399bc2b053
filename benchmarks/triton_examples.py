"""`kernelopt optimize` on every Triton kernel of `examples/triton/`, each in a process of its own, and the mean gain.

    python -m benchmarks.triton_examples OUT.json [--device cuda:0] [NAME...] [--deadline SECONDS]

The record (command, commit, gpu, driver, versions, date, and of each kernel what its report says) is written after
every kernel; the same command goes on where the record stops, if commit and device are the same. The geometric mean is
over all kernels of the folder: one that was not measured, or where nothing was adopted, counts as 1.0.
"""

from __future__ import annotations

import ast
import sys
import time
from pathlib import Path
from typing import Any

import click
import numpy as np

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.records import ROOT, head, report_of, resumed, save
from kernelopt_bot.config import Config
from kernelopt_bot.search.run import device_of
from kernelopt_bot.targets.triton_kernels import kernels, marker

FOLDER = ROOT / "examples" / "triton"
GUESS_S = 60.0
"""For the first kernel, as long as nothing is known."""


def listed() -> list[str]:
    """`examples/triton/FILE.py:KERNEL` of every kernel that names what launches it."""
    names = []
    for path in sorted(FOLDER.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        found = kernels(ast.parse(text))
        names += [f"{path.relative_to(ROOT)}:{name}" for name, one in found.items() if any(marker(text, one, found))]
    return names


def outcome(report: dict[str, Any] | None, seconds: float) -> dict[str, Any]:
    """What the record keeps of one kernel."""
    if report is None or not report["targets"]:
        return {"seconds": seconds, "error": (report or {}).get("stopped") or "it wrote no report"}
    (target,) = report["targets"]
    kernel = next((lever for lever in report["levers"] if lever["lever"] == "kernel"), None)
    return {"seconds": seconds, "error": target["error"], "headline": target["headline"],
            "reason": kernel["reason"] if kernel else "", "candidates": target["candidates"],
            "gates": {v["gate"]: v["status"] for v in target["stitched"]}, "noise": report["noise"],
            "adopted": [{k: a[k] for k in ("technique", "rationale", "step")} for a in report["adopted"]],
            "covered": target["covered"]}


def mean(kernels_: dict[str, dict[str, Any]], names: list[str]) -> float:
    """Geometric, over all names."""
    gains = [(kernels_.get(n, {}).get("headline") or {}).get("speedup", 1.0) for n in names]
    return float(np.exp(np.mean(np.log(gains))))


def optimised(name: str, device: str) -> dict[str, Any]:
    begin = time.monotonic()
    report = report_of(name, "--device", device)
    return outcome(report, round(time.monotonic() - begin, 1))


def write(path: Path, begun: dict[str, Any], found: dict[str, dict[str, Any]], names: list[str]) -> None:
    save(path, {**begun, "geomean": mean(found, names), "coverage": sum(n in found for n in names) / len(names),
                "kernels": {n: found[n] for n in names if n in found}})


def read(path: Path, begun: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The kernels so far. Raises ClickException as `resumed`."""
    old = resumed(path, begun)
    known: dict[str, dict[str, Any]] = old["kernels"] if old else {}
    return known


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("only", nargs=-1)
@click.option("--device", default="auto", help="As `device` of the configuration.")
@click.option("--deadline", default=float("inf"), type=float, help="Seconds after which no kernel is begun.")
def main(out: Path, only: tuple[str, ...], device: str, deadline: float) -> None:
    """ONLY: words of which a kernel's name must hold one."""
    begin, names = time.monotonic(), listed()
    where, _ = device_of(Config.model_validate({"version": 1, "device": device}))
    begun = head(f"python -m benchmarks.triton_examples OUT --device {device}", where)
    found = read(out, begun)
    for name in names:
        expected = max([k["seconds"] for k in found.values()], default=GUESS_S)
        if name in found or (only and not any(word in name for word in only)):
            continue
        if time.monotonic() - begin + expected > deadline:
            break
        found[name] = optimised(name, device)
        write(out, begun, found, names)
    for name in names:
        gain = (found.get(name, {}).get("headline") or {}).get("speedup")
        told = f"{gain:.3f}x" if gain else found[name]["error"] or found[name]["reason"] if name in found else "not run"
        click.echo(f"{name.removeprefix('examples/triton/')}: {told}")
    click.echo(f"geometric mean over {len(names)} kernels: {mean(found, names):.3f}x")


if __name__ == "__main__":
    main()
