"""What the compiler made of a target: graphs of steps, each kernel and each vendor call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Lane = Literal["cuda", "pretend", "cpu"]
StepKind = Literal["kernel", "vendor", "allocation", "view", "free", "other"]


@dataclass(frozen=True)
class TensorMeta:
    """A tensor as seen at run time; `shape` and `stride` in elements."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    storage_bytes: int
    device: str

    @property
    def numel(self) -> int:
        n = 1
        for s in self.shape:
            n *= s
        return n


@dataclass(frozen=True)
class Argument:
    """One argument of a step's call. `name` is the kernel's parameter name, or the position for vendor calls."""

    name: str
    expression: str
    tensor: TensorMeta | None = None
    value: int | float | bool | str | None = None
    buffer: str = ""
    """The wrapper's variable behind a tensor argument ('' if none)."""


@dataclass(frozen=True)
class Kernel:
    """A generated Triton kernel: its whole source text as Inductor emitted it."""

    name: str
    function: str
    source: str
    hash: str
    heuristic: str
    """`pointwise`, `reduction`, `persistent_reduction`, `user_autotune`, ..."""
    signature: Mapping[str, str]
    """Parameter name -> Triton type (`*fp32`, `i32`, `constexpr`)."""
    written: tuple[str, ...]
    size_hints: Mapping[str, int]
    origin: str = ""
    """The operators it came from, from the kernel's name: a label, never a key."""


@dataclass(frozen=True)
class Step:
    graph: int
    index: int
    kind: StepKind
    name: str
    """Kernel's global name, vendor function's dotted name, or the statement's text."""
    function: str
    """`call` or `partition_N`."""
    lines: tuple[int, int]
    """First and last line in the wrapper, from 1."""
    hash: str = ""
    """Canonical run hash of this one step (kernels), or of the call's text and shapes (others)."""
    arguments: tuple[Argument, ...] = ()
    results: tuple[str, ...] = ()
    """Variables that the statement binds."""
    flops: int | None = None
    """Floating-point operations of a vendor product, None where unknown."""


@dataclass(frozen=True)
class GraphInput:
    name: str
    """The wrapper's name, `arg0_1`."""
    qualified: str
    """`encoder.0.weight` for parameters and buffers, the argument's source text otherwise."""
    kind: Literal["parameter", "buffer", "input", "symbol"]
    tensor: TensorMeta | None
    mutated: bool = False


@dataclass(frozen=True)
class Graph:
    index: int
    source: str
    """The wrapper's text, byte for byte."""
    inputs: tuple[GraphInput, ...]
    outputs: tuple[TensorMeta | None, ...]
    steps: tuple[Step, ...]
    kernels: Mapping[str, Kernel]
    is_inference: bool = True
    is_backward: bool = False


@dataclass(frozen=True)
class Program:
    target: str
    lane: Lane
    graphs: tuple[Graph, ...]
    torch: str
    triton: str
    device: str
    """`NVIDIA H200`, `pretended sm_90`, or the processor's name."""
    options: Mapping[str, int | float | bool | str] = field(default_factory=dict)
    """The Inductor options it was compiled under; empty for the default."""

    @property
    def kernel_steps(self) -> tuple[Step, ...]:
        return tuple(s for g in self.graphs for s in g.steps if s.kind == "kernel")
