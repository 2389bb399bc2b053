"""What a role is asked, what a brain replies, and the record of it: the contract between the search and all brains.

The search builds a `Question` from facts alone. A `Brain` answers it with text: JSON of the role's model in
`answers.py`, whoever wrote it (rules, a language model, a person through files, a recorded run). `council.py` reads the
text, asks for one repair where it does not fit, and keeps an `Exchange` of everything. Imports the standard library and
`contract/` only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Protocol, get_args, runtime_checkable

from kernelopt_bot.contract.candidate import Plan

Role = Literal["profiler", "planner", "executor", "fuser", "summarizer"]
ROLES: tuple[Role, ...] = ("profiler", "planner", "executor", "fuser", "summarizer")
SCHEMA = 1
"""Of `Exchange.to_json`."""
Bound = Literal["near-optimal", "memory-bound", "compute-bound", "underutilised", "unknown"]


@dataclass(frozen=True)
class SlotFacts:
    """One buffer or number of the replaced run, which a plan names. Sizes in elements."""

    name: str
    type: str
    """Triton's spelling, `*fp32` or `i32`."""
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    written: bool = False
    read: bool = True
    divisible: bool = False
    """The pointer is known to be a multiple of 16 bytes."""
    value: int | float | None = None
    """Of a number."""


@dataclass(frozen=True)
class StepFacts:
    """One kernel of the replaced run: what the compiler generated and what was measured of it. None: not measured."""

    name: str
    """`k0`, `k1`, ... unless source may be sent."""
    heuristic: str
    source: str
    """Triton source as far as it may leave the machine: see `scrub.py`."""
    arguments: tuple[str, ...]
    """The slots, by name, or numbers that its parameters are bound to, in order."""
    time_us: float | None = None
    floor_us: float | None = None
    """max(bytes / copy bandwidth, flops / matrix rate)."""
    bytes: int = 0
    """Unique bytes of its buffers, read and written each counted once."""
    configs: tuple[Mapping[str, Any], ...] = ()
    """What the compiler tries: `{constexprs, num_warps, num_stages, facts: {registers, spills, ...}}`."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Nsight Compute's, by its own metric names; empty where it was not run."""
    flops: int | None = None


@dataclass(frozen=True)
class NeighbourFacts:
    """What runs directly before or after the replaced run and stays: a vendor call or another kernel."""

    place: Literal["before", "after"]
    name: str
    kind: str
    """`vendor` or `kernel`."""
    shapes: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class PlaybookEntry:
    """A technique that knows this kind of step: its name, the gain it expects of this one (1.0: none), and why."""

    name: str
    gain: float
    reason: str
    citation: str = ""


@dataclass(frozen=True)
class SpotFacts:
    """A run of one or more steps that one candidate may replace."""

    key: str
    """The run's canonical hash."""
    signature: str
    """Digest of its slots and numbers: what stays the same from one release of the compiler to another."""
    steps: tuple[StepFacts, ...]
    slots: tuple[SlotFacts, ...]
    calls: int
    """How often one call of the program has it."""
    savings_us: float
    """Of one call of the program: what is above the floor, or what fusing is expected to save; 0 if not measured."""
    bound: Bound = "unknown"
    neighbours: tuple[NeighbourFacts, ...] = ()
    playbook: tuple[PlaybookEntry, ...] = ()
    float_atomics: bool = False
    """Whether a candidate may use them: only where the compiler's own kernels do."""
    remark: str = ""
    """The profiler's evidence for `bound`, if it gave any."""


@dataclass(frozen=True)
class DeviceFacts:
    """Roofs: bytes and operations a second; `source`: measured, specification or assumed."""

    name: str
    arch: int
    """Compute capability as 90."""
    multiprocessors: int
    l2_bytes: int
    copy_bytes_per_s: float
    matrix_flops_per_s: Mapping[str, float]
    source: str
    measured: bool
    """False without a GPU: then no candidate is timed, and correctness alone is judged."""


@dataclass(frozen=True)
class GateAnswer:
    """How a gate answered, with its numbers in words. `gate` also `race` (too slow) and `run` (it crashed in the race).
    """

    gate: str
    passed: bool
    reason: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    measured: bool = True
    """False where the gate could not say: no doing of the candidate."""


@dataclass(frozen=True)
class Attempt:
    """A candidate that was tried for a spot, and what became of it."""

    candidate: str
    spot: str
    direction: str
    author: str
    gates: tuple[GateAnswer, ...]
    speedup: float | None = None
    """Of the step, baseline / candidate time."""
    source: str = ""
    plan: Mapping[str, Any] | None = None
    why: str = ""

    @property
    def passed(self) -> bool:
        """Whether every gate that was asked passed it, gate 2 among them."""
        return any(g.gate == "correctness" for g in self.gates) and all(g.passed for g in self.gates)


@dataclass(frozen=True)
class Proposal:
    """A candidate as a brain wrote it, before anything was checked: what the search makes an `Attempt` of."""

    spot: str
    source: str
    plan: Plan
    direction: str
    author: str
    why: str = ""
    parent: str | None = None


@dataclass(frozen=True)
class Experience:
    """What the summarizer keeps: a lesson with its measured factor (above 1: a gain)."""

    lesson: str
    direction: str
    factor: float
    kept: bool
    bound: Bound = "unknown"
    source: str = ""
    """Device code of the candidate, ours, never the user's."""


