"""How long the gates take: gates 1 and 2 of a large pointwise kernel, gate 4 of a 1 ms model, the sandbox's share.

    python -m benchmarks.gate_speed OUT.json [--device cuda:0] [--elements 67108864] [--sandbox auto]

| figure | limit |
|---|---|
| seconds of the GPU worker for gates 1 and 2 of a pointwise kernel of 64M elements, after the compile | 5 |
| seconds of gate 4 for a model of about 1 ms, every metric and cache state, after the compile | 10 |
| seconds that the jail adds to a warm candidate's gates, against a process without one | 0.3 |

The record (command, commit, gpu, driver, versions, date, figures) says of each figure whether it keeps its limit.
Without a GPU the kernel is interpreted, so that only the sandbox's share means anything.
"""

from __future__ import annotations

import json
import secrets
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.records import head
from kernelopt_bot.config import Config
from kernelopt_bot.gates import correctness, performance
from kernelopt_bot.gates.performance import Settings
from kernelopt_bot.sandbox import probe
from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.sandbox.jail import Jail, ProcessJail
from kernelopt_bot.search.loading import SEED, TIMEOUT_S
from kernelopt_bot.search.progress import Silent
from kernelopt_bot.search.run import device_of, exclusive
from kernelopt_bot.search.session import bootstrap_seed
from kernelopt_bot.search.stack import DEFAULT

ROOT = Path(__file__).resolve().parent.parent
LIMITS = {"gates_1_and_2_s": 5.0, "gate_4_s": 10.0, "sandbox_s": 0.3}
MODEL = "rmsnorm_swiglu.py"
SMALL = 1 << 16
"""Elements of the warm candidate: its own work is short, so that the jail's share shows."""

_HEAD = """
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.hints import AutotuneHint, DeviceProperties, ReductionHint, TileHint
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
"""
BASELINE = _HEAD + """
triton_helpers.set_driver_to_gpu()

@triton_heuristics.pointwise(
    size_hints={{'x': {elements}}},
    filename=__file__,
    triton_meta={{'signature': {{'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'xnumel': 'i32', 'XBLOCK': 'constexpr'}},
        'device': DeviceProperties(type='cuda', index=0, multi_processor_count={processors}, cc={capability},
            major={major}, regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048,
            max_threads_per_block=1024, warp_size=32),
        'constants': {{}}, 'configs': [{{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]],
            (2,): [['tt.divisibility', 16]]}}]}},
    inductor_meta={{'grid_type': 'Grid1D', 'kernel_name': 'softsign', 'mutated_arg_names': [], 'no_x_dim': False,
        'num_load': 1, 'num_store': 1, 'num_reduction': 0, 'autotune_hints': set()}},
)
@triton.jit
def softsign(in_ptr0, out_ptr0, xnumel, XBLOCK: tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    tmp0 = tl.load(in_ptr0 + xindex, xmask)
    tl.store(out_ptr0 + xindex, tmp0 / (1.0 + tl_math.abs(tmp0)), xmask)
"""
CANDIDATE = """
import triton
import triton.language as tl
from torch._inductor.runtime.triton_helpers import math as tl_math

@triton.jit
def softsign_tiles(in_ptr0, out_ptr0, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(in_ptr0 + i, i < n)
    tl.store(out_ptr0 + i, x / (1.0 + tl_math.abs(x)), i < n)
"""


