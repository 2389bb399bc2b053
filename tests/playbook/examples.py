"""All candidates that the tests verify: for each captured call and technique, its first and its last proposal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.device.profile import Roofs
from kernelopt_bot.playbook.technique import Site, techniques
from tests.playbook.sites import H200, all_calls, site

SMALL_CACHE = Roofs("small", "", 1e12, {}, 1024, 4, "assumed")
"""A device so small that the captured sizes exceed its cache."""


@dataclass(frozen=True)
class Example:
    label: str
    call: dict[str, Any]
    site: Site
    candidate: KernelCandidate


def examples() -> dict[str, Example]:
    found = {}
    for torch in ("torch2.11", "torch2.13"):
        for name, call in all_calls(torch).items():
            for roofs in (H200, SMALL_CACHE):
                place = site(call, roofs=roofs)
                for technique in techniques():
                    if (technique.name == "cache_hints") != (roofs is SMALL_CACHE) or technique.applies(place) is None:
                        continue
                    proposed = list(technique.propose(place))
                    wanted = {c.id: c for c in (proposed[:1] if torch == "torch2.11" else proposed[:1] + proposed[-1:])}
                    for candidate in wanted.values():
                        label = f"{torch}-{name}-{candidate.id}"
                        found[label] = Example(label, call, place, candidate)
    return found


EXAMPLES = examples()


def of(technique: str) -> list[str]:
    """Labels of the technique's examples."""
    return [label for label, example in EXAMPLES.items() if example.candidate.technique == technique]
