"""Gate 3: the whole model with the candidate in it against default torch.compile, eager and float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    worst = _worst(outputs)
    differences = "; ".join(map(str, answer.get("differences") or ()))
    evidence = {
        "draws": draws, "replaced": dict(replaced), "float64": float64,
        "largest_error_ratio": None if worst is None else worst["ratio"], "worst": worst,
        "bit_equal": all(isinstance(o, Mapping) and o.get("bit_equal") is True for _, o in outputs),
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


def _worst(outputs: Sequence[tuple[Any, Any]]) -> dict[str, Any] | None:
    """The output with the largest ratio of errors; None where no baseline has an error. Raises Malformed."""
    rows = [{"output": str(o.get("name")), "seed": d.get("seed"), "init": d.get("init"), "ratio": number(o, "ratio"),
             "rmse_candidate": number(o, "rmse_candidate"), "rmse_baseline": number(o, "rmse_baseline"),
             "rms_reference": number(o, "rms_reference")}
            for d, o in outputs if isinstance(o, Mapping) and o.get("ratio") is not None]
    return max(rows, key=lambda row: row["ratio"], default=None)


@dataclass(frozen=True)
class Precision:
    """How precise the whole model is with the candidate in it, by the numbers of a verdict of this gate."""

    draws: int
    """Of inputs, over all initialisations."""
    inits: int
    bit_equal: bool
    """Every output of every draw has default torch.compile's bits."""
    ratio: float | None
    """Largest RMSE(candidate) / RMSE(default torch.compile), both against float64; None where the latter is 0 in all
    draws, or where there is no float64 reference."""
    rmse_candidate: float = 0.0
    rmse_baseline: float = 0.0
    output: str = ""
    """The output with that ratio, and its errors in the output's own unit."""


def precision_of(verdict: Verdict) -> Precision | None:
    """None where the verdict's evidence holds no draw: the worker did not come so far."""
    draws = verdict.evidence.get("draws")
    if verdict.gate != "model" or not isinstance(draws, list) or not draws:
        return None
    inits, worst = len({d.get("init") for d in draws}), verdict.evidence.get("worst")
    equal = verdict.evidence.get("bit_equal") is True
    if worst is None or verdict.evidence.get("float64") != "used":
        return Precision(len(draws), inits, equal, None)
    return Precision(len(draws), inits, equal, worst["ratio"], worst["rmse_candidate"], worst["rmse_baseline"],
                     worst["output"])
