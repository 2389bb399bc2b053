"""A vendor call inside a run of steps: what Inductor's `extern_kernels` calls, on the run's buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernelopt_bot.sandbox.worker.protocol import WorkerFault

FUNCTIONS: Mapping[str, Callable[..., Tensor]] = {
    "extern_kernels.convolution": torch.convolution, "extern_kernels.mm": torch.mm,
    "extern_kernels.bmm": torch.bmm, "extern_kernels.addmm": torch.addmm, "extern_kernels.baddbmm": torch.baddbmm,
}
"""What `torch._inductor.select_algorithm.extern_kernels` stands for: the ATen functions without autotuning. Promotion
to float64 is the same function on float64 tensors."""


@dataclass(frozen=True)
class VendorStep:
    """`arguments` and `keywords`: a buffer's name, {buffer, shape, stride} for another view of one, or a plain value.
    `result` is the buffer that a returned tensor becomes ('' where `out` says it)."""

    name: str
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    result: str

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> VendorStep:
        """Raises WorkerFault bad_request for a function that is not known, or one whose result goes nowhere."""
        step = cls(str(data["vendor"]), tuple(data["arguments"]), dict(data.get("keywords", {})),
                   str(data.get("result", "")))
        if step.name not in FUNCTIONS:
            raise WorkerFault("bad_request", f"no vendor function {step.name!r}")
        if bool(step.result) == ("out" in step.keywords):
            raise WorkerFault("bad_request", f"{step.name} needs `out` or a result, and one of them only")
        return step

    def touched(self) -> tuple[set[str], set[str]]:
        """Buffers that it (reads, writes)."""
        out = self.result or _buffer(self.keywords["out"])
        reads = [*self.arguments, *(v for k, v in self.keywords.items() if k != "out")]
        return {_buffer(v) for v in reads} - {""}, {out}

    def launch(self, buffers: MutableMapping[str, Any]) -> None:
        """Run it. A result replaces its buffer in `buffers`: a copy would cost what the wrapper does not pay."""
        made = FUNCTIONS[self.name](*(_value(v, buffers) for v in self.arguments),
                                    **{k: _value(v, buffers) for k, v in self.keywords.items()})
        if self.result:
            buffers[self.result] = made


def _buffer(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value["buffer"])
    return value if isinstance(value, str) else ""


def _value(value: Any, buffers: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        return buffers[value["buffer"]].as_strided(value["shape"], value["stride"])
    if isinstance(value, str):
        return buffers[value]
    return tuple(value) if isinstance(value, Sequence) else value
