"""Questions as the search asks them, of a made-up program."""

from __future__ import annotations

from dataclasses import replace

from kernelopt_bot.agents.brain import (
    Attempt,
    DeviceFacts,
    DirectionFacts,
    Experience,
    GateAnswer,
    NeighbourFacts,
    PlaybookEntry,
    Question,
    Role,
    SlotFacts,
    SpotFacts,
    StepFacts,
)

DEVICE = DeviceFacts("NVIDIA H200", 90, 132, 60 << 20, 4.3e12, {"float32": 5.1e13}, "measured", True)
SOURCE = """\
import triton
import triton.language as tl

@triton.jit
def k0(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    total = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
"""
STEP = StepFacts(
    "k0", "reduction", SOURCE, ("in_ptr0", "out_ptr0", "8", "1000"), 12.5, 4.2, 33_554_464,
    tuple({"constexprs": {"XBLOCK": 1, "R0_BLOCK": 512 << i}, "num_warps": 8, "num_stages": 1} for i in range(5)),
    {"dram__throughput.avg.pct_of_peak_sustained_elapsed": 44.1}, 8_388_608)
SPOT = SpotFacts(
    "5f0a" * 16, "sig", (STEP,),
    (SlotFacts("in_ptr0", "*fp32", (8, 1000), (1000, 1), divisible=True),
     SlotFacts("out_ptr0", "*fp32", (8,), (1,), written=True, read=False), SlotFacts("xnumel", "i32", value=8)),
    3, 25.0, "memory-bound", (NeighbourFacts("before", "extern_kernels.mm", "vendor", ((8, 1000),)),),
    (PlaybookEntry("split_reduction", 1.8, "8 rows on 132 multiprocessors", "Harris 2007"),),
    remark="8 of 132 multiprocessors have work")
ATTEMPT = Attempt(
    "c1", SPOT.key, "split the rows", "llm",
    (GateAnswer("contract", True), GateAnswer("compile", False, "line 9: incompatible shapes", {"line": 9})),
    None, SOURCE, {"parameters": [], "launches": []}, "more programs")


def question(role: Role, **changes: object) -> Question:
    given = Question(
        role, 1, DEVICE, (SPOT,), wanted=3,
        direction=DirectionFacts(SPOT.key, "split the rows", "two launches", 1.5),
        history=(ATTEMPT,), experiences=(Experience("Long rows were split.", "split", 1.4, True, source=SOURCE),),
        avoid=("wider tiles",))
    return replace(given, **changes)  # type: ignore[arg-type]
