"""What fusing neighbouring kernels gains on a GPU: capture, gate 1, race against the compiler's kernels, gate 2.

    python -m benchmarks.fusions OUT.json [--device cuda:0] [--model NAME]...

The models are ours (`fusion_models.py`). Times are of the run of steps alone, cold L2, as the kernel lever's races
measure them; no model gate is run. The record has the command, commit, gpu, driver, versions and date.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.fusion_models import MODELS
from benchmarks.records import head
from kernelopt_bot.config import Gates
from kernelopt_bot.device import roofs
from kernelopt_bot.gates import correctness, static
from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.sandbox.jail import ProcessJail
from kernelopt_bot.sandbox.lend import lend
from kernelopt_bot.search import capturing
from kernelopt_bot.search.loading import SEED, TIMEOUT_S
from kernelopt_bot.search.runs import RunPlace, configured, run_places

HERE = Path(__file__).resolve().parent
PAIRS = 25
PLACES = 3
CHECK_S = 30.0


def inputs_of(model: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in model).strip("_")


def tried(place: RunPlace, model: Worker, compiler: Worker, gpu: Worker, arch: int) -> dict[str, Any]:
    """Gate 1, race and gate 2 of the candidates for one run."""
    run, began = place.site.run, time.monotonic()
    found: dict[str, Any] = {"replaces": [k.name for k in run.kernels], "calls": place.calls,
                             "expected": place.expected.gain, "why": place.expected.reason}
    answers = [compiler.call("compile_baseline", {"source": k.source, "target": {"arch": arch}}, timeout=TIMEOUT_S)
               for k in run.kernels]
    passed, refused = [], []
    for candidate in place.proposals(configured(place, answers)):
        verdict = static.check_kernel(candidate, run, compiler, integers=place.integers, arch=arch)
        if verdict.lets_on:
            passed.append(candidate)
        else:
            refused.append(verdict.reason)
    found["refused_by_gate_1"] = refused
    if not passed:
        return {**found, "seconds": time.monotonic() - began}
    arguments = place.arguments(lend(list(place.recorded), model.scratch, gpu.scratch))
    race = gpu.call("time_step", {
        "baseline": place.baseline(), "arguments": arguments, "pairs": PAIRS, "cache": "cold", "secret": "fusions",
        "candidates": [{"source": c.source, "plan": c.plan.to_json()} for c in passed]}, timeout=TIMEOUT_S)
    before = statistics.median(race["baseline_us"])
    times = [statistics.median(c["us"]) if c.get("us") else None for c in race["candidates"]]
    found |= {"before_us": before, "candidates": [
        {"rationale": c.rationale, "us": t, "error": r.get("error", "")}
        for c, t, r in zip(passed, times, race["candidates"], strict=True)]}
    timed = [(t, c) for t, c in zip(times, passed, strict=True) if t is not None]
    if timed:
        after, best = min(timed, key=lambda pair: pair[0])
        gates = Gates()
        verdict = correctness.check_run(
            best, run, arguments, gpu, lane="cuda", secret="fusions", budget_s=CHECK_S,
            precision={"m": gates.m, "k": gates.k, "m_half": gates.m_half})
        found |= {"after_us": after, "speedup": before / after, "gate_2": verdict.status.value,
                  "gate_2_reason": verdict.reason}
    return {**found, "seconds": time.monotonic() - began}


def measured(name: str, device: str, folder: Path) -> list[dict[str, Any]]:
    """Every run of a model that a fusion applies to, most savings first."""
    def worker(role: Any, at: str, where: str) -> Worker:
        return Worker(role, python=sys.executable, jail=ProcessJail(), scratch=folder / at, device=where,
                      readable=(HERE,))

    with worker("model", "model", device) as model, worker("kernel", "compiler", "cpu") as compiler, \
            worker("kernel", "gpu", device) as gpu:
        hello = model.call("hello", {}, timeout=TIMEOUT_S)
        model.call("load", {"root": str(HERE), "path": "fusion_models.py", "entry": name, "inputs": inputs_of(name),
                            "init": "", "mode": "inference", "device": "cuda:0", "seed": SEED}, timeout=TIMEOUT_S)
        captured = capturing.capture(model, name, "cuda", hello["gpu"]["name"], hello)
        ceilings = roofs.measured(gpu.call, hello["gpu"])
        major, minor = hello["gpu"]["capability"]
        profile = capturing.profile(model, captured, ceilings, {})
        return [tried(p, model, compiler, gpu, 10 * major + minor)
                for p in run_places(captured, profile, ceilings)[:PLACES]]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--device", default="cuda:0", help="cuda, cuda:N or a GPU's UUID.")
@click.option("--model", "models", multiple=True, type=click.Choice(MODELS), help="Of fusion_models.py; default all.")
def main(out: Path, device: str, models: Sequence[str]) -> None:
    record = {**head(f"python -m benchmarks.fusions OUT --device {device}", device), "models": {}}
    for name in models or MODELS:
        with tempfile.TemporaryDirectory() as folder:
            record["models"][name] = runs = measured(name, device, Path(folder))
        out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        for r in runs or [{"replaces": []}]:
            click.echo(f"{name}: {len(r['replaces'])} kernels: {r.get('before_us', 0):.1f} -> "
                       f"{r.get('after_us', 0):.1f} us, {r.get('speedup', 0):.2f}x, gate 2 {r.get('gate_2', '-')} "
                       f"{r.get('gate_2_reason', '')}")


if __name__ == "__main__":
    main()
