"""The methods of a kernel worker. It never imports the user's code."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from kernelopt_bot.contract.candidate import Plan
from kernelopt_bot.sandbox.worker.check_interpreted import check_interpreted
from kernelopt_bot.sandbox.worker.check_step import check_step
from kernelopt_bot.sandbox.worker.children import Nursery, run_each
from kernelopt_bot.sandbox.worker.compile import compile_baseline, compile_candidate, warm_up
from kernelopt_bot.sandbox.worker.hello import hello
from kernelopt_bot.sandbox.worker.interpret_graph import interpret_graph
from kernelopt_bot.sandbox.worker.lane import interpreting
from kernelopt_bot.sandbox.worker.main import Context
from kernelopt_bot.sandbox.worker.protocol import COMPILES, WorkerFault
from kernelopt_bot.sandbox.worker.roofs import roofs
from kernelopt_bot.sandbox.worker.time_step import time_step, tune_step

DEFAULT_ARCH = 90


def _arch(params: dict[str, Any]) -> int:
    return int(params.get("target", {}).get("arch", DEFAULT_ARCH))


Method = Callable[[Context, dict[str, Any]], dict[str, Any]]


def _checked(method: Method) -> Method:
    """What the host may send wrongly becomes bad_request."""

    def call(context: Context, params: dict[str, Any]) -> dict[str, Any]:
        try:
            return method(context, params)
        except KeyError as e:
            raise WorkerFault("bad_request", f"{method.__name__}: the parameter {e} is missing") from e

    return call


def _compile_baseline(context: Context, params: dict[str, Any]) -> dict[str, Any]:
    return compile_baseline(params["source"], _arch(params), context.scratch)


def _compile_candidate(context: Context, params: dict[str, Any]) -> dict[str, Any]:
    plan, integers = _plan(params["plan"]), dict(params.get("integers", {}))
    return compile_candidate(params["source"], plan, integers, _arch(params), context.scratch,
                             str(params.get("baseline", "")), params.get("slots", ()))


def _plan(data: dict[str, Any]) -> Plan:
    try:
        return Plan.from_json(data)
    except (TypeError, KeyError, ValueError) as e:
        raise WorkerFault("bad_request", f"the plan is not understood: {e}") from e


def _check_step(context: Context, params: dict[str, Any]) -> dict[str, Any]:
    return check_step(params, context, context.scratch)


def _time_step(context: Context, params: dict[str, Any]) -> dict[str, Any]:
    return time_step(params, context, context.scratch)


def _tune_step(context: Context, params: dict[str, Any]) -> dict[str, Any]:
    return tune_step(params, context, context.scratch)


def _roofs(context: Context, params: dict[str, Any]) -> dict[str, Any]:
    return roofs()


def _interpret_graph(context: Context, params: dict[str, Any]) -> dict[str, Any]:
    return interpret_graph(params, context, os.path.join(context.scratch, "kernels"))


def _check_interpreted(context: Context, params: dict[str, Any]) -> dict[str, Any]:
    return check_interpreted(params, context, os.path.join(context.scratch, "kernels"))


def prepare(context: Context) -> None:
    """Before the first question, in a worker with a GPU that will be asked to compile too: what compiles is set apart
    while CUDA has not started."""
    if not os.environ.get(COMPILES) or not os.environ.get("CUDA_VISIBLE_DEVICES") or interpreting():
        return
    warm_up(context.scratch)

    def compiling(params: dict[str, Any]) -> dict[str, Any]:
        # What is forked from here must not start CUDA: it compiles for a pretended GPU.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        return _compile_here(context, params)

    context.state["nursery"] = Nursery(compiling)


def _compile_each(context: Context, params: dict[str, Any]) -> dict[str, Any]:
    """Several calls of one compiling method side by side."""
    nursery: Nursery | None = context.state.get("nursery")
    if nursery is not None:
        return nursery.ask(params)
    return _compile_here(context, params)


def _compile_here(context: Context, params: dict[str, Any]) -> dict[str, Any]:
    method = {"compile_baseline": _compile_baseline, "compile_candidate": _compile_candidate}.get(params["method"])
    if method is None or os.environ.get("CUDA_VISIBLE_DEVICES"):
        raise WorkerFault("bad_request", "compile_each: compiling methods only, in a process without a GPU")
    warm_up(context.scratch)
    jobs = [functools.partial(method, context, one) for one in params["params"]]
    timeout_s, processes = float(params["timeout_s"]), int(params.get("processes") or len(os.sched_getaffinity(0)))
    return {"answers": run_each(jobs, processes=processes, timeout_s=timeout_s)}


PREPARE = prepare

METHODS: dict[str, Method] = {
    "hello": hello,
    "compile_baseline": _checked(_compile_baseline),
    "compile_candidate": _checked(_compile_candidate),
    "compile_each": _checked(_compile_each),
    "check_step": _checked(_check_step),
    "time_step": _checked(_time_step),
    "tune_step": _checked(_tune_step),
    "roofs": _checked(_roofs),
    "interpret_graph": _checked(_interpret_graph),
    "check_interpreted": _checked(_check_interpreted),
}
