"""A corpus of candidates, dishonest and honest, through the product's own gates 1 and 2.

A case is one TOML file, data from end to end: `about`, `expect`, `because` (a part of the reason that it must be
refused with), `baseline`, `source`, `launches`, and where needed `scratch`, `parameters` (changes, by name), `stats`.
A baseline is one JSON file of `baselines/`: a kernel that Inductor wrote, and its call.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from kernelopt_bot.compiler._runtime import read_kernel
from kernelopt_bot.compiler.parse import written_parameters
from kernelopt_bot.compiler.program import Argument, Kernel, Step, TensorMeta
from kernelopt_bot.contract.candidate import KernelCandidate, Plan
from kernelopt_bot.contract.flow import analyse
from kernelopt_bot.contract.plan import ITEM_BYTES
from kernelopt_bot.errors import InputError
from kernelopt_bot.gates import correctness, static
from kernelopt_bot.gates.answers import Caller
from kernelopt_bot.gates.verdict import Status, Verdict

Expectation = Literal["static", "correctness", "gpu", "honest"]
EXPECTATIONS = ("static", "correctness", "gpu", "honest")
NO_GPU = "only a GPU can decide it, and there is none"
TORCH = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32"}
STATS = {"min": -4.0, "max": 4.0, "mean": 0.0, "std": 1.0, "finite": True}
"""Of a captured input, where the case names no others."""
MULTIPROCESSORS = 132
"""`num_sms` of plans without a GPU: an H200's."""


class Worker(Caller, Protocol):
    """A `sandbox.client.Worker`."""

    @property
    def alive(self) -> bool: ...

    def restart(self) -> None: ...


@dataclass(frozen=True)
class Baseline:
    """One kernel of the compiler's with its recorded call, as gate 2 takes them."""

    kernel: Kernel
    step: Step
    read: frozenset[str]
    """Parameters that it loads from."""

    def call(self, stats: Mapping[str, Any]) -> dict[str, Any]:
        """The `CallJson`; `stats` of tensors by parameter name."""
        return {"line": 1, "callee": self.kernel.name, "keywords": {}, "arguments": [
            {"tensor": None if a.tensor is None else dataclasses.asdict(a.tensor), "value": a.value, "saved": None,
             "stats": {**STATS, **stats.get(a.name, {})} if a.tensor is not None else None}
            for a in self.step.arguments]}


