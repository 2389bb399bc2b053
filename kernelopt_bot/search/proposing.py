"""What techniques propose, through gate 1: some spots at a time, compiled side by side."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.errors import KerneloptError
from kernelopt_bot.gates import static
from kernelopt_bot.gates.static import Compiled, Group
from kernelopt_bot.gates.verdict import Verdict
from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.search.session import FEW_CORES
from kernelopt_bot.search.spots import Spot

TOGETHER = 4
"""Spots that are compiled together where there are cores for it: ten candidates each."""


@dataclass(frozen=True)
class Proposals:
    """Gate 1's verdict of each candidate for one spot."""

    spot: Spot
    judged: tuple[tuple[KernelCandidate, Verdict], ...]
    failure: str = ""
    """Why the spot's kernels were not understood."""


@dataclass(frozen=True)
class Compiler:
    """Gate 1 in a kernel worker."""

    worker: Worker
    arch: int
    """Compute capability as 90."""

    def baselines(self, sources: Iterable[str]) -> dict[str, Compiled]:
        """Kernel source -> what `compile_baseline` says of it, side by side."""
        return static.baselines(list(dict.fromkeys(sources)), self._ready(), arch=self.arch)

    def judge(self, groups: Sequence[Group], known: dict[str, Compiled]) -> list[list[Verdict]]:
        """Gate 1 of all candidates of all groups, side by side."""
        return static.check_groups(groups, self._ready(), arch=self.arch, known=known)

    def _ready(self) -> Worker:
        if not self.worker.alive:
            self.worker.restart()
        return self.worker


def proposals(compiler: Compiler, spots: Sequence[Spot]) -> list[Proposals]:
    """All ideas for some spots through gate 1."""
    known = compiler.baselines(k.source for s in spots for k in s.kernels)
    found = [ideas(spot, known) for spot in spots]
    groups = [Group([] if isinstance(c, str) else c, s.kernel_or_run, s.integers)
              for s, c in zip(spots, found, strict=True)]
    verdicts = compiler.judge(groups, known)
    return [Proposals(s, (), c) if isinstance(c, str) else Proposals(s, tuple(zip(c, v, strict=True)))
            for s, c, v in zip(spots, found, verdicts, strict=True)]


def ideas(spot: Spot, known: Mapping[str, Compiled]) -> list[KernelCandidate] | str:
    """Candidates, or why the spot's kernels were not understood. `known`: what `Compiler.baselines` gave for them."""
    answers = [known[k.source] for k in spot.kernels]
    wrong = next((a for a in answers if isinstance(a, KerneloptError)), None)
    if wrong is not None:
        return str(wrong)
    try:
        return spot.ideas([a for a in answers if not isinstance(a, KerneloptError)])
    except (KeyError, ValueError, TypeError) as e:
        return f"{type(e).__name__}: {e}"


def in_batches(compiler: Compiler, spots: Iterable[Spot]) -> Iterator[Proposals]:
    """`proposals` of each spot in order."""
    rest = iter(spots)
    together = 1 if (os.cpu_count() or 1) < FEW_CORES else TOGETHER
    while batch := list(islice(rest, together)):
        yield from proposals(compiler, batch)
