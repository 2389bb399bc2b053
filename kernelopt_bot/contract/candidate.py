"""A candidate: device code plus a launch plan that is data, or a set of compiler options.

Standard library only: the host, the worker in the user's interpreter and the tests share these types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Scalar = int | float | bool | str
Lever = Literal["kernel", "dispatch", "launch", "region"]


@dataclass(frozen=True)
class Parameter:
    """One live-in or live-out of the replaced run of steps, in canonical slot order.

    `type` is Triton's signature spelling: `*fp32`, `*bf16`, `*i64`, `i32`, `fp32`, ...
    For a run of one step the names are the baseline kernel's own parameter names.
    """

    name: str
    type: str
    written: bool = False
    read: bool = True
    divisible: bool = False
    """True if the pointer (or integer) is known to be a multiple of 16."""


@dataclass(frozen=True)
class Scratch:
    """A temporary buffer, allocated before the first launch and freed after the last."""

    name: str
    elements: str
    """Element count as a plan expression."""
    dtype: str
    """torch's name: `float32`, `int32`, ..."""
    zeroed: bool = False


@dataclass(frozen=True)
class Launch:
    """One kernel launch. `arguments` maps the function's run-time parameters, in order, to names."""

    function: str
    grid: tuple[str, ...]
    arguments: tuple[str, ...]
    """Names of plan parameters or scratch buffers, or plan expressions for integers, in the order of the
    function's parameters that are not `tl.constexpr`."""
    constexprs: Mapping[str, Scalar] = field(default_factory=dict)
    num_warps: int = 4
    num_stages: int = 1
    num_ctas: int = 1
    maxnreg: int | None = None


@dataclass(frozen=True)
class Plan:
    parameters: tuple[Parameter, ...]
    launches: tuple[Launch, ...]
    scratch: tuple[Scratch, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        """Raises TypeError, KeyError or ValueError on anything that is not a plan."""
        return cls(
            parameters=tuple(Parameter(**p) for p in data["parameters"]),
            scratch=tuple(Scratch(**s) for s in data.get("scratch", ())),
            launches=tuple(
                Launch(**{**launch, "grid": tuple(launch["grid"]), "arguments": tuple(launch["arguments"]),
                          "constexprs": dict(launch.get("constexprs", {}))})
                for launch in data["launches"]
            ),
        )


@dataclass(frozen=True)
class KernelCandidate:
    """Replaces the run of steps `steps` of graph `graph` (the first occurrence; all equal runs follow)."""

    id: str
    run_hash: str
    graph: int
    steps: tuple[int, ...]
    source: str
    plan: Plan
    technique: str
    author: str = "builtin"
    rationale: str = ""
    parent: str | None = None
    lever: Lever = "kernel"


@dataclass(frozen=True)
class OptionsCandidate:
    """Other decisions of the same compiler: Inductor options for the whole target."""

    id: str
    lever: Lever
    options: Mapping[str, Scalar]
    technique: str
    author: str = "builtin"
    rationale: str = ""
    parent: str | None = None


Candidate = KernelCandidate | OptionsCandidate
