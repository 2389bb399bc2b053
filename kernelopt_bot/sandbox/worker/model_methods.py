"""The model worker's methods."""

from __future__ import annotations

from kernelopt_bot.sandbox.worker.capture import capture
from kernelopt_bot.sandbox.worker.check_model import check_model
from kernelopt_bot.sandbox.worker.check_options import check_options
from kernelopt_bot.sandbox.worker.device_time import device_time
from kernelopt_bot.sandbox.worker.hello import hello
from kernelopt_bot.sandbox.worker.load import load
from kernelopt_bot.sandbox.worker.main import Method
from kernelopt_bot.sandbox.worker.profile import profile
from kernelopt_bot.sandbox.worker.reference_graph import reference_graph
from kernelopt_bot.sandbox.worker.time_model import first_call, time_model

METHODS: dict[str, Method] = {
    "hello": hello,
    "load": load,
    "capture": capture,
    "profile": profile,
    "check_options": check_options,
    "check_model": check_model,
    "time_model": time_model,
    "device_time": device_time,
    "first_call": first_call,
    "reference_graph": reference_graph,
}
