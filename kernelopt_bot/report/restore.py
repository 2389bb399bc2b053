"""`report.json` -> the result that it was made from, for the phase that only has the file.

The file is untrusted: whatever has not the type of its field is refused. Nothing in it is believed for more than what
is shown; which files may be published is decided in `publish.bundle`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from kernelopt_bot.contract.candidate import Candidate, KernelCandidate, Lever, OptionsCandidate, Plan, Scalar
from kernelopt_bot.device.profile import Profile
from kernelopt_bot.errors import InputError
from kernelopt_bot.gates.verdict import GateName, Status, Verdict
from kernelopt_bot.report import plain_json
from kernelopt_bot.report.machine import SCHEMA
from kernelopt_bot.report.summary import MOST_LINES, by_target
from kernelopt_bot.search.result import Comparison, FirstCall, LeverGain, Noise, RunResult, TargetResult, Trial
from kernelopt_bot.targets.target import Target
from kernelopt_bot.targets.triton_kernels import TritonTarget

LONGEST = 64 << 20
"""Bytes of a `report.json` that is read."""
_Text = Annotated[str, Field(max_length=1_000_000)]
_Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,299}$")]
_PLAN = TypeAdapter(Plan)


class _Part(BaseModel):
    """Fields that only machines read are left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class _Verdict(_Part):
    gate: GateName
    status: Status
    reason: _Text = ""
    evidence: Mapping[str, Any] = {}
    seconds: float = 0.0
    scope: Literal["piece", "stitched", "none"] = "piece"

    def made(self) -> Verdict:
        return Verdict(self.gate, self.status, self.reason, self.evidence, self.seconds)


class _Step(_Part):
    speedup: float | None
    before_us: float | None
    after_us: float | None


class _Trial(_Part):
    target: _Name
    id: _Text
    lever: Lever
    technique: _Text
    author: _Text
    rationale: _Text
    parent: _Text | None
    adopted: bool
    note: _Text
    step: _Step
    verdicts: tuple[_Verdict, ...]
    kind: Literal["kernel", "options"]
    run_hash: _Text = ""
    graph: int = 0
    steps: tuple[int, ...] = ()
    source: _Text | None = None
    plan: Mapping[str, Any] | None = None
    options: Mapping[str, Scalar] = {}

    def made(self) -> Trial:
        own = tuple(v.made() for v in self.verdicts if v.scope == "piece")
        return Trial(self._candidate(), own, self.adopted, self.step.speedup, self.step.before_us, self.step.after_us,
                     self.note)

    def _candidate(self) -> Candidate:
        if self.kind == "options":
            return OptionsCandidate(self.id, self.lever, self.options, self.technique, self.author, self.rationale,
                                    self.parent)
        plan = Plan((), ()) if self.plan is None else _PLAN.validate_json(json.dumps(self.plan), strict=True)
        return KernelCandidate(self.id, self.run_hash, self.graph, self.steps, self.source or "", plan, self.technique,
                               self.author, self.rationale, self.parent, self.lever)


class _Target(_Part):
    name: _Name
    path: _Text
    entry: _Text
    kind: Literal["module", "triton"] = "module"
    record: _Text = ""
    inputs: _Text
    init: _Text
    mode: Literal["inference"]
    origin: Literal["convention", "config", "command"]
    closure: tuple[_Text, ...]
    inputs_origin: _Text
    line: Annotated[int, Field(ge=1, le=MOST_LINES)] = 1
    error: _Text
    error_kind: _Text = ""
    headline: Comparison | None
    stitched: tuple[_Verdict, ...]
    covered: tuple[_Text, ...]
    artifact: _Text
    first_call: FirstCall | None
    peak_memory: Mapping[str, int]
    spent: Mapping[str, float]
    profile: Profile | None
    agents: tuple[_Text, ...] = ()


class _Baseline(_Part):
    target: _Name
    baseline: _Text
    gain: Comparison | None
    reason: _Text


class _Noise(_Part):
    target: _Name
    speedup: float
    low: float
    high: float
    pairs: int


