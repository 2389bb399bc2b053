"""A trace as one self-contained page: no script, nothing loaded from elsewhere, light and dark."""

from __future__ import annotations

import base64
import functools
import json
from typing import Any

import jinja2
from markupsafe import Markup

from kernelopt_bot.agents.brain import Exchange
from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.process import redact
from kernelopt_bot.report import numbers as n
from kernelopt_bot.report.templates import environment
from kernelopt_bot.report.text import visible
from kernelopt_bot.trace import picture, roofline
from kernelopt_bot.trace.facts import Node, TargetTrace, Trace, yields
from kernelopt_bot.trace.text import costs, step

SHOWN = 100_000
"""Characters of one text (source, prompt, answer) on the page."""


def render(trace: Trace) -> str:
    """HTML. All text of the run is escaped, made visible and freed of secrets."""
    return _template().render(
        name=trace.name, targets=[_target(i, t) for i, t in enumerate(trace.targets)], costs=list(costs(trace)))


@functools.cache
def _template() -> jinja2.Template:
    made = environment("trace").overlay(autoescape=True, finalize=_clean)
    made.filters["seconds"] = lambda x: n.seconds(x) if x else ""
    return made.get_template("trace.html.j2")


def _clean(value: object) -> object:
    if isinstance(value, Markup | jinja2.Undefined):
        return value
    return visible(redact(str(value)), keep="\n\t")


def _target(number: int, target: TargetTrace) -> dict[str, Any]:
    nodes = [node for node, _ in target.walk()]
    anchor = {node.trial.candidate.id: f"c{number}-{i}" for i, node in enumerate(nodes)}
    exchanges = {(e.brain, e.key): f"e{number}-{i}" for i, e in enumerate(target.exchanges)}
    result = target.result
    return {
        "name": target.name, "result": result, "left_out": target.left_out,
        "headline": n.gain(result.headline) if result is not None and result.headline is not None else "",
        "tree": Markup(picture.tree(target, anchor)), "rooflines": _pictures(target),
        "profile": result.profile if result is not None else None,
        "candidates": [_candidate(node, anchor, exchanges) for node in nodes],
        "exchanges": [_exchange(e, exchanges, anchor) for e in target.exchanges], "yields": yields(target),
        "workers": [(name, n.seconds(s)) for name, s in sorted(target.workers.items(), key=lambda x: -x[1])]}


def _pictures(target: TargetTrace) -> dict[str, str]:
    drawn = {"light": roofline.draw(target, dark=False), "dark": roofline.draw(target, dark=True)}
    return {kind: "data:image/svg+xml;base64," + base64.b64encode(svg).decode()
            for kind, svg in drawn.items() if svg is not None}


def _candidate(node: Node, anchor: dict[str, str], exchanges: dict[tuple[str, str], str]) -> dict[str, Any]:
    c = node.trial.candidate
    data: object = c.plan.to_json() if isinstance(c, KernelCandidate) else dict(c.options)
    return {
        "anchor": anchor[c.id], "id": c.id, "technique": c.technique, "author": c.author,
        "fate": node.fate, "kind": node.kind,
        "rationale": c.rationale, "parent": c.parent or "", "parent_anchor": anchor.get(c.parent or "", ""),
        "exchange": node.exchange, "exchange_anchor": exchanges.get((c.author, node.exchange), ""), "step": step(node),
        "note": node.trial.note,
        "gates": [{"gate": v.gate, "status": v.status.value, "scope": scope, "reason": v.reason, "seconds": v.seconds,
                   "evidence": _shown(json.dumps(dict(v.evidence), indent=1, default=str)) if v.evidence else ""}
                  for v, scope in node.verdicts],
        "source": _shown(c.source) if isinstance(c, KernelCandidate) else "",
        "plan": json.dumps(data, indent=1)}


def _exchange(e: Exchange, exchanges: dict[tuple[str, str], str], anchor: dict[str, str]) -> dict[str, Any]:
    money = "" if e.usage.money_usd is None else f"{e.usage.money_usd:.4f}"
    return {
        "anchor": exchanges[e.brain, e.key], "key": e.key, "role": e.role, "brain": e.brain, "model": e.model,
        "outcome": e.outcome, "reason": e.reason, "faults": e.faults, "became": e.became, "seconds": e.seconds,
        "input": e.usage.input_tokens, "cached": e.usage.cached_tokens, "output": e.usage.output_tokens,
        "money": money, "version": e.prompt.version if e.prompt else "", "cut": e.prompt.cut if e.prompt else (),
        "system": _shown(e.prompt.system) if e.prompt else "", "user": _shown(e.prompt.user) if e.prompt else "",
        "text": _shown(e.text), "candidates": [(c, anchor.get(c, "")) for c in e.candidates]}


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}\n[{len(text) - SHOWN} characters left out]"
