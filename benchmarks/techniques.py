"""The playbook's techniques, each on steps it is made for: proposals, gate 1, race, gate 2.

    python -m benchmarks.techniques OUT [NAME...] [--device cuda:0] [--seconds 170] [--sandbox auto]

NAME is a class of `technique_models.py`. For each of its generated kernels that takes a twentieth of the time or more,
every technique of `TECHNIQUES` that applies proposes up to four candidates; those that pass gate 1 race against the
compiler's kernel with a cold cache, and the fastest goes through gate 2. A line a technique: time of the step before
and after, floor (bytes at the measured copy rate), share of the headroom taken. `--device pretend` needs no GPU: small
sizes, gate 1 alone.

Writes OUT/techniques_<gpu>_<date>.json after every model: command, commit, gpu, driver, versions, date, notes, steps.
"""

from __future__ import annotations

import contextlib
import json
import math
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.records import head
from kernelopt_bot.config import Config
from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.device import roofs
from kernelopt_bot.device.profile import Roofs
from kernelopt_bot.errors import KerneloptError
from kernelopt_bot.gates import correctness, static
from kernelopt_bot.playbook.technique import Site, techniques
from kernelopt_bot.sandbox import probe
from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.sandbox.jail import Jail
from kernelopt_bot.sandbox.lend import lend
from kernelopt_bot.search import capturing, pretend_lever
from kernelopt_bot.search.capturing import Captured
from kernelopt_bot.search.loading import SEED
from kernelopt_bot.search.progress import Silent
from kernelopt_bot.search.run import exclusive
from kernelopt_bot.search.sites import Place, configured, places

ROOT = Path(__file__).resolve().parent.parent
MODELS = "benchmarks/technique_models.py"
NAMES = ("VocabularySoftmax", "UnitRows", "WideLayerNorm", "HalfSoftmax", "LogPartition", "FewLongRows", "ColumnNorms",
         "GroupTail", "SquaredLoss", "DilatedPool", "PatchMeans", "SlidingMaximum", "RunningSum", "RemainingSum",
         "JoinedChannels", "ChannelsLast")
TECHNIQUES = ("aligned_rows", "carried_scan", "kept_rows", "layout_tiles", "online_softmax",
              "persistent_reduction", "reversed_passes", "row_pipeline", "row_tiles", "rows_in_flight",
              "separable_windows", "serial_reduction", "shifted_sums", "split_reduction")
FOR_EACH_TECHNIQUE = 4
LEAST_SHARE = 0.05
PAIRS = 8
CHECK_S = 20.0
TIMEOUT_S = 120.0
HEADER = (f"{'model':18} {'technique':21} {'before us':>10} {'after us':>10} {'floor us':>9} {'gain':>6} {'share':>6}"
          "  gate 2")


@dataclass
class Bench:
    """The device, what it can do, and how workers are started on it."""

    device: str
    jail: Jail
    folder: Path
    roofs: Roofs
    arch: int
    known: Mapping[str, Any]
    """What a worker says of its machine (`hello`)."""

    @property
    def pretends(self) -> bool:
        return self.device == "pretend"

    def worker(self, role: Any, name: str, *, gpu: bool = True, interpret: bool = False) -> Worker:
        return Worker(role, python=sys.executable, jail=self.jail, scratch=self.folder / name, interpret=interpret,
                      device="cpu" if self.pretends or not gpu else self.device, readable=(ROOT,), revives=True)


def measured(name: str, bench: Bench, compiling: Worker, worker: Worker) -> Iterator[dict[str, Any]]:
    """A record a step and technique. `compiling` is a kernel worker without a GPU. Raises KerneloptError."""
    with bench.worker("model", f"model-{name}") as model:
        model.call("load", {
            "root": str(ROOT), "path": MODELS, "entry": name, "init": None, "roots": [], "mode": "inference",
            "inputs": f"{MODELS}:{'small' if bench.pretends else 'full'}_{name}",
            "device": "cpu" if bench.pretends else "cuda:0", "seed": SEED}, timeout=TIMEOUT_S)
        for place in _places(name, bench, model, worker):
            yield from _step(name, bench, place, compiling, model, worker)


