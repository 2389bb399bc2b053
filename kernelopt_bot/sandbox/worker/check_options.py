"""`check_options`: gate 2 of an options candidate, graph by graph.

The graphs that the compiler makes by default and under the options run on the captured inputs and on drawn ones.
Other families than `captured` replace the floating values of what comes from outside the model; parameters and
buffers keep theirs (a variance must stay positive), except that `normal` also redraws the parameters at their own
mean and deviation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from kernelopt_bot.sandbox.worker.capture import CapturedGraph, captured, compiler_faults
from kernelopt_bot.sandbox.worker.families import make
from kernelopt_bot.sandbox.worker.load import Target, current
from kernelopt_bot.sandbox.worker.main import Context
from kernelopt_bot.sandbox.worker.precision import compare, same_bits
from kernelopt_bot.sandbox.worker.promote_graph import CannotPromote, run_float64
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from kernelopt_bot.sandbox.worker.seeds import derive, generator, seed_everything
from kernelopt_bot.sandbox.worker.tensors import meta, stats


def run_graph(graph: CapturedGraph, inputs: list[Any], seed: int) -> list[tuple[str, Tensor]]:
    """Named copies of the tensor outputs and of the inputs that the graph changes. `inputs` are not changed."""
    values = graph.copies(inputs)
    kept = list(values)
    seed_everything(seed)
    torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
    with torch.no_grad(), compiler_faults("a compiled graph failed"):
        outputs = graph.compiled(values)
        found = [(f"output {i}", o.clone()) for i, o in enumerate(outputs) if isinstance(o, Tensor)]
    return found + [(graph.qualified[i][0], kept[i].clone()) for i in graph.mutated if isinstance(kept[i], Tensor)]


def reference(graph: CapturedGraph, inputs: list[Any]) -> tuple[list[Tensor] | None, str]:
    """(the same list in float64, "used"), or (None, why not)."""
    try:
        outputs, after = run_float64(graph.module, inputs)
    except CannotPromote as e:
        return None, str(e)
    except torch.OutOfMemoryError:
        return None, "out of device memory in float64"
    except (RuntimeError, NotImplementedError, TypeError) as e:
        return None, f"the graph does not run in float64: {str(e).splitlines()[0][:200]}"
    found = [o for o in outputs if isinstance(o, Tensor)]
    return found + [after[i] for i in graph.mutated if isinstance(after[i], Tensor)], "used"


def draw(graph: CapturedGraph, family: str, seed: torch.Generator) -> list[Any]:
    """Inputs of a graph for one family."""
    values: list[Any] = []
    for value, (_, kind) in zip(graph.inputs, graph.qualified, strict=True):
        floating = isinstance(value, Tensor) and value.is_floating_point()
        if family == "captured" or not floating or kind in ("buffer", "symbol"):
            values.append(value)
        elif kind == "input":
            values.append(make(family, value, stats(value), seed))
        elif family == "normal":
            facts = stats(value) or {"mean": 0.0, "std": 1.0}
            drawn = make("normal", value, None, seed)
            values.append(drawn.mul_(facts["std"] or 1.0).add_(facts["mean"]))
        else:
            values.append(value)
    return values


def _pairs(target: Target, context: Context, options: Mapping[str, Any]) -> list[tuple[CapturedGraph, CapturedGraph]]:
    """(default, under the options), matched by position. Raises WorkerFault (unsupported) if they do not match."""
    baseline, candidate = captured(context, target, {}), captured(context, target, options)
    if len(baseline) != len(candidate):
        raise WorkerFault("unsupported", f"{len(candidate)} graphs under the options, {len(baseline)} by default")
    for b, c in zip(baseline, candidate, strict=True):
        shapes = [[meta(v) if isinstance(v, Tensor) else None for v in g.inputs] for g in (b, c)]
        if b.qualified != c.qualified or shapes[0] != shapes[1]:
            raise WorkerFault("unsupported", f"graph {b.index} takes other inputs under the options than by default")
    return list(zip(baseline, candidate, strict=True))


def _family(pair: tuple[CapturedGraph, CapturedGraph], family: str, secret: str, precision: Mapping[str, float],
            ) -> tuple[dict[str, Any], str]:
    baseline, candidate = pair
    device = next((v.device for v in baseline.inputs if isinstance(v, Tensor)), torch.device("cpu"))
    purpose = f"options/{baseline.index}/{family}"
    inputs = draw(baseline, family, generator(secret, purpose, 0, device))
    seed = derive(secret, purpose, 1)
    expected, again = run_graph(baseline, inputs, seed), run_graph(baseline, inputs, seed)
    got, got_again = run_graph(candidate, inputs, seed), run_graph(candidate, inputs, seed)
    exact, used = reference(baseline, inputs)
    names = [n for n, _ in expected]
    outputs: list[dict[str, Any]] = []
    reason = "" if [n for n, _ in got] == names else f"returns {[n for n, _ in got]} instead of {names}"
    if not reason:
        for i, ((name, b), (_, c)) in enumerate(zip(expected, got, strict=True)):
            f = exact[i] if exact is not None and exact[i].shape == b.shape else None
            outputs.append(compare(name, c, b, f, **precision))
        repeatable = all(same_bits(x, y) for (_, x), (_, y) in zip(expected, again, strict=True))
        repeats = all(same_bits(x, y) for (_, x), (_, y) in zip(got, got_again, strict=True))
        failed = next((o for o in outputs if not o["passed"]), None)
        if failed is not None:
            reason = f"{failed['name']}: {failed['reason']}"
        elif repeatable and not repeats:
            reason = "two runs on the same inputs differ, the default's do not"
    return {"family": family, "seed": seed, "outputs": outputs, "passed": not reason, "reason": reason}, used


def rule(precision: Mapping[str, Any]) -> dict[str, float]:
    """The keywords of `precision.compare`. Raises WorkerFault (bad_request) if `m` or `k` is missing."""
    if not {"m", "k"} <= set(precision):
        raise WorkerFault("bad_request", "the precision rule needs m and k")
    return {name: float(precision[name]) for name in ("m", "k", "m_half") if name in precision}


def check_options(context: Context, params: dict[str, Any]) -> dict[str, Any]:
    """See docs/architecture.md. `peak_bytes` is the device memory of both forms together, null on a CPU."""
    target, options = current(context), dict(params["options"])
    on_gpu = target.device.type == "cuda"
    pairs = _pairs(target, context, options)
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(target.device)
    precision = rule(params["precision"])
    graphs: list[dict[str, Any]] = []
    for i, pair in enumerate(pairs):
        results: list[dict[str, Any]] = []
        used = ""
        for family in params["families"]:
            context.progress(f"graph {i}: {family}", i, len(pairs))
            result, used = _family(pair, family, params["secret"], precision)
            results.append(result)
        graphs.append({"index": i, "families": results, "float64": used})
    peak = torch.cuda.max_memory_allocated(target.device) if on_gpu else None
    return {"graphs": graphs, "peak_bytes": peak}
