"""Identical code against itself, through gate 4: how often is it adopted?

    python -m benchmarks.aa_runs OUT.json [--device cuda:0] [--runs 200] [--seconds 2] [--sandbox auto]

Two models, half of the runs each: one whose kernels fill the device for about a millisecond, one that is bound by
launches. Baseline, candidate and A/A control are default torch.compile, each compiled once for itself; every run is
one `performance.measure` as a search makes it, within `--seconds` of wall time, statistics included. Not one may be
adopted.

The record (command, commit, gpu, driver, versions, date, every run) is written after every few runs and when the
process is ended; the same command goes on where the record stops, if commit, device and settings are the same.
"""

from __future__ import annotations

import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import click
import numpy as np

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.records import ROOT, head, resumed, save
from kernelopt_bot.config import Config
from kernelopt_bot.gates import performance
from kernelopt_bot.gates.performance import Measured, Settings
from kernelopt_bot.sandbox import probe
from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.search.loading import SEED, TIMEOUT_S
from kernelopt_bot.search.progress import Silent
from kernelopt_bot.search.run import device_of, exclusive
from kernelopt_bot.search.session import bootstrap_seed
from kernelopt_bot.search.stack import DEFAULT

MODELS = {"rmsnorm_swiglu": "examples/rmsnorm_swiglu.py", "host_bound": "examples/demo/host_bound.py"}
SAVE_EVERY = 10
Runs = dict[str, list[dict[str, Any]]]
USED = 0.8
"""Of the time that fixed costs leave in a run: the last round of samples may end late."""


def once(worker: Worker, sampling_s: float, has_gpu: bool) -> Measured:
    """One A/A measurement whose samples take about `sampling_s` seconds."""
    secret = secrets.token_hex(32)
    return performance.measure(
        worker, candidate={**DEFAULT, "name": "candidate"}, baselines=[dict(DEFAULT)],
        settings=Settings(budget_s=sampling_s / performance.DECIDING_SHARE), lever="dispatch", has_gpu=has_gpu,
        secret=secret, seed=bootstrap_seed(secret), others=False)


def outcome(measured: Measured, seconds: float) -> dict[str, Any]:
    """What the record keeps of one run; seconds of wall time."""
    found: dict[str, Any] = {"seconds": round(seconds, 3), "status": str(measured.verdict.status.value),
                             "adopted": measured.verdict.lets_on, "reason": measured.verdict.reason}
    for c in measured.comparisons:
        found |= {"speedup": c.speedup, "low": c.low, "high": c.high, "blocks": c.pairs, "call_ms": c.baseline_ms}
    if measured.noise is not None:
        found["control"] = {"speedup": measured.noise.speedup, "low": measured.noise.low, "high": measured.noise.high}
    states = [s for s in measured.verdict.evidence.get("states", ()) if s]
    for key, name in (("clocks.sm", "sm_clock_mhz"), ("power.draw", "power_w"),
                      ("clocks_throttle_reasons.active", "throttle")):
        if values := [s[key] for s in states if key in s]:
            found[name] = values[-1]
    return found


