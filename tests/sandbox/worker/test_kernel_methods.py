"""The kernel worker's door."""

from __future__ import annotations

import pytest

from kernelopt_bot.sandbox.client import WorkerFailed
from tests.sandbox.worker.conftest import KernelWorker
from tests.sandbox.worker.sources import IMPORTS, SOFTMAX, SOFTMAX_BODY


def test_hello_says_what_it_runs_on(compiler: KernelWorker) -> None:
    assert compiler.call("hello", {})["torch"].startswith("2.")


@pytest.mark.parametrize("method", ["compile_baseline", "compile_candidate", "check_step", "interpret_graph"])
def test_a_missing_parameter_is_a_bad_request(interpreter: KernelWorker, method: str) -> None:
    with pytest.raises(WorkerFailed, match="is missing") as caught:
        interpreter.call(method, {})
    assert caught.value.kind == "bad_request"


def test_a_plan_that_is_no_plan_is_a_bad_request(compiler: KernelWorker) -> None:
    with pytest.raises(WorkerFailed, match="plan is not understood"):
        compiler.call("compile_candidate", {"source": IMPORTS + SOFTMAX_BODY, "plan": {"parameters": [{"nom": 1}]}})


def test_methods_of_a_gpu_say_so_without_one(interpreter: KernelWorker) -> None:
    for method, params in (("roofs", {}), ("time_step", {"baseline": {"source": SOFTMAX}, "arguments": []})):
        with pytest.raises(WorkerFailed, match="needs a GPU") as caught:
            interpreter.call(method, params)
        assert caught.value.kind == "bad_request"
