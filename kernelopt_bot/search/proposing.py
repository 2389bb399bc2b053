"""What techniques propose for one place, through gate 1: for the kernel lever's two lanes, ahead of the GPU's work."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.errors import KerneloptError
from kernelopt_bot.gates import correctness, static
from kernelopt_bot.gates.verdict import Verdict
from kernelopt_bot.playbook.technique import Site, ranked
from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.search.session import FEW_CORES
from kernelopt_bot.search.sites import Place, configured

AHEAD = 2
"""Places whose candidates are compiled while the GPU is at work on another."""


@dataclass(frozen=True)
class Proposals:
    """A place with the configurations of its baseline known, and gate 1's verdict of each candidate for it."""

    place: Place
    judged: tuple[tuple[KernelCandidate, Verdict], ...]
    failure: str = ""
    """Why the baseline's kernel was not understood."""


@dataclass
class Compiler:
    """A kernel worker without a GPU. May be used from one thread at a time."""

    worker: Worker
    arch: int
    """Compute capability as 90."""

    def baselines(self, places: Sequence[Place]) -> dict[str, Mapping[str, Any] | KerneloptError]:
        """Kernel source -> what `compile_baseline` answers or raises, side by side."""
        sources = list(dict.fromkeys(p.site.kernel.source for p in places))
        jobs = [{"source": source, "target": {"arch": self.arch}} for source in sources]
        answers = static.compile_each("compile_baseline", jobs, self._ready())
        return dict(zip(sources, answers, strict=True))

    def judge(self, site: Site, candidates: Sequence[KernelCandidate],
              known: Mapping[str, Mapping[str, Any]]) -> list[Verdict]:
        """Gate 1 of candidates of one site. `known` as `static.check_kernels` takes it."""
        integers = {**correctness.integers(site.step), "num_sms": site.roofs.multiprocessors}
        return static.check_kernels(candidates, site.kernel, self._ready(), integers=integers, arch=self.arch,
                                    known=known)

    def _ready(self) -> Worker:
        if not self.worker.alive:
            self.worker.restart()
        return self.worker


def ideas(site: Site, *, each: int, most: int) -> list[KernelCandidate]:
    """Techniques in turn, most promising first, so that one with many ideas does not crowd out the others."""
    found: list[KernelCandidate] = []
    for _, technique in ranked(site):
        for n, candidate in enumerate(technique.propose(site)):
            if n >= each:
                break
            found.append(candidate)
    return found[:most]


def proposals(compiler: Compiler, place: Place, baseline: Mapping[str, Any] | KerneloptError, *, each: int,
              most: int) -> Proposals:
    """All ideas for one place through gate 1, compiled side by side."""
    site, failure = understood(place, baseline)
    if site is None:
        return Proposals(place, (), failure)
    candidates = ideas(site, each=each, most=most)
    assert not isinstance(baseline, KerneloptError)
    verdicts = compiler.judge(site, candidates, {site.kernel.source: baseline}) if candidates else []
    return Proposals(replace(place, site=site), tuple(zip(candidates, verdicts, strict=True)))


def understood(place: Place, baseline: Mapping[str, Any] | KerneloptError) -> tuple[Site | None, str]:
    """The site with its baseline's configurations, or why there is none."""
    if isinstance(baseline, KerneloptError):
        return None, str(baseline)
    try:
        return configured(place, baseline), ""
    except (KeyError, ValueError, TypeError) as e:
        return None, f"{type(e).__name__}: {e}"


def ahead(compiler: Compiler, places: Iterable[Place], *, each: int, most: int) -> Generator[Proposals, None, None]:
    """`proposals` of each place in order, on a machine with cores to spare some places ahead of the consumer."""
    found = list(places)
    if not found:
        return
    baselines = compiler.baselines(found)

    def prepare(place: Place) -> Proposals:
        return proposals(compiler, place, baselines[place.site.kernel.source], each=each, most=most)

    if (os.cpu_count() or 1) < FEW_CORES:
        yield from map(prepare, found)
        return
    with ThreadPoolExecutor(1) as pool:
        waiting: deque[Future[Proposals]] = deque()
        try:
            for place in found:
                waiting.append(pool.submit(prepare, place))
                if len(waiting) > AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
