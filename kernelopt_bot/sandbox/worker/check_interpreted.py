"""`check_interpreted`: gate 3 where there is no GPU.

The stitched wrapper and the compiler's own, both interpreted on the CPU, against the float64 outputs that the model
worker computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from kernelopt_bot.sandbox.worker import tensors
from kernelopt_bot.sandbox.worker.interpret_graph import interpret_graph
from kernelopt_bot.sandbox.worker.precision import compare
from kernelopt_bot.sandbox.worker.tensors import storage_key


def check_interpreted(params: Mapping[str, Any], scratch: tensors.Scratch, folder: str) -> dict[str, Any]:
    """Params `{source, artifact, expected: runs to be replaced, draws: of reference_graph, precision: {m, k}}`.

    The result has the form of `check_model`: `{draws, aliasing_equal, metadata_equal, replaced, float64}`. Raises
    WorkerFault unsupported, runtime_failed, bad_request.
    """
    draws: list[dict[str, Any]] = []
    rule = params["precision"]
    float64, found, aliasing, layout = "used", 0, True, True
    for given in params["draws"]:
        base = {"source": params["source"], "inputs": given["inputs"], "foreign": given.get("foreign", ())}
        expected = interpret_graph(base, scratch, folder)
        got = interpret_graph({**base, "artifact": params["artifact"]}, scratch, folder)
        found = sum((got["replaced"] or {}).values())
        before, after = _tensors(scratch, expected["outputs"]), _tensors(scratch, got["outputs"])
        aliasing &= _sharing(before) == _sharing(after)
        layout &= _layout(before) == _layout(after)
        exact = given["float64"]
        if exact is None:
            float64 = str(given["reason"])
        results = []
        for i, (b, c) in enumerate(zip(before, after, strict=False)):
            reference = tensors.load(scratch, exact[i]) if exact is not None and i < len(exact) else None
            results.append(compare(f"output {i}", c, b, reference, **rule))
        # What follows the outputs in `float64` are the inputs that the graph changes.
        references = dict(zip(map(str, given.get("mutated", ())), (exact or [])[len(before):], strict=False))
        for at in sorted(expected["changed"].keys() | got["changed"].keys(), key=int):
            b, c = (tensors.load(scratch, r["changed"].get(at, given["inputs"][int(at)])) for r in (expected, got))
            reference = tensors.load(scratch, references[at]) if at in references else None
            results.append(compare(f"input {at}", c, b, reference, **rule))
        draws.append({"seed": given["seed"], "init": 0, "outputs": results, "family": given["family"]})
    return {"draws": draws, "aliasing_equal": aliasing, "metadata_equal": layout, "float64": float64,
            "replaced": {"expected": int(params["expected"]), "found": found}}


def _tensors(scratch: tensors.Scratch, values: list[Any]) -> list[Tensor]:
    return [tensors.load(scratch, v) for v in values if isinstance(v, dict)]


def _layout(values: list[Tensor]) -> list[tuple[Any, ...]]:
    return [(t.dtype, tuple(t.shape), t.stride()) for t in values]


def _sharing(values: list[Tensor]) -> list[int]:
    """For each tensor the first one over the same storage."""
    keys = [storage_key(t) for t in values]
    return [keys.index(k) for k in keys]
