"""Fusion of neighbouring generated kernels: what a fusion may look at, and how its launches become a candidate."""

from __future__ import annotations

import ast
import functools
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from kernelopt_bot.compiler.program import TensorMeta
from kernelopt_bot.compiler.run import KernelRun
from kernelopt_bot.contract.candidate import KernelCandidate, Launch, Lever, Parameter, Plan, Scratch
from kernelopt_bot.device.profile import Roofs, StepProfile
from kernelopt_bot.playbook.emit import Function, to_candidate_source
from kernelopt_bot.playbook.kernel_source import KernelSource, NotUnderstood, parse
from kernelopt_bot.playbook.technique import BaselineConfig, Expectation, width

LAUNCH_US = 2.0
"""Device time of a launch that moves next to nothing, in microseconds: start, drain and the gap to the next one."""


@dataclass(frozen=True)
class RunSite:
    """Facts of one run. `profiles` are those of all its steps in order, a vendor call's first, `configs` those of the
    kernel calls, empty until the baselines were compiled."""

    run: KernelRun
    profiles: tuple[StepProfile | None, ...]
    roofs: Roofs
    configs: tuple[tuple[BaselineConfig, ...], ...] = ()

    @cached_property
    def sources(self) -> tuple[KernelSource, ...] | None:
        """The parsed kernels, None where one of them is not of the known shape."""
        try:
            return tuple(_parsed(k.source) for k in self.run.kernels)
        except NotUnderstood:
            return None

    def buffer_bytes(self, name: str) -> int:
        buffer = self.run.buffer[name]
        return buffer.tensor.numel * width(buffer.type)

    def traffic(self, position: int) -> tuple[frozenset[str], frozenset[str]]:
        """Buffers that the call at `position` (loads from, stores to)."""
        call, source = self.run.calls[position], (self.sources or ())[position]
        bound = {a.name: p for a, p in zip(call.step.arguments, call.arguments, strict=True) if isinstance(p, str)}
        return (frozenset(bound[a.pointer] for a in source.loads if a.pointer in bound),
                frozenset(bound[n] for n in call.kernel.written if n in bound))

    def model_us(self, launches: Sequence[tuple[frozenset[str], frozenset[str]]]) -> float:
        """Least time of launches that (load, store) buffers, in microseconds: each buffer once read, once written."""
        moved = sum(self.buffer_bytes(n) for loads, stores in launches for n in (*loads, *stores))
        return LAUNCH_US * len(launches) + 1e6 * moved / self.roofs.copy_bytes_per_s

    @cached_property
    def before_us(self) -> float:
        """Time of the run as it is: measured where every step was, else the least that its launches need."""
        times = [p.time_us for p in self.profiles if p is not None and p.time_us]
        if len(times) == len(self.run.all_steps):
            return float(sum(times))
        if self.run.vendor is not None:
            return sum(self.call_us(i) for i in range(len(self.run.all_steps)))
        return self.model_us([self.traffic(i) for i in range(len(self.run.calls))])

    def call_us(self, position: int) -> float:
        """Time of one step of a run with a vendor call (position 0) in microseconds: measured, else the least that its
        operations and its traffic need."""
        profile, vendor = self.profiles[position], self.run.vendor
        if profile is not None and profile.time_us:
            return float(profile.time_us)
        if vendor is None or position:
            return self.model_us([self.traffic(position - (vendor is not None))])
        moved = self.model_us([(frozenset(vendor.operands.values()), frozenset([vendor.out]))])
        rate = self.roofs.matrix_flops_per_s.get(self.run.buffer[vendor.out].tensor.dtype, 0.0)
        return max(moved, LAUNCH_US + 1e6 * vendor.step.flops / rate if rate and vendor.step.flops else 0.0)

    def share(self, loads: frozenset[str], stores: frozenset[str], without: str) -> float:
        """Of the bytes that a kernel (loads, stores), `without` loaded once more, those that stay without that."""
        rest = sum(self.buffer_bytes(n) for n in (*(loads - {without}), *stores))
        return rest / (rest + self.buffer_bytes(without))


@functools.lru_cache(maxsize=1024)  # a kernel is part of many runs
def _parsed(source: str) -> KernelSource:
    return parse(source)


class Fusion(Protocol):
    """Replaces a whole run by one candidate."""

    @property
    def name(self) -> str: ...

    @property
    def citation(self) -> str: ...

    def applies(self, site: RunSite) -> Expectation | None:
        """None where the facts say that it cannot help."""

    def propose(self, site: RunSite) -> Iterator[KernelCandidate]:
        """Candidates, most promising first."""


@dataclass(frozen=True)
class FusedLaunch:
    """A launch of a candidate for a run: the function's pointer parameters are names of the run's buffers."""

    function: Function
    grid: tuple[str, ...]
    arguments: tuple[str, ...]
    constexprs: Mapping[str, int]
    num_warps: int
    num_stages: int = 1


def candidate(site: RunSite, technique: str, launches: Sequence[FusedLaunch], helpers: Sequence[ast.FunctionDef],
              rationale: str, *, lever: Lever = "kernel") -> KernelCandidate:
    """The candidate for the site's run. Buffers that live only inside the run and that a launch takes become scratch.
    Raises NotUnderstood if two kernels bring different helpers of one name."""
    run = site.run
    text = to_candidate_source([launch.function for launch in launches], _distinct(helpers))
    used = {a for launch in launches for a in launch.arguments}
    read = _read(launches)
    parameters = [
        Parameter(b.name, b.type, written=b.name in run.written, read=b.name in read or b.name not in run.written,
                  divisible=b.divisible) for b in run.slots]
    scratch = tuple(Scratch(b.name, str(extent(b.tensor)), b.tensor.dtype)
                    for b in run.buffers if b.role == "inside" and b.name in used)
    plan = Plan(tuple(parameters), tuple(
        Launch(launch.function.name, launch.grid, launch.arguments, dict(launch.constexprs), launch.num_warps,
               launch.num_stages) for launch in launches), scratch)
    digest = hashlib.sha256(json.dumps([run.hash, text, plan.to_json()], sort_keys=True).encode()).hexdigest()[:10]
    return KernelCandidate(id=f"{technique}-{digest}", run_hash=run.hash, graph=run.graph.index, steps=run.steps,
                           source=text, plan=plan, technique=technique, rationale=rationale, lever=lever)


def extent(tensor: TensorMeta) -> int:
    """Elements from the first to behind the last; at least 1."""
    return sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride, strict=True)) + 1 if tensor.numel else 1


def _distinct(helpers: Sequence[ast.FunctionDef]) -> list[ast.FunctionDef]:
    known: dict[str, ast.FunctionDef] = {}
    for helper in helpers:
        if ast.unparse(known.setdefault(helper.name, helper)) != ast.unparse(helper):
            raise NotUnderstood(f"two helpers {helper.name}")
    return list(known.values())


def _read(launches: Sequence[FusedLaunch]) -> set[str]:
    """Buffers that some launch loads from, by its text: pointer parameters have their buffers' names."""
    calls = [n for launch in launches for s in launch.function.body for n in ast.walk(s) if isinstance(n, ast.Call)]
    return {n.id for c in calls if ast.unparse(c.func) == "tl.load" and c.args
            for n in ast.walk(c.args[0]) if isinstance(n, ast.Name)}
