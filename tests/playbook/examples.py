"""All candidates that the tests verify: for each captured call and technique, its first and its last proposal."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.device.profile import Roofs
from kernelopt_bot.playbook.technique import Site, techniques
from tests.playbook.sites import H200, all_calls, calls, grown, site

SMALL_CACHE = Roofs("small", "", 1e12, {}, 1024, 4, "assumed")
"""A device so small that the captured sizes exceed its cache."""


ONE_PROCESSOR = Roofs("one", "", 1e12, {}, 1 << 20, 1, "assumed")
"""A device with so few multiprocessors that three long rows are many."""
SAME_CODE = ("launch_configuration", "cache_hints")
"""Techniques that leave the computation as it is: one proposal on kernels of one torch version, one draw of inputs."""
LONG = ("row_pipeline", "rows_in_flight", "kept_rows")
"""Techniques for rows that are longer than the captured ones."""
GROWN = (("softmax_3x2051", "2051", "17001"), ("layernorm_3x2050", "2050", "17002"), ("l2norm_3x2047", "2047", "24576"),
         ("softmax_half_3x1500", "1500", "17000"))


@dataclass(frozen=True)
class Example:
    call: dict[str, Any]
    site: Site
    candidate: KernelCandidate


@functools.cache
def examples() -> Mapping[str, Example]:
    """By label. Made when it is first asked for, in some 16 s: not where tests are only collected."""
    found = {}
    for torch in ("torch2.11", "torch2.13"):
        for name, call in all_calls(torch).items():
            for roofs in (H200, SMALL_CACHE):
                place = site(call, roofs=roofs)
                for technique in techniques():
                    if (technique.name == "cache_hints") != (roofs is SMALL_CACHE) or technique.applies(place) is None:
                        continue
                    if torch == "torch2.11" and technique.name in SAME_CODE:
                        continue
                    first = torch == "torch2.11" or technique.name in SAME_CODE
                    proposed = list(islice(technique.propose(place), 1 if first else None))
                    wanted = {c.id: c for c in proposed[:1] + proposed[-1:]}
                    for candidate in wanted.values():
                        label = f"{torch}-{name}-{candidate.id}"
                        found[label] = Example(call, place, candidate)
    return found | long_rows()


def long_rows() -> dict[str, Example]:
    """The captured kernels with longer rows written into them, one proposal a technique."""
    found = {}
    for torch in ("torch2.11", "torch2.13"):
        for name, old, new in GROWN if torch == "torch2.13" else GROWN[:1]:
            call = grown(calls(name, torch)[0], old, new)
            place = site(call, roofs=ONE_PROCESSOR)
            for technique in techniques():
                if technique.name in LONG and technique.applies(place) is not None:
                    candidate = next(technique.propose(place))
                    found[f"{torch}-{name}-{new}-{candidate.id}"] = Example(call, place, candidate)
    return found


def of(technique: str) -> dict[str, Example]:
    """The technique's examples, by label."""
    return {label: example for label, example in examples().items() if example.candidate.technique == technique}
