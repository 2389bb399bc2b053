"""Gate 3: the whole model with the candidate in it against default torch.compile, eager and float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelopt_bot.gates.answers import Caller, judged, need, number
from kernelopt_bot.gates.verdict import Status, Verdict

TIMEOUT_S = 900.0
"""Four arms are compiled or run for each seed and initialisation."""


def check(
    worker: Caller, *, artifact: str | None, options: Mapping[str, Any], secret: str, seeds: int, inits: int,
    precision: Mapping[str, float], kernels: bool = False, timeout_s: float = TIMEOUT_S,
) -> Verdict:
    """`artifact`: folder of the stitched candidate, as the worker sees it, or None for `options` alone; `kernels`: the
    artifact replaces at least one run of steps, so that none found is a failure."""

    def judge() -> Verdict:
        answer = worker.call("check_model", {
            "artifact": artifact, "options": dict(options), "secret": secret, "seeds": seeds, "inits": inits,
            "precision": dict(precision)}, timeout=timeout_s)
        return decide(answer, kernels=kernels, draws_asked=seeds * inits)

    return judged("model", judge)


def decide(answer: Mapping[str, Any], *, kernels: bool, draws_asked: int = 1) -> Verdict:
    """The verdict over a `check_model` answer. Raises Malformed."""
    draws = need(answer, "draws", list)
    replaced = need(answer, "replaced", Mapping)
    expected, found = number(replaced, "expected"), number(replaced, "found")
    float64 = need(answer, "float64", str)
    outputs = [(draw, output) for draw in draws for output in need(draw, "outputs", list)]
    ratios = [number(o, "ratio") for _, o in outputs if isinstance(o, Mapping) and o.get("ratio") is not None]
    differences = "; ".join(map(str, answer.get("differences") or ()))
    evidence = {
        "draws": draws, "replaced": dict(replaced), "float64": float64,
        "largest_error_ratio": max(ratios, default=None),
        "aliasing_equal": answer.get("aliasing_equal"), "metadata_equal": answer.get("metadata_equal"),
        "differences": differences}

    def fail(reason: str) -> Verdict:
        return Verdict("model", Status.FAIL, reason, evidence)

    if not outputs or len(draws) < draws_asked:
        reason = f"{len(draws)} of {draws_asked} draws with {len(outputs)} outputs were compared"
        return Verdict("model", Status.NOT_MEASURED, reason, evidence)
    if expected != found or (kernels and not expected):
        return fail(f"{found:.0f} of {expected:.0f} runs were replaced")
    if not need(answer, "metadata_equal", bool):
        return fail(f"dtype, shape or stride of an output differs from default torch.compile's: {differences}")
    if not need(answer, "aliasing_equal", bool):
        return fail(f"outputs alias each other or the inputs otherwise than under default torch.compile: {differences}")
    exact = float64 != "used"
    for draw, output in outputs:
        if not need(output, "bit_equal" if exact else "passed", bool):
            why = f"no float64 reference ({float64}): only bit-equal candidates pass" if exact else output.get("reason")
            return fail(f"{output.get('name')}, seed {draw.get('seed')}, init {draw.get('init')}: {why}")
    return Verdict("model", Status.PASS, f"bit-equal; no float64 reference ({float64})" if exact else "", evidence)


def error_ratio(verdict: Verdict) -> float | None:
    """The largest RMSE(candidate) / RMSE(baseline) against float64 that a verdict of this gate saw."""
    value = verdict.evidence.get("largest_error_ratio")
    return float(value) if isinstance(value, int | float) else None