@dataclass(frozen=True)
class Case:
    name: str
    about: str
    expect: Expectation
    because: str
    baseline: Baseline
    source: str
    plan: Mapping[str, Any]
    """`Plan` as JSON, as hostile as it likes to be."""
    stats: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What became of a case. `got`: the gate that refused it, `accepted`, `undecided` or `skipped`."""

    case: Case
    got: str
    reason: str = ""

    @property
    def skipped(self) -> bool:
        return self.got == "skipped"

    @property
    def right(self) -> bool:
        """An adversary refused by any gate, or an honest candidate accepted; being undecided is neither."""
        if self.case.expect == "honest":
            return self.got == "accepted"
        return self.got in ("static", "correctness")

    @property
    def note(self) -> str:
        """What a reader should know of a case that is right in another way than was expected."""
        if self.skipped or not self.right or self.case.expect == "honest":
            return ""
        if self.case.expect != "gpu" and self.got != self.case.expect:
            return f"refused by another gate than {self.case.expect}"
        return "" if self.case.because in self.reason else f"refused for another reason than {self.case.because!r}"

    def to_json(self) -> dict[str, Any]:
        return {"name": self.case.name, "about": self.case.about, "expected": self.case.expect, "got": self.got,
                "reason": self.reason, "right": self.right, "note": self.note}


def load(folder: Path) -> tuple[Case, ...]:
    """Every case of `folder/cases`, by name. Raises InputError for a file that is no case."""
    paths = sorted((folder / "cases").glob("*.toml"))
    if not paths:
        raise InputError("there is no case", where=str(folder / "cases"), fix="name a folder with cases/*.toml")
    baselines = {p.stem: _baseline(json.loads(p.read_text())) for p in sorted((folder / "baselines").glob("*.json"))}
    return tuple(_case(path, baselines) for path in paths)


def _baseline(data: Mapping[str, Any]) -> Baseline:
    kernel = read_kernel(data["source"], name=data["name"])
    pointers = frozenset(n for n, t in kernel.signature.items() if t.startswith("*"))
    written = written_parameters(kernel.text, kernel.function, pointers)
    defined = {n.name: n for n in ast.parse(kernel.text).body if isinstance(n, ast.FunctionDef)}
    effects = analyse(defined, kernel.function, pointers)
    arguments = []
    for name, given in zip(kernel.parameters, data["arguments"], strict=True):
        if "value" in given:
            arguments.append(Argument(name, str(given["value"]), value=given["value"]))
            continue
        dtype = TORCH[kernel.signature[name].removeprefix("*")]
        shape, stride = tuple(given["shape"]), tuple(given["stride"])
        extent = 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
        meta = TensorMeta(dtype, shape, stride, 0, extent * ITEM_BYTES[dtype], "cuda:0")
        arguments.append(Argument(name, given["buffer"], tensor=meta, buffer=given["buffer"]))
    return Baseline(
        Kernel(kernel.name, kernel.function, kernel.text, kernel.hash, kernel.heuristic, kernel.signature, written,
               kernel.size_hints),
        Step(0, 0, "kernel", kernel.name, "call", (1, 1), "", tuple(arguments)), frozenset(effects.loaded))


def _case(path: Path, baselines: Mapping[str, Baseline]) -> Case:
    try:
        data = tomllib.loads(path.read_text())
        baseline = baselines[data["baseline"]]
        if data["expect"] not in EXPECTATIONS:
            raise ValueError(f"expect is one of {', '.join(EXPECTATIONS)}")
        changes = data.get("parameters", {})
        names = [a.name for a in baseline.step.arguments]
        parameters = [{"name": n, "type": baseline.kernel.signature[n], "written": n in baseline.kernel.written,
                       "read": n in baseline.read or n not in baseline.kernel.written, **changes.get(n, {})}
                      for n in names]
        parameters += [{"name": n, **more} for n, more in changes.items() if n not in names]
        plan = {"parameters": parameters, "scratch": data.get("scratch", []),
                "launches": [{"arguments": names, **launch} for launch in data["launches"]]}
        return Case(path.stem, data["about"], data["expect"], data.get("because", ""), baseline, data["source"], plan,
                    data.get("stats", {}))
    except (KeyError, TypeError, ValueError) as e:
        raise InputError("a file of the corpus is no case", where=f"{path}: {type(e).__name__}: {e}",
                         fix="see the section on the corpus in docs/gates.md") from e


@dataclass(frozen=True)
class Runner:
    """Gates 1 and 2 as a search runs them."""

    compiler: Worker
    checker: Worker
    """Interprets, or has a GPU."""
    lane: Literal["cuda", "interpret"]
    secret: str
    precision: Mapping[str, float]
    arch: int = 90
    multiprocessors: int = MULTIPROCESSORS
    budget_s: float = 60.0

    def run(self, case: Case) -> Outcome:
        if case.expect == "gpu" and self.lane != "cuda":
            return Outcome(case, "skipped", NO_GPU)
        try:
            plan = Plan.from_json(case.plan)
        except (TypeError, KeyError, ValueError) as e:
            return Outcome(case, "static", f"no plan: {type(e).__name__}: {e}")
        candidate = KernelCandidate(case.name, "", 0, (0,), case.source, plan, "corpus")
        baseline, integers = case.baseline, correctness.integers(case.baseline.step)
        verdict = static.check_kernel(candidate, baseline.kernel, _ready(self.compiler), arch=self.arch,
                                      integers={**integers, "num_sms": self.multiprocessors})
        if verdict.lets_on:
            verdict = correctness.check_kernel(
                candidate, baseline.kernel, baseline.step, baseline.call(case.stats), _ready(self.checker),
                lane=self.lane, secret=self.secret, precision=self.precision, budget_s=self.budget_s)
        return Outcome(case, _got(verdict), verdict.reason)

    def run_all(self, cases: Sequence[Case]) -> Iterator[Outcome]:
        return map(self.run, cases)


def summary(outcomes: Sequence[Outcome]) -> tuple[str, bool]:
    """(the last line, whether all is well). What was skipped counts neither way, and is named in the line."""
    skipped = [o.case.name for o in outcomes if o.skipped]
    honest = [o for o in outcomes if o.case.expect == "honest"]
    adversaries = [o for o in outcomes if o.case.expect != "honest" and not o.skipped]
    escapes, accepted = sum(not o.right for o in adversaries), sum(o.right for o in honest)
    last = f"ESCAPES {escapes} of {len(adversaries)} adversaries, {accepted} of {len(honest)} honest accepted"
    if skipped:
        last = f"skipped {len(skipped)}, {NO_GPU}: {', '.join(skipped)}\n{last}"
    return last, not escapes and accepted == len(honest)


def _got(verdict: Verdict) -> str:
    if verdict.status is Status.FAIL:
        return verdict.gate
    return "accepted" if verdict.lets_on else "undecided"


def _ready(worker: Worker) -> Worker:
    if not worker.alive:
        worker.restart()
    return worker
