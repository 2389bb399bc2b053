"""What a technique is, and the registry that finds them all."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

from kernelopt_bot.compiler.program import Graph, Kernel, Step
from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.device.profile import Roofs, StepProfile
from kernelopt_bot.playbook.kernel_source import KernelSource, NotUnderstood, parse

_BYTES = {"8": 1, "e4nv": 1, "e5": 1, "16": 2, "32": 4, "64": 8, "i1": 1}


@dataclass(frozen=True)
class BaselineConfig:
    """One configuration that Inductor's heuristics would try, with the facts of its cubin."""

    constexprs: Mapping[str, int]
    num_warps: int
    num_stages: int
    facts: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BaselineConfig:
        """From an entry of `compile_baseline`'s `configs`. Raises KeyError or ValueError on another shape."""
        return cls({str(k): int(v) for k, v in data["constexprs"].items()}, int(data["num_warps"]),
                   int(data["num_stages"]), dict(data.get("facts") or {}))


@dataclass(frozen=True)
class Site:
    """What a technique may look at: facts of one kernel step, never a problem's name."""

    graph: Graph
    step: Step
    kernel: Kernel
    profile: StepProfile | None
    roofs: Roofs
    configs: tuple[BaselineConfig, ...]

    @cached_property
    def source(self) -> KernelSource | None:
        """The parsed kernel; None where it is not of the known shape."""
        try:
            return parse(self.kernel.source)
        except NotUnderstood:
            return None

    def integers(self) -> dict[str, int]:
        """Integer arguments of the call by parameter name."""
        return {a.name: a.value for a in self.step.arguments
                if isinstance(a.value, int) and not isinstance(a.value, bool)}

    def numel(self, prefix: str) -> int | None:
        """Extent of a dimension of the iteration space in elements, None if the kernel has no such dimension."""
        if self.source is None:
            return None
        return self.source.numel(prefix) or self.integers().get(f"{prefix}numel")

    def tensor_bytes(self, parameter: str) -> int:
        """Unique bytes behind a pointer parameter, 0 where unknown."""
        for argument in self.step.arguments:
            if argument.name == parameter and argument.tensor is not None:
                return argument.tensor.numel * width(self.kernel.signature.get(parameter, ""))
        return 0

    def tensor_numel(self, parameter: str) -> int:
        return next((a.tensor.numel for a in self.step.arguments if a.name == parameter and a.tensor is not None), 0)

    def distinct(self, first: str, second: str) -> bool:
        """True if the two pointer parameters are known to be bound to different buffers."""
        buffers = {a.name: a.buffer for a in self.step.arguments if a.tensor is not None}
        one, other = buffers.get(first, ""), buffers.get(second, "")
        return bool(one and other and one != other)

    @property
    def total_bytes(self) -> int:
        """Unique bytes of all tensor arguments, in-out ones counted once."""
        return sum(self.tensor_bytes(a.name) for a in self.step.arguments if a.tensor is not None)

    @property
    def headroom(self) -> float:
        """time / floor of the step; infinite where it was not measured, so that nothing is ruled out unseen."""
        return self.profile.headroom if self.profile is not None and self.profile.time_us else float("inf")


def width(signature_type: str) -> int:
    """Bytes of one element behind a Triton signature type (`*fp32` -> 4); 4 where unknown."""
    name = signature_type.lstrip("*")
    return next((n for suffix, n in _BYTES.items() if name.endswith(suffix)), 4)


@dataclass(frozen=True)
class Expectation:
    """Predicted speedup of the step (1.0 = none) and why, from facts."""

    gain: float
    reason: str


@runtime_checkable
class Technique(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def citation(self) -> str: ...

    def applies(self, site: Site) -> Expectation | None:
        """None where the facts say that it cannot help."""

    def propose(self, site: Site) -> Iterator[KernelCandidate]:
        """Candidates, most promising first; only called where `applies` gave an expectation."""


@functools.cache
def techniques() -> tuple[Technique, ...]:
    """Every technique of the playbook: the `TECHNIQUE` of each module beside this one, by name."""
    package = importlib.import_module(__package__ or "kernelopt_bot.playbook")
    found = []
    for module in pkgutil.iter_modules(package.__path__):
        technique = getattr(importlib.import_module(f"{package.__name__}.{module.name}"), "TECHNIQUE", None)
        if isinstance(technique, Technique):
            found.append(technique)
    return tuple(sorted(found, key=lambda t: t.name))


def ranked(site: Site) -> tuple[tuple[Expectation, Technique], ...]:
    """The techniques that apply, largest expected gain first."""
    found = [(e, t) for t in techniques() if (e := t.applies(site)) is not None]
    return tuple(sorted(found, key=lambda pair: (-pair[0].gain, pair[1].name)))
