"""A run folder as a search with agents leaves it, made by the package's own writers; and a report that fits it."""

from __future__ import annotations

from pathlib import Path

from kernelopt_bot.agents.brain import Exchange, Prompt, Usage
from kernelopt_bot.agents.messages import Tokens
from kernelopt_bot.agents.records import Records
from kernelopt_bot.agents.settings import Limits, Price
from kernelopt_bot.agents.spend import Ledger
from kernelopt_bot.contract.candidate import KernelCandidate, Launch, OptionsCandidate, Parameter, Plan
from kernelopt_bot.device.profile import Profile, Roofs, StepProfile
from kernelopt_bot.gates.verdict import GateName, Status, Verdict
from kernelopt_bot.report.machine import machine_data, render_json
from kernelopt_bot.search.archive import Archive
from kernelopt_bot.search.result import Comparison, RunResult, TargetResult, Trial
from kernelopt_bot.targets.target import Target

PLAN = Plan((Parameter("in_ptr0", "*fp32"), Parameter("out_ptr0", "*fp32", written=True, read=False)),
            (Launch("k", ("8",), ("in_ptr0", "out_ptr0")),))
SOURCE = "import triton\n\n\n@triton.jit\ndef k(in_ptr0, out_ptr0):\n    pass  # <script>alert(1)</script>\n"
ROOFS = Roofs("NVIDIA H200", "GPU-0", 4.2e12, {"float32": 5e13, "bfloat16": 7.8e14}, 60 << 20, 132, "measured",
              "2026-11-30", 4.8e12)
HEADLINE = Comparison("default", "stitched", "latency", "cold", 1.21, 1.18, 1.24, 1.21, 1.0, 40)
NAME = "models_net"


def verdict(gate: GateName, status: Status = Status.PASS, reason: str = "", seconds: float = 0.5) -> Verdict:
    return Verdict(gate, status, reason, {"figure": 1.5} if status is Status.FAIL else {}, seconds)


def kernel(name: str, technique: str, steps: tuple[int, ...], author: str, *verdicts: Verdict,
           parent: str | None = None, speedup: float | None = None, adopted: bool = False) -> Trial:
    candidate = KernelCandidate(name, "ab" * 32, 0, steps, SOURCE, PLAN, technique, author, f"why {name}", parent)
    before = 40.0
    return Trial(candidate, verdicts, adopted, speedup, before, before / speedup if speedup else None)


def trials() -> tuple[Trial, ...]:
    passed = (verdict("static"), verdict("correctness", seconds=3.2))
    whole = (verdict("model", seconds=8.0), verdict("performance", seconds=21.0))
    return (
        Trial(OptionsCandidate("dispatch-1", "dispatch", {"layout_optimization": False}, "layout_optimization=False"),
              (verdict("static"),), note="discarded in screening: 0.990x"),
        kernel("split-1", "split_reduction", (2,), "builtin", *passed, speedup=1.4),
        kernel("llm-1", "two rows a program", (2,), "llm", verdict("static"),
               verdict("correctness", Status.FAIL, "family zero: 3 of 8 values are nan")),
        kernel("llm-2", "two rows a program", (2,), "llm", *passed, *whole, parent="llm-1", speedup=1.9, adopted=True),
        kernel("llm-3", "fuse the bias", (4, 5), "llm", verdict("static", Status.FAIL, "line 3: `import os`")),
        kernel("rows-1", "row_tiles", (4,), "builtin", *passed, *whole[:1],
               verdict("performance", Status.NOT_MEASURED, "no GPU")),
    )


def result() -> TargetResult:
    steps = (
        StepProfile(0, 2, "triton_red_fused_softmax_0", "kernel", 40.0, 67_108_864, None, 16.0, 2.5, 24.0),
        StepProfile(0, 4, "triton_poi_fused_add_1", "kernel", 9.0, 33_554_432, None, 8.0, 1.1, 1.0, 3),
        StepProfile(0, 3, "extern_kernels.mm", "vendor", 310.0, 50_331_648, 8_589_934_592, 170.0, 1.8, 140.0),
    )
    return TargetResult(
        Target(NAME, "models/net.py", "Net", "get_inputs", ""), None, Profile(ROOFS, 400.0, 377.0, 0.06, steps),
        trials(), (), (verdict("model"), verdict("performance")), HEADLINE, (HEADLINE,), {}, None, None, {}, (),
        artifact="kernelopt_kernels/models_net", environment={"lane": "cuda"})


def exchange(key: str, **changes: object) -> Exchange:
    given: dict[str, object] = {
        "key": key, "role": "executor", "brain": "llm", "round": 0, "attempt": 0, "spot": "ab" * 32, "signature": "s",
        "direction": "two rows a program", "prompt": Prompt("rules", f"facts of {key} </pre><b>", "executor 1 0", 9),
        "text": '{"source": "..."}', "outcome": "answered", "reason": "", "faults": (),
        "usage": Usage(2000, 500, 300, 0.0125), "seconds": 4.5, "model": "m-large"}
    return Exchange(**{**given, **changes})  # type: ignore[arg-type]


def make(output: Path, *, report: bool = True) -> Path:
    """The output folder `output`; returns the run's folder in it."""
    run = output / "runs" / "20261201T000000.000000Z"
    archive = Archive(run / NAME)
    for trial in trials():
        archive.append(trial)
    records = Records(run / NAME)
    records.record(exchange("r0-planner-0-program-a0", role="planner", spot="", became="planned"))
    records.record(exchange("r0-executor-0-ab-a0", candidates=("llm-1",)))
    records.record(exchange("r0-executor-0-ab-a1", attempt=1, candidates=("llm-2",), became="kept"))
    records.record(exchange("r0-fuser-0-cd-a0", role="fuser", candidates=("llm-3",), became="static"))
    records.record(exchange("r1-executor-0-ab-a0", outcome="refused", reason="the model refused to answer", text=""))
    ledger = Ledger(run / "spend.jsonl", Limits(), (Price(model="m-large", input=2.0, output=8.0),))
    for _ in range(5):
        reservation = ledger.reserve("executor", "m-large", prompt_bytes=6000, max_output=4000, seconds=60.0)
        ledger.settle(reservation, Tokens(2000, 500, 300))
    (run / NAME / "calls.jsonl").write_text(
        '{"worker": "model", "method": "capture", "ended": 1, "seconds": 3.5}\n'
        '{"worker": "kernel", "method": "check_step", "ended": 2, "seconds": 9.25}\n')
    if report:
        data = machine_data(RunResult((result(),), "kernelopt optimize models/net.py"))
        (output / "report.json").write_text(render_json(data))
    return run
