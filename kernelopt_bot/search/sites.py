"""Where kernels can be replaced: one site for each distinct run, ranked by what all its calls can still save."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernelopt_bot.device.profile import Profile, Roofs, StepProfile
from kernelopt_bot.playbook.technique import BaselineConfig, Site
from kernelopt_bot.search.capturing import Captured

AT_FLOOR = 0.95
"""A step that reaches this share of its floor is left alone."""


@dataclass(frozen=True)
class Place:
    """A kernel step, its recorded call, and how often the program has the same run."""

    site: Site
    call: Mapping[str, Any]
    calls: int

    @property
    def savings_us(self) -> float:
        profile = self.site.profile
        return profile.savings_us * self.calls if profile else 0.0


def places(captured: Captured, profile: Profile | None, roofs: Roofs) -> tuple[Place, ...]:
    """Kernel steps that were recorded, one for each run hash, largest savings first; those at their floor left out.

    Without times (no GPU) they are ranked by the bytes that they move.
    """
    known: dict[tuple[int, int], StepProfile] = {(s.graph, s.step): s for s in profile.steps} if profile else {}
    counts: dict[str, int] = {}
    first: dict[str, Place] = {}
    for graph in captured.program.graphs:
        for step in graph.steps:
            if step.kind != "kernel" or not step.hash or graph.kernels[step.name].heuristic == "cpp":
                continue
            counts[step.hash] = counts.get(step.hash, 0) + 1
            call = captured.call_of(step)
            if step.hash in first or call is None:
                continue
            site = Site(graph, step, graph.kernels[step.name], known.get((graph.index, step.index)), roofs, ())
            first[step.hash] = Place(site, call, 1)
    found = [Place(p.site, p.call, counts[h]) for h, p in first.items() if not _at_floor(p.site.profile)]
    return tuple(sorted(found, key=lambda p: (-p.savings_us, -p.site.total_bytes * p.calls)))


def _at_floor(profile: StepProfile | None) -> bool:
    return profile is not None and bool(profile.time_us) and profile.headroom * AT_FLOOR <= 1.0


def configured(place: Place, answer: Mapping[str, Any]) -> Site:
    """The site with the baseline's configurations from the worker's `compile_baseline`."""
    old = place.site
    configs = tuple(BaselineConfig.from_json(c) for c in answer["configs"])
    return Site(old.graph, old.step, old.kernel, old.profile, old.roofs, configs)
