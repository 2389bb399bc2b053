"""The machine contract, `report.json`: its shape is `docs/report.schema.json`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from kernelopt_bot import __version__
from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.report.facts import (
    adopted,
    furthest,
    is_faster,
    precision,
    replaced_names,
    tallies,
    tried,
    verdicts_by_gate,
)
from kernelopt_bot.report.section import call_site
from kernelopt_bot.search.result import Comparison, RunResult, TargetResult, Trial
from kernelopt_bot.targets.triton_kernels import TritonTarget

SCHEMA = 1
_FULL_SOURCES = 50
"""Kernel candidates, the furthest first, whose source and plan are kept a target; verdicts are kept for all."""


def machine_data(run: RunResult) -> dict[str, Any]:
    """`report.json` as plain JSON values.

    Figures that are not finite become the strings `NaN`, `Infinity` and `-Infinity`.
    """
    results = run.results
    data = {
        "schema": SCHEMA,
        "release": __version__,
        "command": run.command,
        "repository": run.repository,
        "pull_request": run.pull_request,
        "base_sha": run.base_sha,
        "head_sha": run.head_sha,
        "stopped": run.stopped,
        "skipped": [{"what": what, "reason": reason} for what, reason in run.skipped],
        "targets": [_target(r) for r in results],
        "adopted": [_adopted(r, t) for r in results for t in adopted(r)],
        "gates": [entry for r in results for entry in _gates(r)],
        "noise": [{"target": r.target.name, **asdict(r.noise)} for r in results if r.noise is not None],
        "baselines": [entry for r in results for entry in _baselines(r)],
        "levers": [
            {
                "target": r.target.name,
                "lever": g.lever,
                "adopted": g.adopted,
                "gain": _comparison(g.comparison),
                "reason": g.reason,
            }
            for r in results
            for g in r.levers
        ],
        "sets": [
            {"target": r.target.name, "levers": name.split("+"), "gain": _comparison(c)}
            for r in results
            for name, c in r.sets.items()
        ],
        "rejected": [
            {
                "target": r.target.name,
                "lever": t.lever,
                "tried": t.tried,
                "adopted": t.adopted,
                "passed_over": t.passed_over,
                "stopped": t.stopped,
            }
            for r in results
            for t in tallies(r)
        ],
        "environment": {r.target.name: r.environment for r in results if r.environment},
        "secret": {r.target.name: r.secret for r in results if r.secret},
        "spent": _total(results),
    }
    plain = _plain(data)
    assert isinstance(plain, dict)
    return plain


def render_json(data: Mapping[str, Any]) -> str:
    """Deterministic, strict JSON (no NaN), with a final newline."""
    return json.dumps(data, indent=1, sort_keys=True, ensure_ascii=True, allow_nan=False) + "\n"


def _target(r: TargetResult) -> dict[str, Any]:
    p = r.profile
    return {
        "name": r.target.name,
        "path": r.target.path,
        "entry": r.target.entry,
        "mode": r.target.mode,
        "origin": r.target.origin,
        "kind": "triton" if isinstance(r.target, TritonTarget) else "module",
        "record": r.target.record if isinstance(r.target, TritonTarget) else "",
        "edits": sorted(r.edits),
        "inputs": r.target.inputs,
        "init": r.target.init,
        "inputs_origin": r.inputs_origin,
        "agents": list(r.agents),
        "closure": list(r.target.closure),
        "line": r.target.line,
        "faster": is_faster(r),
        "error": r.error,
        "error_kind": r.error_kind,
        "headline": _comparison(r.headline),
        "stitched": [v.to_json() for v in r.stitched],
        "precision": asdict(precise) if (precise := precision(r)) is not None else None,
        "covered": list(r.covered),
        "artifact": r.artifact,
        "wired": False,
        "call_site": call_site(r.artifact) if adopted(r) else "",
        "first_call": asdict(r.first_call) if r.first_call is not None else None,
        "peak_memory": r.peak_memory,
        "candidates": tried(r),
        "spent": r.spent,
        "program": None
        if r.program is None
        else {
            "lane": r.program.lane,
            "device": r.program.device,
            "torch": r.program.torch,
            "triton": r.program.triton,
            "graphs": len(r.program.graphs),
            "kernels": len(r.program.kernel_steps),
            "options": r.program.options,
        },
        "profile": None
        if p is None
        else {
            "roofs": asdict(p.roofs),
            "call_us": p.call_us,
            "device_us": p.device_us,
            "launch_gap": p.launch_gap,
            "steps": [asdict(s) for s in p.steps],
        },
    }


def _baselines(r: TargetResult) -> list[dict[str, Any]]:
    measured = [
        {"target": r.target.name, "baseline": c.baseline, "gain": _comparison(c), "reason": ""} for c in r.against
    ]
    absent = [
        {"target": r.target.name, "baseline": b, "gain": None, "reason": why} for b, why in r.not_applicable.items()
    ]
    return measured + absent


def _adopted(r: TargetResult, t: Trial) -> dict[str, Any]:
    gain = next((g.comparison for g in r.levers if g.lever == t.candidate.lever), None)
    return {**_trial(r, t, full=True), "gain": {"lever": _comparison(gain), "model": _comparison(r.headline)}}


def _gates(r: TargetResult) -> list[dict[str, Any]]:
    ordered = (*adopted(r), *furthest(r.trials))
    kernels = [t for t in ordered if isinstance(t.candidate, KernelCandidate)]
    others = [t for t in ordered if not isinstance(t.candidate, KernelCandidate)]
    return [_trial(r, t, full=i < _FULL_SOURCES) for i, t in enumerate(kernels)] + [
        _trial(r, t, full=True) for t in others
    ]


def _trial(r: TargetResult, t: Trial, *, full: bool) -> dict[str, Any]:
    c = t.candidate
    stop = t.stopped_by
    entry: dict[str, Any] = {
        "target": r.target.name,
        "id": c.id,
        "lever": c.lever,
        "technique": c.technique,
        "author": c.author,
        "rationale": c.rationale,
        "parent": c.parent,
        "adopted": t.adopted,
        "note": t.note,
        "stopped_by": stop.gate if stop is not None else None,
        "step": {"speedup": t.step_speedup, "before_us": t.before_us, "after_us": t.after_us},
        "verdicts": [{**v.to_json(), "scope": scope} for v, scope in verdicts_by_gate(r, t)],
    }
    if isinstance(c, KernelCandidate):
        entry |= {
            "kind": "kernel",
            "run_hash": c.run_hash,
            "graph": c.graph,
            "steps": list(c.steps),
            "replaces": list(replaced_names(r, t)),
            "source": c.source if full else None,
            "plan": c.plan.to_json() if full else None,
        }
    else:
        entry |= {"kind": "options", "options": c.options}
    return entry


def _comparison(c: Comparison | None) -> dict[str, Any] | None:
    return asdict(c) if c is not None else None


def _total(results: tuple[TargetResult, ...]) -> dict[str, float]:
    keys = sorted({k for r in results for k in r.spent} | {"wall_s", "device_s", "candidates"})
    return {k: sum(r.spent.get(k, 0.0) for r in results) for k in keys}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(v) for v in value), key=str)
    # Evidence comes from many hands: an odd value must not cost a run its report.
    return repr(value)
