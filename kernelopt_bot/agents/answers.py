"""What each role answers: pydantic models, their JSON Schemas, and a reading of texts that is as tolerant as is safe.

The schemas hold no free-form mappings, so that servers with strict structured output take them as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from kernelopt_bot.agents.brain import Role
from kernelopt_bot.contract.candidate import Launch, Parameter, Plan, Scalar, Scratch

LONGEST = 400_000
"""Characters of an answer that are looked at."""
BRACES = 200
"""Places where an object may begin that are tried: what a hostile text may cost."""
Line = Annotated[str, Field(max_length=400)]
Text = Annotated[str, Field(max_length=4000)]
Name = Annotated[str, Field(min_length=1, max_length=200)]


def _word(value: object) -> object:
    """A name that may stand in the first line of a file: no colon and no equals sign, which could name a coding."""
    return " ".join(re.sub(r"[^A-Za-z0-9 ,._+/()-]", " ", value).split()) if isinstance(value, str) else value


def _ascii(value: object) -> object:
    """Printable ASCII, since it becomes a comment of a source file."""
    return "".join(c if " " <= c <= "~" else "?" if c.isprintable() else " " for c in value) if (
        isinstance(value, str)) else value


class _Answer(BaseModel):
    # A model's whims (a number as text, an extra remark) are no reason for another round.
    model_config = ConfigDict(extra="ignore")


class BottleneckAnswer(_Answer):
    """Of one spot: what limits it, by which figures."""

    spot: Name = Field(description="The spot's key, as given.")
    bound: Literal["near-optimal", "memory-bound", "compute-bound", "underutilised", "unknown"]
    evidence: Text = Field(description="The figures that say so.")


class ProfilerAnswer(_Answer):
    """What limits each spot, and which of Nsight Compute's metrics would decide between explanations."""

    bottlenecks: list[BottleneckAnswer] = Field(max_length=200)
    metrics: list[Line] = Field(default_factory=list, max_length=40, description="Names of Nsight Compute metrics.")


class DirectionAnswer(_Answer):
    """One plan: where, by which idea, how much may be expected."""

    spot: Name = Field(description="The spot's key, as given.")
    name: Annotated[str, BeforeValidator(_word), Field(min_length=1, max_length=80)] = Field(
        description="A short name of the idea; the same idea always has the same name.")
    idea: Text = Field(description="What the device code does differently, in a few sentences.")
    expected_gain: float = Field(default=1.0, ge=0.0, le=1000.0, description="Expected speedup of the spot.")
    effort: int = Field(default=1, ge=1, le=16, description="Attempts that it is worth.")


class PlannerAnswer(_Answer):
    """Several different plans, most promising first."""

    directions: list[DirectionAnswer] = Field(min_length=1, max_length=32)


class ConstexprAnswer(_Answer):
    name: Name
    value: bool | int | float | str


class ParameterAnswer(_Answer):
    """A buffer or number of the replaced run, by its own name and type."""

    name: Name
    type: Name = Field(description="Triton's spelling, `*fp32`, as given.")
    written: bool = False
    read: bool = True
    divisible: bool = Field(default=False, description="As given.")


class ScratchAnswer(_Answer):
    name: Name
    elements: Line = Field(description="Element count: an expression.")
    dtype: Name = Field(description="torch's name: float32, int32, ...")
    zeroed: bool = False

    @field_validator("elements", mode="before")
    @classmethod
    def _elements(cls, value: object) -> object:
        return _expression(value)


class LaunchAnswer(_Answer):
    function: Name
    grid: list[Line] = Field(min_length=1, max_length=3, description="One to three expressions.")
    arguments: list[Line] = Field(
        max_length=200, description="Of the function's parameters that are not tl.constexpr, in order.")
    constexprs: list[ConstexprAnswer] = Field(default_factory=list, max_length=100)
    num_warps: int = 4
    num_stages: int = 1

    @field_validator("constexprs", mode="before")
    @classmethod
    def _pairs(cls, value: object) -> object:
        return [{"name": k, "value": v} for k, v in value.items()] if isinstance(value, Mapping) else value

    @field_validator("grid", "arguments", mode="before")
    @classmethod
    def _expressions(cls, value: object) -> object:
        return [_expression(v) for v in value] if isinstance(value, list) else value


