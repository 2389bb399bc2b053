"""Results of runs that never happened: every field filled, or as empty as the contract allows."""

from __future__ import annotations

from dataclasses import replace

from kernelopt_bot.compiler.program import Graph, Kernel, Program, Step
from kernelopt_bot.contract.candidate import KernelCandidate, Launch, OptionsCandidate, Parameter, Plan
from kernelopt_bot.device.profile import Profile, Roofs, StepProfile
from kernelopt_bot.gates.verdict import Status, Verdict
from kernelopt_bot.search.result import Comparison, FirstCall, LeverGain, Noise, RunResult, TargetResult, Trial
from kernelopt_bot.targets.target import Target
from kernelopt_bot.targets.triton_kernels import TritonTarget

SOURCE = """import triton
import triton.language as tl

@triton.jit
def norm(x, y, n: tl.constexpr):
    tl.store(y, tl.load(x))
"""
PLAN = Plan(
    (Parameter("x", "*fp32"), Parameter("y", "*fp32", written=True)), (Launch("norm", ("cdiv(n, 4)",), ("x", "y")),)
)
TARGET = Target(
    "transformer_block", "models/block.py", "Block", "get_inputs", "get_init_inputs", closure=("models/block.py",),
    line=3,
)


def comparison(baseline: str, speedup: float, metric: str = "latency") -> Comparison:
    return Comparison(
        baseline, "candidate", metric, "cold", speedup, speedup - 0.02, speedup + 0.03, 1.2 * speedup, 1.2, 60
    )


def kernel(id: str, technique: str = "persistent reduction", steps: tuple[int, ...] = (0,)) -> KernelCandidate:
    return KernelCandidate(id, "hash0", 0, steps, SOURCE, PLAN, technique, rationale="one pass over the row")


def passing() -> tuple[Verdict, ...]:
    return (
        Verdict("static", Status.PASS, evidence={"registers": 40, "spills": 0, "facts": {"HMMA": 0}}, seconds=1.5),
        Verdict("correctness", Status.PASS, evidence={"families": 7, "worst_ratio": 1.02}),
        Verdict("model", Status.PASS),
        Verdict("performance", Status.PASS, "lower bound 1.182 above 1.03", {"low": 1.182}),
    )


def program() -> Program:
    step = Step(0, 0, "kernel", "triton_per_fused_native_layer_norm_0", "call", (10, 12), hash="hash0")
    again = replace(step, index=2)
    product = Step(0, 1, "vendor", "extern_kernels.addmm", "call", (13, 13), flops=1000)
    k = Kernel(
        step.name, "triton_", "source", "k0", "persistent_reduction", {"in_ptr0": "*fp32"}, ("out_ptr0",), {"x": 8}
    )
    graph = Graph(0, "wrapper", (), (), (step, product, again), {step.name: k})
    return Program("transformer_block", "cuda", (graph,), "2.11.0", "3.6.0", "NVIDIA H200")


def profile() -> Profile:
    roofs = Roofs("NVIDIA H200", "GPU-0", 4.1e12, {"bfloat16": 7e14}, 50 << 20, 132, "measured", "2026-01-01", 4.8e12)
    steps = (
        StepProfile(0, 0, "triton_per_fused_native_layer_norm_0", "kernel", 20.5, 1 << 22, None, 9.1, 2.25, 11.4),
        StepProfile(0, 1, "extern_kernels.addmm", "vendor", 101.0, 1 << 24, 10**9, 80.0, 1.26, 21.0),
        StepProfile(0, 2, "triton_per_fused_native_layer_norm_0", "kernel", 20.4, 1 << 22, None, 9.1, 2.24, 11.3),
    )
    return Profile(roofs, 180.0, 141.9, 0.21, steps)


