"""A trace as JSON, for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from kernelopt_bot.search.archive import trial_to_json
from kernelopt_bot.trace.facts import Node, Spot, TargetTrace, Trace

SCHEMA = 1


def to_json(trace: Trace) -> dict[str, Any]:
    """`{schema, run, spending: null | {settled, reserved, by_role, ..}, targets: [{name, spots, exchanges,
    workers: {method: seconds}, left_out}]}`; a spot is `{lever, title, nodes}`.

    A node is `{trial, adopted, fate, exchange, gates: {gate: {status, reason, scope}}, children}`: `trial` as in
    trials.jsonl, `exchange` the key of one of `exchanges` or '', `fate` `adopted`, a gate's name or `passed over`.
    """
    return {"schema": SCHEMA, "run": trace.name,
            "spending": None if trace.spending is None else asdict(trace.spending),
            "targets": [_target(t) for t in trace.targets]}


def _target(target: TargetTrace) -> dict[str, Any]:
    return {"name": target.name, "spots": [_spot(s) for s in target.spots],
            "exchanges": [e.to_json() for e in target.exchanges], "workers": dict(target.workers),
            "left_out": target.left_out}


def _spot(spot: Spot) -> dict[str, Any]:
    return {"lever": spot.lever, "title": spot.title, "nodes": [_node(n) for n in spot.nodes]}


def _node(node: Node) -> dict[str, Any]:
    gates = {v.gate: {"status": v.status.value, "reason": v.reason, "scope": scope} for v, scope in node.verdicts}
    return {"trial": trial_to_json(node.trial), "adopted": node.adopted, "fate": node.fate, "exchange": node.exchange,
            "gates": gates, "children": [_node(c) for c in node.children]}
