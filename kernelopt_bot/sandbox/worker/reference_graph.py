"""`reference_graph`: what a pretended-GPU graph must compute: inputs, the CPU's answer and float64, as files.

The kernel worker that interprets the graph never sees the user's code; it gets these and compares
(`check_interpreted`).
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from kernelopt_bot.sandbox.worker.capture import CapturedGraph, options_key
from kernelopt_bot.sandbox.worker.check_options import draw, reference
from kernelopt_bot.sandbox.worker.foreign import Recording
from kernelopt_bot.sandbox.worker.load import current
from kernelopt_bot.sandbox.worker.main import Context
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from kernelopt_bot.sandbox.worker.seeds import derive, generator
from kernelopt_bot.sandbox.worker.tensors import save

FAMILIES = ("captured", "normal")


def reference_graph(context: Context, params: dict[str, Any]) -> dict[str, Any]:
    """Params `{graph, secret}`; the graph must have been captured in the pretended lane without options.

    Result `{draws: [{family, seed, inputs: [TensorRef | value], float64: [TensorRef] | null, reason, mutated:
    [position], foreign}]}`; `float64` has the outputs that are tensors, in order, then the inputs at `mutated`;
    `foreign` as `foreign.Recording` has it. Raises WorkerFault bad_request.
    """
    current(context)
    graphs: list[CapturedGraph] = context.state.get("captures", {}).get(options_key("pretend", {}), [])
    if not 0 <= int(params["graph"]) < len(graphs):
        raise WorkerFault("bad_request", "capture the target in the pretended lane first")
    graph, secret, draws = graphs[int(params["graph"])], str(params["secret"]), []
    for family in FAMILIES:
        purpose = f"interpreted/{graph.index}/{family}"
        inputs = draw(graph, family, generator(secret, purpose, 0))
        exact, reason = reference(graph, inputs)
        recording = Recording(context)
        if graph.foreign:
            with recording:
                graph.compiled(graph.copies(inputs))
        draws.append({
            "family": family, "seed": derive(secret, purpose, 0),
            "inputs": [save(context, v) if isinstance(v, Tensor) else v for v in inputs],
            "float64": None if exact is None else [save(context, t) for t in exact], "reason": reason,
            "mutated": list(graph.mutated), "foreign": recording.calls})
    return {"draws": draws}