def full_result() -> TargetResult:
    """Something of every lever adopted; three rejected."""
    against = (
        comparison("max-autotune", 1.21),
        comparison("eager", 2.4),
        comparison("default", 1.33),
        comparison("reduce-overhead", 1.25),
        comparison("default", 1.30, "throughput"),
    )
    stopped = Verdict("correctness", Status.FAIL, "family cancelling: ratio 41.2 above 2.0", {"ratio": 41.2})
    cut = Verdict("static", Status.FAIL, "spills 96 bytes a thread")
    slow = Verdict("performance", Status.FAIL, "interval 0.99 to 1.01 is not above 1.03")
    trials = (
        Trial(kernel("k1"), passing(), True, 1.9, 20.5, 10.8),
        Trial(
            OptionsCandidate("o1", "launch", {"triton.cudagraphs": True}, "CUDA graphs"),
            passing()[:1] + passing()[3:],
            True,
        ),
        Trial(kernel("k2", "multi-row tiles"), (passing()[0], stopped)),
        Trial(kernel("k3", "re-tuned"), (cut,)),
        Trial(OptionsCandidate("o2", "dispatch", {"layout_optimization": False}, "layout"), (*passing()[:3], slow)),
    )
    return TargetResult(
        TARGET,
        program(),
        profile(),
        trials,
        (
            LeverGain("kernel", 1, comparison("default", 1.08)),
            LeverGain("dispatch", 0, None, "no candidate passed"),
            LeverGain("launch", 1, comparison("default", 1.2)),
        ),
        passing()[2:],
        comparison("max-autotune", 1.21),
        against,
        {},
        Noise(1.002, 0.991, 1.013, 60),
        FirstCall(41.2, 8.1, 38.0, 7.5),
        {"candidate": 1 << 30, "default": (1 << 30) + 4096},
        ("x: (8, 128, 256) float32",),
        "kernelopt_kernels/transformer_block",
        secret="5ec2e7",
        environment={"torch": "2.11.0", "gpu": {"name": "NVIDIA H200", "uuid": "GPU-0", "capability": [9, 0]}},
        spent={"wall_s": 412.0, "device_s": 160.5, "candidates": 37},
        inputs_origin="models/block.py:get_inputs",
    )


def pretended_result() -> TargetResult:
    """A machine without a GPU: the kernel candidate went through gates 1 to 3; nothing is adopted."""
    last = Verdict("performance", Status.NOT_MEASURED, "no GPU")
    return replace(
        full_result(),
        trials=(Trial(kernel("k1"), (*passing()[:3], last)),),
        levers=(),
        stitched=(),
        headline=None,
        against=(),
        not_applicable={"max-autotune": "no GPU"},
        artifact="",
        noise=Noise(1.0, 0.93, 1.08, 20),
        first_call=None,
    )


def triton_result(path: str = "ops.py", entry: str = "norm", edit: bytes = b"new", speedup: float = 1.2,
                  ) -> TargetResult:
    """A Triton kernel of the user's whose file is edited in place, as the search on a GPU leaves it."""
    gain = comparison("your kernel", speedup)
    trial = Trial(kernel(f"{entry}-1", "launch_configuration"), passing()[:2], True, speedup, 12.0, 10.0)
    name = f"{path.removesuffix('.py').replace('/', '_')}_{entry}"
    return replace(
        full_result(), target=TritonTarget(name, path, entry, "make_inputs", origin="command", closure=(path,)),
        program=None, profile=None, trials=(trial,), levers=(LeverGain("kernel", 1, gain),), headline=gain,
        against=(gain,), not_applicable={}, first_call=None, peak_memory={}, artifact="", sets={},
        stitched=(Verdict("model", Status.PASS), Verdict("performance", Status.PASS)), edits={path: edit},
        edited={path: b"old"})


def failed_result() -> TargetResult:
    """As empty as a target that could not even be imported."""
    why = "The module can't be imported: ModuleNotFoundError: einops\n  what to do: install it in environment.python"
    return TargetResult(
        replace(TARGET, name="broken"), None, None, (), (), (), None, (), {}, None, None, {}, (), error=why
    )


def whole_run() -> RunResult:
    pretended = pretended_result()
    pretended = replace(pretended, target=replace(pretended.target, name="pretended"))
    return RunResult(
        (full_result(), pretended, failed_result()),
        "kernelopt optimize models/block.py:Block",
        (("models/old.py", "no example inputs"),),
        "b" * 40,
        "a" * 40,
        "acme/kernels",
        7,
    )
