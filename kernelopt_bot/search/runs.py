"""Where neighbouring kernels can be fused: runs of consecutive kernel calls, ranked by what fusing them can save."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelopt_bot.compiler.program import Graph
from kernelopt_bot.compiler.run import KernelRun, regions_of, runs_of
from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.device.profile import Profile, Roofs, StepProfile
from kernelopt_bot.gates.correctness import run_arguments
from kernelopt_bot.playbook import depthwise_region, product_region
from kernelopt_bot.playbook.fuse_producers import FUSION
from kernelopt_bot.playbook.fusion import Fusion, RunSite
from kernelopt_bot.playbook.technique import BaselineConfig, Expectation
from kernelopt_bot.search.capturing import Captured

LONGEST = 6
"""Kernel calls of one run: a split normalisation has four, the statistics' bias and what follows one more each."""
FUSIONS: tuple[Fusion, ...] = (FUSION,)
REGIONS: tuple[Fusion, ...] = (product_region.REGION, depthwise_region.REGION)
"""Of the lever `region`: runs that begin with a vendor call."""


@dataclass(frozen=True)
class RunPlace:
    """A run that a fusion expects to make faster: what `Place` is for one step. `recorded`: the `CallJson` of each of
    its calls; `calls`: how often the program has the same run."""

    site: RunSite
    recorded: tuple[Mapping[str, Any], ...]
    calls: int
    expected: Expectation
    fusion: Fusion

    @property
    def savings_us(self) -> float:
        """What the fusion expects to save of one call of the program, in microseconds."""
        return self.site.before_us * (1.0 - 1.0 / self.expected.gain) * self.calls

    @property
    def integers(self) -> dict[str, int]:
        """What a plan's expressions may use: gate 1's `integers`."""
        return {**self.site.run.integers, "num_sms": self.site.roofs.multiprocessors}

    def baseline(self) -> dict[str, Any]:
        """`baseline` of the kernel worker's `check_step`, `time_step` and `tune_step`."""
        return self.site.run.baseline()

    def arguments(self, lent: Sequence[Mapping[str, Any]]) -> list[Any]:
        """`arguments` of the same methods; `lent`: the recorded calls with their tensors lent to the worker."""
        return run_arguments(self.site.run, lent)

    def proposals(self, site: RunSite) -> Iterator[KernelCandidate]:
        """Candidates for the configured site, most promising first."""
        return self.fusion.propose(site)

    @property
    def name(self) -> str:
        run = self.site.run
        return " + ".join([*([run.vendor.function] if run.vendor else []), *(k.name for k in run.kernels)])


def run_places(captured: Captured, profile: Profile | None, roofs: Roofs) -> tuple[RunPlace, ...]:
    """Runs of recorded calls that some fusion applies to, one for each run hash, largest savings first. Of runs that
    share calls all are named: a caller that keeps a candidate for one leaves out what `overlaps` it."""
    return _places(captured, profile, roofs, lambda graph: runs_of(graph, LONGEST), FUSIONS)


def region_places(captured: Captured, profile: Profile | None, roofs: Roofs) -> tuple[RunPlace, ...]:
    """As `run_places`: recorded vendor calls, each with the kernel call after it, that a technique takes as one."""
    return _places(captured, profile, roofs, regions_of, REGIONS)


def _places(captured: Captured, profile: Profile | None, roofs: Roofs, runs: Callable[[Graph], Sequence[KernelRun]],
            fusions: Sequence[Fusion]) -> tuple[RunPlace, ...]:
    times: dict[tuple[int, int], StepProfile] = {(s.graph, s.step): s for s in profile.steps} if profile else {}
    counts: dict[str, int] = {}
    first: dict[str, RunPlace] = {}
    judged: set[str] = set()
    for graph in captured.program.graphs:
        for run in runs(graph):
            counts[run.hash] = counts.get(run.hash, 0) + 1
            recorded = [captured.call_of(s) for s in run.all_steps]
            if run.hash in judged or any(r is None for r in recorded):
                continue
            judged.add(run.hash)
            site = RunSite(run, tuple(times.get((graph.index, i)) for i in run.steps), roofs)
            best = _best(site, fusions)
            if best is not None:
                first[run.hash] = RunPlace(site, tuple(r for r in recorded if r is not None), 1, *best)
    found = [dataclasses.replace(p, calls=counts[h]) for h, p in first.items()]
    return tuple(sorted(found, key=lambda p: (-p.savings_us, len(p.site.run.calls))))


def _best(site: RunSite, fusions: Sequence[Fusion]) -> tuple[Expectation, Fusion] | None:
    found = [(e, f) for f in fusions if (e := f.applies(site)) is not None]
    return max(found, key=lambda pair: pair[0].gain) if found else None


def find_run(captured: Captured, run_hash: str, steps: int) -> tuple[KernelRun, tuple[Mapping[str, Any], ...]] | None:
    """The first run of so many steps with this hash, and its recorded calls; None if there is none, or not recorded."""
    for graph in captured.program.graphs:
        for run in (*runs_of(graph, steps), *regions_of(graph)):
            if run.hash == run_hash:
                recorded = tuple(r for s in run.all_steps if (r := captured.call_of(s)) is not None)
                return (run, recorded) if len(recorded) == len(run.all_steps) else None
    return None


def overlaps(run: KernelRun, steps: Iterable[tuple[int, int]]) -> bool:
    """Whether a run has one of the (graph, step)s. A candidate for a run makes the candidates of its own steps, and of
    runs that share steps with it, useless: only one of them can be put in."""
    own = {(run.graph.index, i) for i in run.steps}
    return bool(own & set(steps))


def configured(place: RunPlace, answers: Sequence[Mapping[str, Any]]) -> RunSite:
    """The site with its kernels' configurations from the worker's `compile_baseline`, one answer for each kernel.
    Raises KeyError or ValueError on another shape."""
    configs = tuple(tuple(BaselineConfig.from_json(c) for c in a["configs"] if "facts" in c) for a in answers)
    return dataclasses.replace(place.site, configs=configs)