def _places(name: str, bench: Bench, model: Worker, worker: Worker) -> list[Place]:
    """Steps that take a twentieth of the steps' time, or all where there are no times."""
    known = model.call("hello", {}, timeout=TIMEOUT_S)
    if bench.pretends:
        answer = model.call("capture", {"lane": "pretend", "options": {}, "save_limit_bytes": 1 << 24},
                            timeout=TIMEOUT_S)
        found = capturing.made(pretend_lever.recorded(answer, model, worker), name, "pretend", bench.device, known, {})
        return list(places(found, None, bench.roofs))
    captured: Captured = capturing.capture(model, name, "cuda", bench.roofs.device, known)
    profile = capturing.profile(model, captured, bench.roofs, {})
    total = sum(s.time_us or 0.0 for s in profile.steps)
    return [p for p in places(captured, profile, bench.roofs)
            if p.site.profile is not None and (p.site.profile.time_us or 0.0) >= LEAST_SHARE * total]


def _step(name: str, bench: Bench, place: Place, compiling: Worker, model: Worker,
          worker: Worker) -> Iterator[dict[str, Any]]:
    site = configured(place, compiling.call("compile_baseline", {
        "source": place.site.kernel.source, "target": {"arch": bench.arch}}, timeout=TIMEOUT_S))
    candidates: list[KernelCandidate] = []
    expected: dict[str, float] = {}
    for technique in techniques():
        expectation = technique.applies(site) if technique.name in TECHNIQUES else None
        if expectation is not None:
            expected[technique.name] = expectation.gain
            candidates += [c for c, _ in zip(technique.propose(site), range(FOR_EACH_TECHNIQUE), strict=False)]
    integers = {**correctness.integers(site.step), "num_sms": site.roofs.multiprocessors}
    verdicts = static.check_kernels(candidates, site.kernel, compiling, integers=integers, arch=bench.arch)
    passed = [c for c, v in zip(candidates, verdicts, strict=True) if v.lets_on]
    refused = [f"{c.technique}: {v.reason}" for c, v in zip(candidates, verdicts, strict=True) if not v.lets_on]
    common = {"model": name, "step": site.kernel.name}
    if bench.pretends or not passed:
        yield {**common, "passed": [c.id for c in passed], "refused": refused, "expected": expected}
        return
    arguments = lend(dict(place.call), model.scratch, worker.scratch)
    before, times, errors = _race(site, passed, arguments, worker)
    assert site.profile is not None
    floor = site.profile.floor_us
    order = sorted(times, key=lambda c: times[c])
    checked = _gate2(site, next((c for c in passed if order and c.id == order[0]), None), arguments, worker)
    for technique_name, gain in expected.items():
        own = [c for c in passed if c.technique == technique_name]
        best = min((c for c in own if c.id in times), key=lambda c: times[c.id], default=None)
        after = times[best.id] if best else None
        share = (math.log(before / after) / math.log(before / floor) if after and before > 1.01 * floor else None)
        yield {**common, "technique": technique_name, "before_us": before, "after_us": after, "floor_us": floor,
               "expected": gain, "gain": before / after if after else None, "share": share,
               "rationale": best.rationale if best else "", "candidates": {c.rationale: times.get(c.id) for c in own},
               "gate2": checked if best and order and best.id == order[0] else "not the fastest",
               "errors": [errors[c.id] for c in own if c.id in errors],
               "refused": [r for r in refused if r.startswith(f"{technique_name}:")]}


def _race(site: Site, passed: list[KernelCandidate], arguments: Mapping[str, Any],
          worker: Worker) -> tuple[float, dict[str, float], dict[str, str]]:
    """(baseline, candidate id -> median microseconds, candidate id -> why there are none)."""
    answer = worker.call("tune_step", {
        "baseline": {"source": site.kernel.source, "integers": correctness.integers(site.step)},
        "candidates": [{"source": c.source, "plan": c.plan.to_json()} for c in passed], "pairs": PAIRS,
        "cache": "cold", "arguments": correctness.step_arguments(site.step, arguments),
        "secret": secrets.token_hex(32)}, timeout=TIMEOUT_S)
    found = dict(zip((c.id for c in passed), answer["candidates"], strict=True))
    return (statistics.median(answer["baseline_us"]),
            {i: statistics.median(raced["us"]) for i, raced in found.items() if raced.get("us")},
            {i: str(raced.get("error", "no times"))[:500] for i, raced in found.items() if not raced.get("us")})