def summary(runs: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """Counts, and quantiles of the estimates and of the intervals' relative widths."""
    measured = [r for r in runs if "speedup" in r]
    logs = np.log([[r["speedup"], r["low"], r["high"]] for r in measured]).reshape(-1, 3)

    def quantiles(values: Any) -> dict[str, float]:
        return {f"{q:g}": float(np.quantile(values, q)) for q in (0, 0.05, 0.5, 0.95, 1)} if len(values) else {}

    return {"runs": len(runs), "adopted": sum(r["adopted"] for r in runs), "not_measured": len(runs) - len(measured),
            "longer_than_allowed": sum(r["seconds"] > seconds for r in runs),
            "intervals_that_hold_1": sum(r["low"] <= 1 <= r["high"] for r in measured),
            "speedup": quantiles(np.exp(logs[:, 0])), "interval_width": quantiles(logs[:, 2] - logs[:, 1]),
            "seconds": quantiles([r["seconds"] for r in runs])}


def runs_of(path: str, device: str, has_gpu: bool, sandbox: str, seconds: float, wanted: int,
            ) -> Iterator[dict[str, Any]]:
    """Runs of one model in one worker. Two measurements before them compile, and find the fixed costs."""
    jail, _ = probe.select(sandbox, python=sys.executable, device=device)
    with tempfile.TemporaryDirectory() as scratch, Worker(
            "model", python=sys.executable, jail=jail, scratch=Path(scratch), device=device,
            readable=(ROOT / "examples",)) as worker:
        worker.call("load", {"root": str(ROOT / "examples"), "path": str(Path(path).relative_to("examples")),
                             "entry": "Model", "inputs": "get_inputs", "init": "get_init_inputs", "mode": "inference",
                             "device": "cuda:0" if has_gpu else "cpu", "seed": SEED}, timeout=TIMEOUT_S)
        once(worker, 0.01, has_gpu)
        start = time.monotonic()
        once(worker, 0.01, has_gpu)
        sampling_s = max(0.05, USED * (seconds - (time.monotonic() - start)))
        for _ in range(wanted):
            start = time.monotonic()
            measured = once(worker, sampling_s, has_gpu)
            yield outcome(measured, time.monotonic() - start)


def read(path: Path, head: dict[str, Any]) -> Runs:
    """The runs so far. Raises ClickException as `resumed`."""
    old = resumed(path, head)
    return {name: old["models"][name]["runs"] if old else [] for name in MODELS}


def write(path: Path, head: dict[str, Any], runs: Runs) -> None:
    models: dict[str, dict[str, Any]] = {
        name: {"path": MODELS[name], "summary": summary(found, head["seconds"]), "runs": found}
        for name, found in runs.items()}
    save(path, {**head, "adopted": sum(m["summary"]["adopted"] for m in models.values()), "models": models})


def ended(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--device", default="auto", help="As `device` of the configuration.")
@click.option("--runs", default=200, type=click.IntRange(min=1), help="Of both models together.")
@click.option("--seconds", default=2.0, type=click.FloatRange(min=0.1), help="Wall time that a run may take.")
@click.option("--sandbox", default="auto", help="As `sandbox` of the configuration.")
@click.option("--model", "models", multiple=True, type=click.Choice(tuple(MODELS)), default=tuple(MODELS),
              help="Only this one; the first is long on a CPU.")
def main(out: Path, device: str, runs: int, seconds: float, sandbox: str, models: tuple[str, ...]) -> None:
    config = Config.model_validate({"version": 1, "device": device, "sandbox": sandbox})
    where, lane = device_of(config)
    command = (f"python -m benchmarks.aa_runs OUT --device {device} --runs {runs} --seconds {seconds:g} "
               f"--sandbox {sandbox}" + "".join(f" --model {m}" for m in models if len(models) < len(MODELS)))
    begin = {**head(command, where), "seconds": seconds}
    found = read(out, begin)
    signal.signal(signal.SIGTERM, ended)
    try:
        with exclusive(where, lane, Silent(), config.budget.gpu_wait_s):
            for i, name in enumerate(models):
                wanted = (runs + len(models) - 1 - i) // len(models) - len(found[name])
                if wanted <= 0:
                    continue
                click.echo(f"{name}: {wanted} runs", err=True)
                for run in runs_of(MODELS[name], where, lane == "cuda", sandbox, seconds, wanted):
                    found[name].append(run)
                    if len(found[name]) % SAVE_EVERY == 0:
                        write(out, begin, found)
    finally:
        write(out, begin, found)
        done = [r for runs_ in found.values() for r in runs_]
        click.echo(f"{sum(r['adopted'] for r in done)} of {len(done)} adopted, {out}")


if __name__ == "__main__":
    main()
