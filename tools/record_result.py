"""A committed record's `report.json` -> the result that it was made from, as far as the file holds it.

The captured program and the times of single steps are not in it in full: a report made from this lacks those tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelopt_bot.contract.candidate import Candidate, KernelCandidate, OptionsCandidate, Plan
from kernelopt_bot.gates.verdict import Status, Verdict
from kernelopt_bot.report.summary import comparison
from kernelopt_bot.search.result import Comparison, FirstCall, LeverGain, Noise, RunResult, TargetResult, Trial
from kernelopt_bot.targets.target import Target

Json = Mapping[str, Any]


def run_result(data: Json) -> RunResult:
    """Raises KeyError for a file of another shape, InputError or ValueError for figures that are none."""
    results = tuple(_target(data, t) for t in data["targets"])
    return RunResult(results, data["command"], (), data["base_sha"], data["head_sha"], data["repository"],
                     data["pull_request"], data["stopped"])


def _target(data: Json, t: Json) -> TargetResult:
    name = t["name"]
    mine = {key: [x for x in data[key] if x["target"] == name] for key in ("gates", "levers", "baselines", "noise")}
    first = t["first_call"]
    noise = next((Noise(x["speedup"], x["low"], x["high"], x["pairs"]) for x in mine["noise"]), None)
    target = Target(name, t["path"], t["entry"], t["inputs"], t["init"], closure=tuple(t["closure"]))
    return TargetResult(
        target, None, None, tuple(_trial(x) for x in mine["gates"]),
        tuple(LeverGain(x["lever"], x["adopted"], comparison(x["gain"]), x["reason"]) for x in mine["levers"]),
        tuple(_verdict(v) for v in t["stitched"]), comparison(t["headline"]),
        tuple(_measured(x["gain"]) for x in mine["baselines"] if x["gain"] is not None),
        {x["baseline"]: x["reason"] for x in mine["baselines"] if x["gain"] is None}, noise,
        FirstCall(**first) if first is not None else None, t["peak_memory"], tuple(t["covered"]), t["artifact"],
        t["error"], data["secret"].get(name, ""), data["environment"].get(name, {}), t["spent"],
        inputs_origin=t["inputs_origin"])


def _measured(data: Json) -> Comparison:
    found = comparison(data)
    assert found is not None, "only null gives None"
    return found


def _trial(x: Json) -> Trial:
    own = tuple(_verdict(v) for v in x["verdicts"] if v["scope"] == "piece")
    return Trial(_candidate(x), own, x["adopted"], x["step"]["speedup"], x["step"]["before_us"], x["step"]["after_us"],
                 x["note"])


def _candidate(x: Json) -> Candidate:
    if x["kind"] == "options":
        return OptionsCandidate(x["id"], x["lever"], x["options"], x["technique"], x["author"], x["rationale"],
                                x["parent"])
    plan = Plan.from_json(x["plan"]) if x["plan"] is not None else Plan((), ())
    return KernelCandidate(x["id"], x["run_hash"], x["graph"], tuple(x["steps"]), x["source"] or "", plan,
                           x["technique"], x["author"], x["rationale"], x["parent"], x["lever"])


def _verdict(v: Json) -> Verdict:
    return Verdict(v["gate"], Status(v["status"]), v["reason"], v["evidence"], v["seconds"])
