"""Launches candidates once, each in memory that ends with its buffers: a process of its own, under compute-sanitizer.

Started by `device/sanitizer.py` with a folder that holds `request.json` = {"steps": [parameters of `check_step`],
"run": "candidate" | "baseline"}; writes `answer.json` = {"ran": how many, "error": text}. Without
PyTorch's allocator (PYTORCH_NO_CUDA_MEMORY_CACHING=1) each buffer is an allocation that the tool knows.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import torch

from kernelopt_bot.sandbox.worker.buffers import Arena
from kernelopt_bot.sandbox.worker.check_step import StepCheck
from kernelopt_bot.sandbox.worker.launchers import run
from kernelopt_bot.sandbox.worker.main import Context
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from kernelopt_bot.sandbox.worker.step_inputs import Drawn

FAMILY = "normal"


def launch_once(params: Mapping[str, Any], folder: str, who: str) -> None:
    """One launch of the step's `candidate` or `baseline` on values drawn on the CPU. Raises WorkerFault."""
    check = StepCheck(params, Context(folder, sys.stdout.buffer), folder)
    host = torch.device("cpu")
    arena = Arena(check.slots, host, bare=True)
    drawn = Drawn(FAMILY, f"sanitize/{FAMILY}", 0, host)
    check.inputs.draw(drawn, {s.name: arena.view(s) for s in check.inputs.loaded})
    there = arena.moved(check.device)
    arguments = {**check.scalars, **{s.name: there.view(s) for s in check.slots}}
    run(check.candidate if who == "candidate" else check.baseline, arguments, check.device, f"the {who}")


def main(folder: str) -> int:
    with open(os.path.join(folder, "request.json"), encoding="utf-8") as file:
        request = json.load(file)
    ran, error = 0, ""
    try:
        for params in request["steps"]:
            launch_once(params, folder, request["run"])
            ran += 1
    except WorkerFault as e:
        error = f"{e.kind}: {e.message}"
    with open(os.path.join(folder, "answer.json"), "w", encoding="utf-8") as file:
        json.dump({"ran": ran, "error": error[:2000]}, file)
    return 0 if not error else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