class PlanAnswer(_Answer):
    """Launches in order, over the run's buffers and own scratch buffers."""

    parameters: list[ParameterAnswer] = Field(max_length=200)
    launches: list[LaunchAnswer] = Field(min_length=1, max_length=16)
    scratch: list[ScratchAnswer] = Field(default_factory=list, max_length=50)

    def plan(self) -> Plan:
        """The contract's own plan; what it must hold is for `contract/` to say."""
        return Plan(
            tuple(Parameter(p.name, p.type, p.written, p.read, p.divisible) for p in self.parameters),
            tuple(Launch(one.function, tuple(one.grid), tuple(one.arguments), _constexprs(one), one.num_warps,
                         one.num_stages) for one in self.launches),
            tuple(Scratch(s.name, s.elements, s.dtype, s.zeroed) for s in self.scratch))


class CandidateAnswer(_Answer):
    """Device code and a launch plan: never host code."""

    source: str = Field(min_length=1, max_length=200_000, description=(
        "Imports that are permitted, constants and @triton.jit functions, nothing else."))
    plan: PlanAnswer
    why: Annotated[Text, BeforeValidator(_ascii)] = Field(
        default="", description="Why it is faster, in a sentence or two.")


class SummaryAnswer(_Answer):
    """What is worth remembering of a candidate."""

    action: Literal["append", "replace", "skip"]
    replaces: int | None = Field(default=None, ge=0, description="Index of the experience that it replaces.")
    lesson: Text = Field(default="", description="One sentence that helps with another program.")


Answer = ProfilerAnswer | PlannerAnswer | CandidateAnswer | SummaryAnswer
MODELS: Mapping[Role, type[Answer]] = {
    "profiler": ProfilerAnswer, "planner": PlannerAnswer, "executor": CandidateAnswer, "fuser": CandidateAnswer,
    "summarizer": SummaryAnswer,
}


class Malformed(Exception):
    """A text is no answer of the role; `faults` in words that a repair can go by."""

    def __init__(self, *faults: str) -> None:
        self.faults = faults
        super().__init__("; ".join(faults))


def schema(role: Role) -> dict[str, Any]:
    """JSON Schema of the role's answer."""
    return MODELS[role].model_json_schema()


def read(role: Role, text: str) -> Answer:
    """The answer in a text: JSON alone, in a fence, or amid prose; of a candidate the source may be in a fence of its
    own. Raises Malformed."""
    faults: list[str] = []
    for data in _objects(text[:LONGEST]):
        if role in ("executor", "fuser") and "source" not in data and (code := _fenced_code(text)):
            data = {**data, "source": code}
        if isinstance(data.get("source"), str):
            data = {**data, "source": clean(data["source"])}
        try:
            return MODELS[role].model_validate(data)
        except ValidationError as e:
            faults = faults or [_fault(f) for f in e.errors(include_url=False)[:10]]
    raise Malformed(*(faults or ["there is no JSON object in the answer" if text.strip() else "the answer is empty"]))


def clean(source: str) -> str:
    """Device code without a fence round it, with newlines as such, and one at its end."""
    lines = source.replace("\r\n", "\n").expandtabs(4).strip("\n").split("\n")
    if len(lines) > 2 and lines[0].startswith("```") and lines[-1].strip() == "```":
        lines = lines[1:-1]
    return "\n".join(line.rstrip() for line in lines).strip("\n") + "\n"


def _constexprs(launch: LaunchAnswer) -> dict[str, Scalar]:
    return {c.name: c.value for c in launch.constexprs}


def _expression(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """JSON objects of the text, outermost ones, the whole text first."""
    decoder = json.JSONDecoder(strict=False)
    at = 0
    for _ in range(BRACES):
        if (at := text.find("{", at)) < 0:
            return
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
            continue
        if isinstance(value, dict):
            yield value
        at = end


def _fenced_code(text: str) -> str:
    found = re.search(r"```(?:python|py|triton)?[ \t]*\n(.*?@triton\.jit.*?)\n```", text[:LONGEST], re.DOTALL)
    return found.group(1) if found else ""


def _fault(error: Any) -> str:
    where = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error["loc"]).lstrip(".")
    return f"{where or 'the answer'}: {error['msg']}"[:300]