class Place:
    """A worker, and the kernel as its gates 1 and 2 take it."""

    def __init__(self, worker: Worker, has_gpu: bool) -> None:
        self.worker, self.has_gpu = worker, has_gpu
        gpu = worker.call("hello", {}, timeout=TIMEOUT_S)["gpu"] or {"capability": [9, 0], "multiprocessors": 132}
        major, minor = gpu["capability"]
        self.arch, self.processors = 10 * major + minor, gpu["multiprocessors"]

    def gates(self, elements: int) -> dict[str, Any]:
        """Seconds of gate 1's compile (where this worker compiles), and of gate 2 by its own clock and by ours.

        Raises WorkerError; RuntimeError if the candidate, which is honest, does not pass.
        """
        block = 1024 if self.has_gpu else min(elements, SMALL)
        source = BASELINE.format(elements=elements, processors=self.processors, capability=self.arch,
                                 major=self.arch // 10)
        plan = {"parameters": [{"name": "in_ptr0", "type": "*fp32", "written": False, "read": True},
                               {"name": "out_ptr0", "type": "*fp32", "written": True, "read": False},
                               {"name": "xnumel", "type": "i32", "written": False, "read": True}],
                "launches": [{"function": "softsign_tiles", "grid": [f"cdiv(xnumel, {block})"],
                              "arguments": ["in_ptr0", "out_ptr0", "xnumel"], "constexprs": {"BLOCK": block},
                              "num_warps": 4}], "scratch": []}
        tensor = {"meta": {"dtype": "float32", "shape": [elements], "stride": [1], "offset": 0,
                           "storage_bytes": 4 * elements, "device": "cuda:0"},
                  "stats": {"min": -4.0, "max": 4.0, "mean": 0.0, "std": 1.0, "finite": True}}
        begin = time.monotonic()
        if self.has_gpu:
            self.worker.call("compile_candidate", {
                "source": CANDIDATE, "plan": plan, "integers": {"xnumel": elements}, "target": {"arch": self.arch},
                "baseline": source}, timeout=TIMEOUT_S)
        compiled = time.monotonic()
        gates = Config().gates
        answer = self.worker.call("check_step", {
            "baseline": {"source": source, "integers": {}}, "candidate": {"source": CANDIDATE, "plan": plan},
            "arguments": [tensor, tensor, elements], "lane": "cuda" if self.has_gpu else "interpret",
            "secret": secrets.token_hex(32), "families": list(correctness.FAMILIES),
            "precision": {"m": gates.m, "k": gates.k, "m_half": gates.m_half}}, timeout=TIMEOUT_S)
        if not all(f["passed"] for f in answer["families"]):
            raise RuntimeError(f"the honest candidate failed: {answer['families'][-1]['reason']}")
        return {"gate_1_s": compiled - begin, "gate_2_s": answer["seconds"],
                "round_trip_s": time.monotonic() - begin, "families": len(answer["families"]),
                "float64": answer["float64"], "golden": answer["golden"], "peak_bytes": answer["peak_bytes"]}


def kernel_worker(jail: Jail, folder: Path, device: str, has_gpu: bool) -> Worker:
    return Worker("kernel", python=sys.executable, jail=jail, scratch=folder, device=device if has_gpu else "cpu",
                  interpret=not has_gpu)


def large(jail: Jail, device: str, has_gpu: bool, elements: int) -> dict[str, Any]:
    """Gates 1 and 2, the first time with the compile, then without."""
    with tempfile.TemporaryDirectory() as folder, kernel_worker(jail, Path(folder), device, has_gpu) as worker:
        place = Place(worker, has_gpu)
        first, second = place.gates(elements), place.gates(elements)
    return {"elements": elements, "with_compile": first, "after_compile": second,
            "seconds": second["gate_1_s"] + second["gate_2_s"]}


def overhead(jail: Jail, device: str, has_gpu: bool, repeats: int) -> dict[str, Any]:
    """A warm candidate in the jail and without one, in turn; and how long the worker takes until it answers."""
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        workers: dict[str, Worker] = {}
        try:
            places: dict[str, Place] = {}
            for name, one in (("jail", jail), ("process", ProcessJail())):
                begin = time.monotonic()
                workers[name] = kernel_worker(one, Path(folder) / name, device, has_gpu)
                places[name] = Place(workers[name], has_gpu)
                found[name] = {"start_s": time.monotonic() - begin, "round_trips_s": []}
                places[name].gates(SMALL)
            for _ in range(repeats):
                for name, place in places.items():
                    found[name]["round_trips_s"].append(place.gates(SMALL)["round_trip_s"])
        finally:
            for worker in workers.values():
                worker.close()
    medians = {name: statistics.median(f["round_trips_s"]) for name, f in found.items()}
    return {"name": jail.name, **found, "median_s": medians, "seconds": medians["jail"] - medians["process"],
            "start_s": found["jail"]["start_s"] - found["process"]["start_s"]}


def gate_4(jail: Jail, device: str, has_gpu: bool) -> dict[str, Any]:
    """Default torch.compile against itself: what cannot be decided early takes longest."""
    with tempfile.TemporaryDirectory() as folder, Worker(
            "model", python=sys.executable, jail=jail, scratch=Path(folder), device=device,
            readable=(ROOT / "examples",)) as worker:
        worker.call("load", {"root": str(ROOT / "examples"), "path": MODEL, "entry": "Model", "inputs": "get_inputs",
                             "init": "get_init_inputs", "mode": "inference",
                             "device": "cuda:0" if has_gpu else "cpu", "seed": SEED}, timeout=TIMEOUT_S)

        def measured(settings: Settings) -> performance.Measured:
            secret = secrets.token_hex(32)
            return performance.measure(
                worker, candidate={**DEFAULT, "name": "candidate"}, baselines=[dict(DEFAULT)], settings=settings,
                lever="dispatch", has_gpu=has_gpu, secret=secret, seed=bootstrap_seed(secret))

        begin = time.monotonic()
        measured(Settings(budget_s=0.05))
        compiled = time.monotonic()
        result = measured(Settings())
        seconds = time.monotonic() - compiled
    return {"model": MODEL, "compile_s": compiled - begin, "seconds": seconds, "status": result.verdict.status.value,
            "reason": result.verdict.reason,
            "comparisons": [{"metric": c.metric, "cache": c.cache, "call_ms": c.baseline_ms, "blocks": c.pairs}
                            for c in result.comparisons]}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--device", default="auto", help="As `device` of the configuration.")
@click.option("--elements", default=1 << 26, type=click.IntRange(min=1), help="Of the large kernel.")
@click.option("--sandbox", default="auto", help="As `sandbox` of the configuration.")
@click.option("--repeats", default=9, type=click.IntRange(min=1), help="Of the warm candidate, in and out of the jail.")
@click.option("--without-gate-4", is_flag=True, help="On a CPU the 1 ms model is long.")
def main(out: Path, device: str, elements: int, sandbox: str, repeats: int, without_gate_4: bool) -> None:
    config = Config.model_validate({"version": 1, "device": device, "sandbox": sandbox})
    where, lane = device_of(config)
    has_gpu = lane == "cuda"
    jail, _ = probe.select(sandbox, python=sys.executable, device=where)
    command = (f"python -m benchmarks.gate_speed OUT --device {device} --elements {elements} --sandbox {sandbox}"
               + (" --without-gate-4" if without_gate_4 else ""))
    record = {**head(command, where), "jail": jail.name}
    with exclusive(where, lane, Silent(), config.budget.gpu_wait_s):
        record["gates_1_and_2"] = large(jail, where, has_gpu, elements)
        record["sandbox"] = overhead(jail, where, has_gpu, repeats)
        record["gate_4"] = None if without_gate_4 else gate_4(jail, where, has_gpu)
    figures = {f"{name}_s": record[name]["seconds"] for name in ("gates_1_and_2", "gate_4", "sandbox") if record[name]}
    record["limits"] = {name: {"seconds": s, "limit": LIMITS[name], "kept": s <= LIMITS[name]}
                        for name, s in figures.items()}
    out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for name, limit in record["limits"].items():
        click.echo(f"{name}: {limit['seconds']:.2f} s, limit {limit['limit']:g}: {'kept' if limit['kept'] else 'over'}")


if __name__ == "__main__":
    main()