@dataclass(frozen=True)
class DirectionFacts:
    """A plan of the planner that an executor or fuser is to carry out."""

    spot: str
    name: str
    idea: str
    expected_gain: float = 1.0


@dataclass(frozen=True)
class Repair:
    """The last answer did not fit: its text, and what is wrong with it."""

    text: str
    faults: tuple[str, ...]


@dataclass(frozen=True)
class Question:
    """What one role is asked. `spots`: all of the program for profiler and planner, one for the others, which also have
    a `direction`."""

    role: Role
    round: int
    """From 0."""
    device: DeviceFacts
    spots: tuple[SpotFacts, ...]
    attempt: int = 0
    """0 the first time; 1 to K with `history`'s last attempt to be mended."""
    wanted: int = 1
    """Directions that the planner is to name."""
    direction: DirectionFacts | None = None
    parent: Attempt | None = None
    """The candidate to start from, of the beam; for the summarizer the one to sum up."""
    history: tuple[Attempt, ...] = ()
    """Of these spots, oldest first. For a repeated attempt the last one is what failed."""
    experiences: tuple[Experience, ...] = ()
    avoid: tuple[str, ...] = ()
    """Directions that failed too often."""
    diversify: bool = False
    """The last plans were too alike: only directions of another kind are wanted."""
    repair: Repair | None = None

    @property
    def key(self) -> str:
        """Names the question within a run, and again in the next run of the same program: a plain file name."""
        what = "program"
        if self.direction is not None:
            summed_up = self.parent.candidate if self.parent and self.role == "summarizer" else ""
            about = f"{self.direction.name}/{summed_up}"
            what = f"{self.direction.spot[:12]}-{hashlib.sha256(about.encode()).hexdigest()[:6]}"
        base = f"r{self.round}-{self.role}-{what}-a{self.attempt}"
        return f"{base}-repair" if self.repair else base


@dataclass(frozen=True)
class Prompt:
    """`system` is the same for all questions of a role (prefix caches); `cut` says what was left out to fit."""

    system: str
    user: str
    version: str = ""
    tokens: int = 0
    """Estimated."""
    cut: tuple[str, ...] = ()


Outcome = Literal["answered", "pending", "refused", "truncated", "empty", "too long", "unavailable", "spent", "unknown"]
"""`pending`: written out, not answered yet; `spent`: the budget; `unknown`: a recorded run holds no such question."""


@dataclass(frozen=True)
class Usage:
    """Tokens and US dollars; `money_usd` None where no price is known, 0 for what costs nothing."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    money_usd: float | None = 0.0


@dataclass(frozen=True)
class Reply:
    """What a brain gave. `text` is '' unless `outcome` is `answered`; never an exception for what was anticipated."""

    outcome: Outcome
    text: str = ""
    reason: str = ""
    prompt: Prompt | None = None
    usage: Usage = Usage()
    seconds: float = 0.0
    model: str = ""
    lasting: bool = False
    """Whether asking this brain again in this run is useless."""


@runtime_checkable
class Brain(Protocol):
    """Replies to questions in their order, one each; may work on several at once. Bugs raise, failures do not."""

    @property
    def name(self) -> str:
        """The author in records and reports: `builtin`, `llm`, `handoff`, `replay`."""

    def ask(self, questions: Sequence[Question]) -> list[Reply]: ...


Render = Callable[[Question], Prompt]
"""What `prompts.py` gives to the brains that need words."""


@dataclass(frozen=True)
class Exchange:
    """The record of one question and its reply, as the run folder keeps it and replay reads it."""

    key: str
    role: Role
    brain: str
    round: int
    attempt: int
    spot: str
    """The run's hash, '' for the whole program."""
    signature: str
    direction: str
    prompt: Prompt | None
    text: str
    outcome: Outcome
    reason: str
    faults: tuple[str, ...]
    """Why the text does not fit the role's schema; () if it does."""
    usage: Usage
    seconds: float
    model: str = ""
    candidates: tuple[str, ...] = ()
    """Ids of candidates that came of it; the trials say what became of them."""
    became: str = ""
    """In a word or two: the gate that stopped it, `kept`, `planned`, ..."""

    @classmethod
    def of(cls, brain: str, question: Question, reply: Reply, faults: tuple[str, ...] = ()) -> Exchange:
        direction = question.direction
        spot = next((s for s in question.spots if direction and s.key == direction.spot), None)
        return cls(
            question.key, question.role, brain, question.round, question.attempt, spot.key if spot else "",
            spot.signature if spot else "", direction.name if direction else "", reply.prompt, reply.text,
            reply.outcome, reply.reason, faults, reply.usage, reply.seconds, reply.model)

    def to_json(self) -> dict[str, Any]:
        """One line of `exchanges.jsonl`, and one file of a handoff folder."""
        return {"schema": SCHEMA, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Exchange:
        """Raises KeyError, TypeError or ValueError on anything that `to_json` did not make."""
        given = {f.name: data[f.name] for f in fields(cls)}
        if data["schema"] != SCHEMA or data["role"] not in ROLES or data["outcome"] not in get_args(Outcome):
            raise ValueError("another format of exchange")
        prompt = given["prompt"]
        given["prompt"] = None if prompt is None else Prompt(**{**prompt, "cut": tuple(prompt["cut"])})
        given |= {"usage": Usage(**given["usage"]), "faults": tuple(given["faults"]),
                  "candidates": tuple(given["candidates"])}
        return cls(**given)
