"""Where the kernel lever works: one kernel call, or a run of several that can be fused, in the same terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from kernelopt_bot.compiler.program import Kernel
from kernelopt_bot.compiler.run import KernelRun
from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.gates import correctness
from kernelopt_bot.playbook.technique import Site, ranked
from kernelopt_bot.search import runs, sites
from kernelopt_bot.search.runs import RunPlace
from kernelopt_bot.search.sites import Place

FOR_EACH_TECHNIQUE = 4
FOR_EACH_SPOT = 10


@dataclass(frozen=True)
class Spot:
    """A run of one or more steps, and who has ideas for it."""

    name: str
    savings_us: float
    """Of one call of the program: for a step what its floor leaves, for a run what its fusion expects."""
    calls: int
    """How often the program has it."""
    hashes: frozenset[str]
    """Of its steps: spots that share one cannot both be replaced."""
    kernels: tuple[Kernel, ...]
    run: KernelRun | None
    """None for a single step."""
    integers: Mapping[str, int]
    """Of gate 1's plans."""
    baseline: Mapping[str, Any]
    """Of the kernel worker's `check_step` and `tune_step`."""
    recorded: tuple[Mapping[str, Any], ...]
    """`CallJson` of each step."""
    buffer_bytes: int
    """Unique bytes of its buffers."""
    arguments: Callable[[Sequence[Mapping[str, Any]]], list[Any]]
    """Recorded calls lent to the worker -> `arguments` of the same methods."""
    ideas: Callable[[Sequence[Mapping[str, Any]]], list[KernelCandidate]]
    """Answers of `compile_baseline`, one a kernel -> candidates, most promising first. Raises KeyError, ValueError or
    TypeError where an answer is not understood."""
    run_hash: str = ""
    """Canonical hash of the run: what its candidates replace."""
    graph: int = 0
    steps: tuple[int, ...] = ()
    """Graph and steps of its first occurrence."""
    place: Place | RunPlace | None = None
    """What it was made of."""

    @property
    def kernel_or_run(self) -> Kernel | KernelRun:
        return self.run or self.kernels[0]


def of_place(place: Place, *, each: int = FOR_EACH_TECHNIQUE, most: int = FOR_EACH_SPOT) -> Spot:
    """A step; `each` candidates of a technique at most, `most` in all."""
    site = place.site
    step = site.step

    def ideas(answers: Sequence[Mapping[str, Any]]) -> list[KernelCandidate]:
        return ideas_for(sites.configured(place, answers[0]), each=each, most=most)

    sizes = {a.buffer: a.tensor.storage_bytes for a in step.arguments if a.tensor is not None}
    return Spot(
        site.kernel.name, place.savings_us, place.calls, frozenset([step.hash]), (site.kernel,), None,
        {**correctness.integers(step), "num_sms": site.roofs.multiprocessors},
        {"source": site.kernel.source, "integers": correctness.integers(step)}, (place.call,), sum(sizes.values()),
        lambda lent: correctness.step_arguments(step, lent[0]), ideas, step.hash, step.graph, (step.index,), place)


def of_run(place: RunPlace, *, most: int = FOR_EACH_SPOT) -> Spot:
    """A run of several steps; `most` candidates in all."""
    run = place.site.run

    def ideas(answers: Sequence[Mapping[str, Any]]) -> list[KernelCandidate]:
        return list(islice(place.proposals(runs.configured(place, answers)), most))

    return Spot(
        place.name, place.savings_us, place.calls, frozenset(s.hash for s in run.all_steps), run.kernels, run,
        place.integers, place.baseline(), place.recorded, sum(b.tensor.storage_bytes for b in run.buffers),
        place.arguments, ideas, run.hash, run.graph.index, run.steps, place)


def ideas_for(site: Site, *, each: int = FOR_EACH_TECHNIQUE, most: int = FOR_EACH_SPOT) -> list[KernelCandidate]:
    """Techniques in turn, most promising first, so that one with many ideas does not crowd out the others."""
    found: list[KernelCandidate] = []
    for _, technique in ranked(site):
        found += islice(technique.propose(site), each)
    return found[:most]
