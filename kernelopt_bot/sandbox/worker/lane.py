"""Where this worker runs kernels: on a GPU, or on the CPU by Triton's interpreter."""

from __future__ import annotations

import os
from typing import Literal

import torch

from kernelopt_bot.sandbox.worker.protocol import WorkerFault

Lane = Literal["cuda", "interpret"]
ASSUMED_MULTIPROCESSORS = 132
"""`num_sms` where neither a GPU nor a baseline kernel tells it: an H200's."""


def interpreting() -> bool:
    """Whether this process was started to interpret Triton kernels."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def need_lane(lane: Lane) -> torch.device:
    """The device of a lane. Raises WorkerFault bad_request if this worker was not started for it."""
    if lane == "interpret":
        if not interpreting():
            raise WorkerFault("bad_request", "the interpreter lane needs a worker started with interpret")
        return torch.device("cpu")
    if lane != "cuda":
        raise WorkerFault("bad_request", f"unknown lane {lane!r}: cuda or interpret")
    if interpreting() or not torch.cuda.is_available():
        raise WorkerFault("bad_request", "the cuda lane needs a GPU and a worker started without interpret")
    return torch.device("cuda", torch.cuda.current_device())