class _Lever(_Part):
    target: _Name
    lever: Lever
    adopted: int
    gain: Comparison | None
    reason: _Text


class _Set(_Part):
    target: _Name
    levers: tuple[Lever, ...]
    gain: Comparison


class _Skipped(_Part):
    what: _Text
    reason: _Text


class _Report(_Part):
    schema_: int = Field(alias="schema", ge=SCHEMA, le=SCHEMA)
    command: _Text
    repository: _Text
    pull_request: int | None
    base_sha: _Text
    head_sha: _Text
    stopped: _Text
    skipped: tuple[_Skipped, ...]
    targets: Annotated[tuple[_Target, ...], Field(max_length=1000)]
    gates: tuple[_Trial, ...]
    noise: tuple[_Noise, ...]
    baselines: tuple[_Baseline, ...]
    levers: tuple[_Lever, ...]
    sets: tuple[_Set, ...] = ()
    environment: Mapping[str, Mapping[str, Any]]
    secret: Mapping[str, _Text]


def restore(text: bytes) -> RunResult:
    """The result, without programs and edits: they are in no report.

    Raises InputError for what is not JSON of the shape of `docs/report.schema.json`, for a number that is none, and for
    a target that is there twice.
    """
    try:
        if len(text) > LONGEST:
            raise ValueError(f"over {LONGEST >> 20} MiB")
        plain_json.loads(text)  # Of its numbers; the shape is checked next.
        report = _Report.model_validate_json(text, strict=True)
        names = [t.name for t in report.targets]
        if len(set(names)) != len(names):
            raise ValueError("a target is there twice")
        results = tuple(_results(report))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise _refused(f"{'.'.join(map(str, first['loc'])) or 'the whole'}: {first['msg']}") from None
    except ValueError as error:
        raise _refused(str(error)) from None
    return RunResult(results, report.command, tuple((s.what, s.reason) for s in report.skipped), report.base_sha,
                     report.head_sha, report.repository, report.pull_request, report.stopped)


def _refused(why: str) -> InputError:
    return InputError(f"the report is malformed: {why}", where="report.json",
                      fix="run again with one release of KernelOPT in all phases")


def _results(report: _Report) -> Iterator[TargetResult]:
    lists = {name: by_target(getattr(report, name), attrgetter("target"))
             for name in ("gates", "noise", "baselines", "levers", "sets")}
    for t in report.targets:
        yield _result(report, t, {name: found.get(t.name, []) for name, found in lists.items()})


def _target(t: _Target) -> Target:
    if t.kind == "triton":
        return TritonTarget(t.name, t.path, t.entry, t.inputs, t.init, t.mode, t.origin, t.closure, line=t.line,
                            record=t.record)
    return Target(t.name, t.path, t.entry, t.inputs, t.init, t.mode, t.origin, t.closure, line=t.line)


def _result(report: _Report, t: _Target, own: Mapping[str, list[Any]]) -> TargetResult:
    noise = own["noise"][0] if own["noise"] else None
    return TargetResult(
        target=_target(t),
        program=None, profile=t.profile, trials=tuple(x.made() for x in own["gates"]),
        levers=tuple(LeverGain(x.lever, x.adopted, x.gain, x.reason) for x in own["levers"]),
        stitched=tuple(v.made() for v in t.stitched), headline=t.headline,
        against=tuple(b.gain for b in own["baselines"] if b.gain is not None),
        not_applicable={b.baseline: b.reason for b in own["baselines"] if b.gain is None},
        noise=Noise(noise.speedup, noise.low, noise.high, noise.pairs) if noise else None, first_call=t.first_call,
        peak_memory=t.peak_memory, covered=t.covered, artifact=t.artifact, error=t.error,
        secret=report.secret.get(t.name, ""), environment=report.environment.get(t.name, {}), spent=t.spent,
        inputs_origin=t.inputs_origin, agents=t.agents, error_kind=t.error_kind,
        sets={"+".join(s.levers): s.gain for s in own["sets"]})
