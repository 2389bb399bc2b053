"""What agents are told of a spot: its kernels, its buffers, what was measured, what runs beside it. Facts only.

With `send_source` false everything goes through `agents/scrub.py`; a spot whose kernel is the user's own text is then
left out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from kernelopt_bot.agents import scrub
from kernelopt_bot.agents.analyst import bound
from kernelopt_bot.agents.brain import DeviceFacts, NeighbourFacts, PlaybookEntry, SlotFacts, SpotFacts, StepFacts
from kernelopt_bot.compiler._runtime import read_kernel
from kernelopt_bot.compiler.program import Graph, Kernel, Step
from kernelopt_bot.device.profile import Roofs, StepProfile
from kernelopt_bot.playbook.technique import Site, ranked
from kernelopt_bot.search import sites
from kernelopt_bot.search.runs import RunPlace
from kernelopt_bot.search.sites import Place


def device(roofs: Roofs, arch: int, measured: bool) -> DeviceFacts:
    """`arch`: compute capability as 90."""
    return DeviceFacts(roofs.device, arch, roofs.multiprocessors, roofs.l2_bytes, roofs.copy_bytes_per_s,
                       dict(roofs.matrix_flops_per_s), roofs.source, measured)


def spot(place: Place | RunPlace, answers: Sequence[Mapping[str, Any]], where: DeviceFacts, *, send_source: bool,
         near_optimal: float) -> SpotFacts:
    """`answers`: of `compile_baseline`, one a kernel. Raises scrub.Private where it may not be told."""
    if isinstance(place, Place):
        site = place.site
        names = [a.name for a in site.step.arguments]
        steps = [_step(0, site.kernel, site.profile, site.total_bytes, names, answers[0], send_source)]
        slots, graph, last = _slots(site), site.graph, site.step
        key, first, atomics = site.step.hash, site.step, _atomics(site.kernel)
        entries = tuple(PlaybookEntry(t.name, e.gain, e.reason, t.citation)
                        for e, t in ranked(sites.configured(place, answers[0])))
    else:
        run = place.site.run
        sizes = [sum(place.site.buffer_bytes(a) for a in c.arguments if isinstance(a, str)) for c in run.calls]
        steps = [_step(n, c.kernel, p, size, [str(a) for a in c.arguments], a, send_source) for n, (c, p, size, a) in (
            enumerate(zip(run.calls, place.site.profiles, sizes, answers, strict=True)))]
        slots = tuple(
            SlotFacts(b.name, b.type, b.tensor.shape, b.tensor.stride, b.name in run.written, True, b.divisible)
            for b in run.slots) + tuple(SlotFacts(n, "i32", value=v) for n, v in run.integers.items())
        graph, key, first, last = run.graph, run.hash, run.calls[0].step, run.calls[-1].step
        atomics = any(map(_atomics, run.kernels))
        entries = (PlaybookEntry(place.fusion.name, place.expected.gain, place.expected.reason,
                                 place.fusion.citation),)
    made = tuple(steps)
    return SpotFacts(
        key, _signature(slots), made, slots, place.calls, place.savings_us, bound(made, where, near_optimal),
        _neighbours(graph, first, last, send_source), entries, atomics)


def _step(number: int, kernel: Kernel, profile: StepProfile | None, size: int, arguments: Sequence[str],
          answer: Mapping[str, Any], send_source: bool) -> StepFacts:
    text = kernel.source if send_source else scrub.kernel(kernel.source, f"k{number}")
    return StepFacts(
        kernel.name if send_source else f"k{number}", kernel.heuristic, text, tuple(arguments),
        profile.time_us if profile else None, profile.floor_us if profile else None, profile.bytes if profile else size,
        tuple(c for c in answer["configs"] if "facts" in c), flops=profile.flops if profile else None)


def _atomics(kernel: Kernel) -> bool:
    """Whether it may update floats atomically. A hint for whoever writes a candidate; gate 1 looks at the buffers."""
    return "tl.atomic_" in kernel.source


def _slots(site: Site) -> tuple[SlotFacts, ...]:
    """Buffers and numbers of a single kernel, by its own parameters' names."""
    divisible = read_kernel(site.kernel.source).divisible
    loads = {a.pointer for a in site.source.loads} if site.source is not None else None
    found = []
    for a in site.step.arguments:
        kind = site.kernel.signature.get(a.name, "i32")
        if a.tensor is not None:
            written = a.name in site.kernel.written
            # Of a kernel that is not understood nobody knows what it loads.
            read = not written or loads is None or a.name in loads
            found.append(SlotFacts(a.name, kind, a.tensor.shape, a.tensor.stride, written, read, a.name in divisible))
        elif isinstance(a.value, int | float) and not isinstance(a.value, bool):
            found.append(SlotFacts(a.name, "i32" if kind == "constexpr" else kind, value=a.value,
                                   divisible=a.name in divisible))
    return tuple(found)


def _signature(slots: Sequence[SlotFacts]) -> str:
    known = [[s.type, list(s.shape), list(s.stride), s.written, s.value] for s in slots]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]


def _neighbours(graph: Graph, first: Step, last: Step, send_source: bool) -> tuple[NeighbourFacts, ...]:
    work = [s for s in graph.steps if s.kind in ("kernel", "vendor") and s.function == first.function]

    def fact(step: Step, place: Literal["before", "after"]) -> NeighbourFacts:
        name = step.name if send_source else "a generated kernel" if step.kind == "kernel" else scrub.vendor(step.name)
        shapes = tuple(a.tensor.shape for a in step.arguments if a.tensor is not None)
        return NeighbourFacts(place, name if len(name) <= 120 else name[:120], step.kind, shapes)

    before = [s for s in work if s.index < first.index][-1:]
    after = [s for s in work if s.index > last.index][:1]
    return tuple(fact(s, "before") for s in before) + tuple(fact(s, "after") for s in after)
