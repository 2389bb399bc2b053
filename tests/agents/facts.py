"""A made-up program's facts, a brain that says what it is told to, and a workshop without workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from kernelopt_bot.agents.brain import (
    Attempt,
    DeviceFacts,
    DirectionFacts,
    GateAnswer,
    Proposal,
    Question,
    Reply,
    Role,
    SlotFacts,
    SpotFacts,
    StepFacts,
)
from kernelopt_bot.contract import plan as contract

DEVICE = DeviceFacts("NVIDIA H200", 90, 132, 60 << 20, 4.3e12, {"float32": 5.1e13}, "measured", True)
SOURCE = """import triton
import triton.language as tl


@triton.jit
def double(in_ptr0, out_ptr0, xnumel, BLOCK: tl.constexpr):
    x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr0 + x, 2 * tl.load(in_ptr0 + x, mask=x < xnumel), mask=x < xnumel)
"""
PLAN: dict[str, Any] = {
    "parameters": [{"name": "in_ptr0", "type": "*fp32"}, {"name": "out_ptr0", "type": "*fp32", "written": True},
                   {"name": "xnumel", "type": "i32"}],
    "launches": [{"function": "double", "grid": ["cdiv(xnumel, 64)"], "arguments": ["in_ptr0", "out_ptr0", "xnumel"],
                  "constexprs": [{"name": "BLOCK", "value": 64}], "num_warps": 1, "num_stages": 1}]}
SLOTS = (SlotFacts("in_ptr0", "*fp32", (100,), (1,)), SlotFacts("out_ptr0", "*fp32", (100,), (1,), True, False),
         SlotFacts("xnumel", "i32", value=100))


def spot(name: str = "5f0a5f0a5f0a", steps: int = 1, time_us: float | None = 12.5) -> SpotFacts:
    step = StepFacts("k0", "pointwise", SOURCE, ("in_ptr0", "out_ptr0", "xnumel"), time_us, 4.2, 800)
    return SpotFacts(name, f"signature-{name}", (step,) * steps, SLOTS, 3, 25.0)


def question(role: Role = "executor", **changes: Any) -> Question:
    given = {"round": 0, "device": DEVICE, "spots": (spot(),),
             "direction": DirectionFacts(spot().key, "wider tiles", "Two elements a thread.")}
    return Question(role, **{**given, **changes})


def candidate_text(source: str = SOURCE, why: str = "") -> str:
    return json.dumps({"source": source, "plan": PLAN, "why": why})


class Scripted:
    """A brain that answers with what `say` gives: a reply, a text, or an object to be written as JSON."""

    def __init__(self, say: Callable[[Question], Any], name: str = "scripted") -> None:
        self._say, self.name = say, name
        self.asked: list[Question] = []

    def ask(self, questions: Sequence[Question]) -> list[Reply]:
        self.asked += questions
        return [self._reply(self._say(q)) for q in questions]

    @staticmethod
    def _reply(said: Any) -> Reply:
        if isinstance(said, Reply):
            return said
        return Reply("answered", said if isinstance(said, str) else json.dumps(said))


class Workshop:
    """Judges by the contract alone, and by what `judge` adds; every candidate is twice as fast unless it says so."""

    device = DEVICE

    def __init__(self, spots: Sequence[SpotFacts],
                 judge: Callable[[Proposal], tuple[GateAnswer, float | None]]) -> None:
        self.spots, self._judge = tuple(spots), judge
        self.proposed: list[Proposal] = []
        self.spent = ""

    def try_all(self, proposals: Sequence[Proposal]) -> list[Attempt]:
        made = []
        for p in proposals:
            self.proposed.append(p)
            broken = contract.check(p.plan, p.source, integers={"xnumel": 100, "num_sms": 132})
            static = GateAnswer("static", not broken, str(broken[0]) if broken else "")
            gate, speedup = self._judge(p) if not broken else (static, None)
            gates = (static,) if broken else (static, gate)
            made.append(Attempt(f"{p.author}-{len(self.proposed)}", p.spot, p.direction, p.author, gates, speedup,
                                p.source, p.plan.to_json(), p.why))
        return made

    def exhausted(self) -> str:
        return self.spent
