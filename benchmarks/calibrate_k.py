"""The factor k of the precision rule, from what honest candidates need and what adversaries of precision need.

    python -m benchmarks.calibrate_k OUT [--device cpu] [--secrets 2] [--sizes 512,1024]

Every honest case of `tests/adversarial` and every adversary marked `precision` runs gate 2 on all input families, for
each of several secrets, with k out of the way; so do fp32 matrix products (`products.py`). Of both lines of the rule:

    need(case)      = max over families, outputs, lines of (error - m * baseline's error) / (eps * scale)
    an honest case passes from the largest need over its secrets on;
    an adversary is refused below the smallest need over its secrets.

The interval from the largest honest to the smallest dishonest need must hold k. The rule that chooses: the geometric
mean of its ends, which is as far from either in ratio, rounded down to one digit. Writes the record as JSON: command,
commit, gpu, driver, versions, date, every case's numbers, interval and k.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import torch

from benchmarks.products import measure
from benchmarks.records import head
from kernelopt_bot import config
from kernelopt_bot.contract.candidate import KernelCandidate, Plan
from kernelopt_bot.gates import corpus, correctness
from kernelopt_bot.gates.corpus_case import Case
from kernelopt_bot.gates.verdict import Verdict
from kernelopt_bot.sandbox import probe
from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.search.run import device_of

ROOT = Path(__file__).resolve().parents[1]
FREE = 1e12
"""k that no rounding error reaches: only other classes of values, memory and determinism are then refused."""
LINES = ("k_rmse", "k_max")


def one_digit(value: float) -> float:
    """Rounded down to one significant digit. Raises ValueError unless it is positive."""
    unit = 10.0 ** math.floor(math.log10(value))
    return round(math.floor(value / unit) * unit, 12)


def choose(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """{interval, ends, separates, k} over rows of `{name, kind, k_rmse, k_max}`; other kinds than honest and adversary
    bound nothing.

    A need of None is beyond every k: for an adversary, of the better of the two lines; an honest row with it raises
    ValueError, since no k accepts it.
    """
    def need(row: Mapping[str, Any]) -> float:
        return max(math.inf if row[line] is None else float(row[line]) for line in LINES)

    honest = {str(r["name"]): need(r) for r in rows if r["kind"] == "honest"}
    dishonest = {str(r["name"]): need(r) for r in rows if r["kind"] == "adversary"}
    if beyond := [name for name, value in honest.items() if math.isinf(value)]:
        raise ValueError(f"no k accepts {', '.join(beyond)}")
    low, high = max(honest, key=lambda n: honest[n]), min(dishonest, key=lambda n: dishonest[n])
    separates = honest[low] < dishonest[high]
    return {"interval": [honest[low], dishonest[high]], "ends": [low, high], "separates": separates,
            "k": one_digit(math.sqrt(honest[low] * dishonest[high])) if separates else None}


def needs(verdict: Verdict) -> dict[str, Any]:
    """The largest need of each line over the families that ran, and where. Raises ValueError if none ran."""
    found: dict[str, Any] = {line: 0.0 for line in LINES}
    outputs = [(f["family"], o) for f in verdict.evidence.get("families") or () for o in f["outputs"]]
    if not outputs:
        raise ValueError(verdict.reason)
    for family, output in outputs:
        for line in LINES:
            value = output.get(f"least_{line}", 0.0)
            if found[line] is not None and (value is None or value > found[line]):
                found[line], found[f"{line}_at"] = value, f"{family}, {output['name']}"
    return found


def of_case(case: Case, worker: Worker, lane: str, secrets: Sequence[str], precision: Mapping[str, float],
            budget_s: float) -> dict[str, Any]:
    """The row of one case: the most over its secrets for an honest one, the least for an adversary."""
    candidate = KernelCandidate(case.name, "", 0, (0,), case.source, Plan.from_json(case.plan), "corpus")
    kind = "honest" if case.expect == "honest" else "adversary"
    seen, refused = [], ""
    for secret in secrets:
        verdict = correctness.check_kernel(
            candidate, case.baseline.kernel, case.baseline.step, case.baseline.call(case.stats), worker, lane=lane,
            secret=secret, precision={**precision, "k": FREE}, budget_s=budget_s)
        seen.append(needs(verdict))
        refused = refused or ("" if verdict.lets_on else verdict.reason)
    if kind == "honest" and refused:
        raise ValueError(f"{case.name} is refused for something else than precision: {refused}")

    def need(one: Mapping[str, Any]) -> float:
        return max(math.inf if one[line] is None else one[line] for line in LINES)

    worst = max(seen, key=need) if kind == "honest" else min(seen, key=need)
    return {"name": case.name, "kind": kind, **worst, "otherwise": refused}


@contextlib.contextmanager
def checker(settings: config.Config) -> Iterator[tuple[Worker, str]]:
    """(a kernel worker in a jail, its lane)."""
    device, lane = device_of(settings)
    jail, _ = probe.select(settings.sandbox, python=sys.executable, device=device)
    with tempfile.TemporaryDirectory(prefix="kernelopt-calibrate-") as folder, Worker(
            "kernel", python=sys.executable, jail=jail, scratch=Path(folder) / "worker", device=device,
            interpret=lane != "cuda") as worker:
        yield worker, "cuda" if lane == "cuda" else "interpret"


@click.command()
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
@click.option("--device", default="cpu", help="cpu: the interpreter; cuda or cuda:N.")
@click.option("--secrets", "count", default=2, type=click.IntRange(1, 100), help="Draws of every family.")
@click.option("--sizes", default="", help="Of the matrix products; 512,1024,4096 on a GPU, else 512,1024.")
def main(out: Path, device: str, count: int, sizes: str) -> None:
    """Measure, choose k, and write OUT/calibration_<lane>_<date>.json."""
    settings = config.Config.model_validate({"device": device})
    precision = {"m": settings.gates.m, "m_half": settings.gates.m_half}
    cases = [c for c in corpus.load(ROOT / "tests" / "adversarial") if c.expect == "honest" or c.precision]
    rows = []
    with checker(settings) as (worker, lane):
        for case in cases:
            rows.append(of_case(case, worker, lane, [f"calibration/{i}" for i in range(count)], precision,
                                5.0 if lane == "cuda" else 120.0))
            click.echo(_line(rows[-1]), err=True)
    sides = tuple(int(s) for s in (sizes or ("512,1024,4096" if lane == "cuda" else "512,1024")).split(","))
    for row in measure(torch.device(device), sides, precision["m"]):
        rows.append(row)
        click.echo(_line(row), err=True)
    chosen = choose(rows)
    record = {
        **head(" ".join(["python -m benchmarks.calibrate_k", "OUT", *sys.argv[2:]]), device),
        "lane": lane, "secrets": count, "precision": precision,
        "rule": "geometric mean of the interval's ends, rounded down to one digit", **chosen, "rows": rows}
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"calibration_{lane}_{record['date']}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    click.echo(f"{path.name}: {chosen['interval'][0]:.3g} ({chosen['ends'][0]}) to {chosen['interval'][1]:.3g} "
               f"({chosen['ends'][1]}): " + (f"k = {chosen['k']:g}" if chosen["separates"] else "no k separates them"))


def _line(row: Mapping[str, Any]) -> str:
    numbers = ", ".join(f"{line} {'beyond' if row[line] is None else format(row[line], '.3g')}" for line in LINES)
    return f"{row['kind']:9} {row['name']}: {numbers}"


if __name__ == "__main__":
    main()