def _gate2(site: Site, best: KernelCandidate | None, arguments: Mapping[str, Any], worker: Worker) -> str:
    if best is None:
        return ""
    gates = Config().gates
    verdict = correctness.check_kernel(
        best, site.kernel, site.step, arguments, worker, lane="cuda", secret=secrets.token_hex(32),
        precision={"m": gates.m, "k": gates.k, "m_half": gates.m_half}, budget_s=CHECK_S)
    return f"{verdict.status.value}{f': {verdict.reason}' if verdict.reason else ''}"


def line(record: Mapping[str, Any]) -> str:
    """One record as a row under `HEADER`."""
    if "technique" not in record:
        rest = f"{len(record['passed'])} candidates pass gate 1, refused: {record['refused']}"
        return f"{record['model']:18} {record['step']}: {rest}"

    def shown(key: str, width: int, digits: int) -> str:
        value = record[key]
        return f"{value:{width}.{digits}f}" if value is not None else " " * (width - 1) + "-"

    return (f"{record['model']:18} {record['technique']:21} {shown('before_us', 10, 1)} {shown('after_us', 10, 1)} "
            f"{shown('floor_us', 9, 1)} {shown('gain', 6, 3)} {shown('share', 6, 2)}  {record['gate2']} "
            f"[{record['rationale']}] {' '.join(record['errors'])}")


def begun(device: str, sandbox: str, folder: Path) -> Bench:
    """Raises KerneloptError where there is no such device or no jail."""
    real = "cpu" if device == "pretend" else device
    jail, _ = probe.select(sandbox, python=sys.executable, device=real)
    with Worker("kernel", python=sys.executable, jail=jail, scratch=folder / "roofs", device=real) as worker:
        known = worker.call("hello", {}, timeout=TIMEOUT_S)
        if device == "pretend":
            return Bench(device, jail, folder, roofs.pretended(), pretend_lever.ARCH, known)
        major, minor = known["gpu"]["capability"]
        return Bench(device, jail, folder, roofs.measured(worker.call, known["gpu"]), 10 * major + minor, known)


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.argument("names", nargs=-1)
@click.option("--device", default="cuda:0", show_default=True)
@click.option("--seconds", default=170.0, show_default=True, help="No further model is begun after this time.")
@click.option("--sandbox", default="auto", show_default=True)
def main(out: Path, names: tuple[str, ...], device: str, seconds: float, sandbox: str) -> None:
    begin = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        stack.enter_context(exclusive(device, "cpu" if device == "pretend" else "cuda", Silent()))
        bench = begun(device, sandbox, Path(folder))
        gpu = bench.known.get("gpu") or {"name": "", "driver": ""}
        kind = "h200" if "H200" in gpu["name"] else (gpu["name"] or "pretended").lower().replace(" ", "-")
        command = f"python -m benchmarks.techniques OUT --device {device}"
        record = {**head(command, "cpu" if device == "pretend" else device), "notes": [], "steps": [],
                  "versions": {k: bench.known.get(k) for k in ("python", "torch", "triton", "cuda")}}
        path = out / f"techniques_{kind}_{record['date']}.json"
        compiling = stack.enter_context(bench.worker("kernel", "compile", gpu=False))
        worker = stack.enter_context(bench.worker("kernel", "kernels", interpret=bench.pretends))
        print(HEADER, flush=True)
        for name in names or NAMES:
            if time.monotonic() - begin > seconds:
                record["notes"].append(f"{name}: not begun, {seconds:.0f} s had passed")
                print(record["notes"][-1], flush=True)
                continue
            started = time.monotonic()
            try:
                for found in measured(name, bench, compiling, worker):
                    record["steps"].append(found)
                    print(line(found), flush=True)
            except KerneloptError as e:
                record["notes"].append(f"{name}: {e}")
                print(record["notes"][-1], flush=True)
            print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)
            path.write_text(json.dumps(record, indent=1) + "\n")
        print(path)


if __name__ == "__main__":
    main()
