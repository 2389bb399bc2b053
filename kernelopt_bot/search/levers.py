"""Candidates of the levers `dispatch` and `launch`: Inductor options that the program's facts make worth a try.

Only options of `contract/options.py` are ever proposed. Each proposal says which fact asks for it, what it may gain and
what it costs to try (a compile, or a compile with autotuning); the order is by gain for each unit of cost.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kernelopt_bot.compiler.program import Program
from kernelopt_bot.contract import options as contract
from kernelopt_bot.contract.candidate import Lever, OptionsCandidate, Scalar
from kernelopt_bot.device.profile import Profile

Device = Literal["cuda", "cpu"]

_NO_GAP = 0.01
"""Share of the call below which waiting for the host cannot repay a launch lever (smaller than min_gain 1.03)."""

LEAST_SAVED = 0.02
"""Share of a call that an option must be able to save to be worth its compilation: min_gain 1.03 asks for 0.029."""


@dataclass(frozen=True)
class Facts:
    """What decides which options are worth a try; counts over all graphs."""

    launches: int
    kernels: int
    convolutions: int
    products: int
    attentions: int
    pointwise: int
    reductions: int
    short_reductions: int
    """Reductions over at most 128 elements: pooling windows, small channels."""
    long_reductions: int
    concatenations: int
    launch_gap: float | None

    @property
    def vendor(self) -> int:
        return self.convolutions + self.products + self.attentions


def facts(program: Program, profile: Profile | None) -> Facts:
    steps = [(g, s) for g in program.graphs for s in g.steps]
    vendor = [s.name.lower() for _, s in steps if s.kind == "vendor"]
    kernels = [g.kernels[s.name] for g, s in steps if s.kind == "kernel" and s.name in g.kernels]
    rows = [k.size_hints.get("r0_", 0) for k in kernels if "reduction" in k.heuristic]

    def count(*words: str) -> int:
        return sum(any(w in name for w in words) for name in vendor)

    return Facts(
        launches=len(kernels) + len(vendor), kernels=len(kernels),
        convolutions=count("conv"), products=count("mm", "linear", "matmul"), attentions=count("attention"),
        pointwise=sum(k.heuristic == "pointwise" for k in kernels), reductions=len(rows),
        short_reductions=sum(0 < r <= 128 for r in rows), long_reductions=sum(r >= 4096 for r in rows),
        concatenations=sum("cat" in k.origin.split("_") for k in kernels),
        launch_gap=profile.launch_gap if profile is not None else None,
    )


@dataclass(frozen=True)
class _Proposal:
    options: Mapping[str, Scalar]
    wanted: Callable[[Facts], bool]
    gain: float
    """Typical speedup of the call where it helps (from measurements on one H200 where there are any)."""
    cost: float
    """Compilations of the target that a try is worth; autotuning counts several."""
    why: str
    acts: Literal["kernels", "fusion", "all"] = "kernels"
    """What it can change: how single generated kernels run, which of them there are, or vendor calls too."""


_GPU: tuple[_Proposal, ...] = (
    _Proposal({"layout_optimization": False}, lambda f: f.convolutions > 0, 1.6, 1,
              "convolutions: layout copies round a vendor call, and its choice of algorithm", acts="all"),
    _Proposal({"force_layout_optimization": True}, lambda f: f.convolutions > 1, 1.15, 1,
              "several convolutions in a row can stay channels-last", acts="all"),
    _Proposal({"conv_1x1_as_mm": True}, lambda f: f.convolutions > 0, 1.1, 1,
              "1x1 convolutions as products", acts="all"),
    _Proposal({"unroll_reductions_threshold": 32}, lambda f: f.short_reductions > 0, 1.5, 1,
              "reductions over a short window: written out, neighbours share what they read"),
    _Proposal({"unroll_reductions_threshold": 1}, lambda f: f.reductions > 0, 1.02, 1,
              "short sums kept as reductions", acts="fusion"),
    _Proposal({"triton.cooperative_reductions": True}, lambda f: f.long_reductions > 0, 1.15, 1,
              "few long rows: several programs share one", acts="fusion"),
    _Proposal({"split_reductions": False}, lambda f: f.long_reductions > 0, 1.1, 1,
              "long rows reduced in one kernel", acts="fusion"),
    _Proposal({"triton.persistent_reductions": False}, lambda f: f.reductions > 0, 1.03, 1,
              "rows looped over instead of kept"),
    _Proposal({"triton.multi_kernel": 1}, lambda f: f.reductions > 0, 1.05, 2, "looped or persistent, by time"),
    _Proposal({"online_softmax": False}, lambda f: f.reductions > 0, 1.05, 1,
              "two plain passes instead of one online", acts="fusion"),
    _Proposal({"triton.mix_order_reduction": False}, lambda f: f.reductions > 1, 1.03, 1,
              "reductions of different order apart", acts="fusion"),
    _Proposal({"triton.tile_reductions": True}, lambda f: f.reductions > 0, 1.03, 1, "tiled reductions"),
    _Proposal({"triton.prefer_nd_tiling": True}, lambda f: f.pointwise > 0, 1.05, 1,
              "index division turned into grid axes"),
    _Proposal({"triton.prefer_nd_tiling": True, "triton.max_tiles": 3}, lambda f: f.pointwise > 0, 1.05, 1,
              "index division turned into three grid axes"),
    _Proposal({"coordinate_descent_tuning": True}, lambda f: f.kernels > 0, 1.05, 4, "block sizes by measurement"),
    _Proposal({"max_autotune_pointwise": True}, lambda f: f.kernels > 0, 1.04, 3, "block sizes from a longer list"),
    _Proposal({"aggressive_fusion": True}, lambda f: f.kernels > 2, 1.05, 1, "several kernels to merge", acts="fusion"),
    _Proposal({"combo_kernels": True}, lambda f: f.kernels > 3, 1.04, 1,
              "independent kernels in one launch", acts="fusion"),
    _Proposal({"benchmark_fusion": True}, lambda f: f.kernels > 1, 1.03, 4,
              "merges decided by measurement", acts="fusion"),
    _Proposal({"force_pointwise_cat": True}, lambda f: f.concatenations > 0, 1.05, 1,
              "concatenations written once", acts="fusion"),
    _Proposal({"epilogue_fusion": False}, lambda f: f.vendor > 0 and f.kernels > 0, 1.01, 1, "tails apart", acts="all"),
    _Proposal({"shape_padding": False}, lambda f: f.products > 0, 1.02, 1,
              "products without padding copies", acts="all"),
    _Proposal({"decompose_mem_bound_mm": True}, lambda f: f.products > 0, 1.03, 1,
              "thin products as one kernel", acts="all"),
    _Proposal({"max_autotune_gemm": True}, lambda f: f.products > 0, 1.05, 10,
              "products picked by measurement", acts="all"),
    _Proposal({"comprehensive_padding": False}, lambda f: f.kernels > 1, 1.01, 1,
              "unpadded intermediates", acts="fusion"),
)

_CPU: tuple[_Proposal, ...] = (
    _Proposal({"layout_optimization": False}, lambda f: f.convolutions > 0, 1.05, 1, "layout copies"),
    _Proposal({"conv_1x1_as_mm": True}, lambda f: f.convolutions > 0, 1.05, 1, "1x1 convolutions as products"),
    _Proposal({"cpp.simdlen": 256}, lambda f: f.kernels > 0, 1.03, 1, "narrower vectors clock higher"),
    _Proposal({"cpp.min_chunk_size": 64}, lambda f: f.kernels > 0, 1.02, 1, "more threads for small loops"),
    _Proposal({"cpp.min_chunk_size": 65536}, lambda f: f.kernels > 0, 1.05, 1, "no thread start for small loops"),
    _Proposal({"cpp.enable_loop_tail_vec": False}, lambda f: f.kernels > 0, 1.01, 1, "scalar tails"),
    _Proposal({"cpp.max_horizontal_fusion_size": 64}, lambda f: f.kernels > 2, 1.02, 1, "kernels to merge"),
    _Proposal({"aggressive_fusion": True}, lambda f: f.kernels > 2, 1.03, 1, "several kernels to merge"),
    _Proposal({"cpp.threads": 1}, lambda f: f.vendor + f.kernels > 4, 1.02, 1, "many small loops: no hand-over"),
    _Proposal({"memory_planning": True}, lambda f: f.launches > 4, 1.01, 1, "one pool for intermediates"),
    _Proposal({"epilogue_fusion": False}, lambda f: f.vendor > 0 and f.kernels > 0, 1.01, 1, "tails apart"),
)


def dispatch(program: Program, profile: Profile | None, device: Device) -> tuple[OptionsCandidate, ...]:
    """Single changes of options, best expected gain for each unit of cost first; only what the contract allows."""
    known = facts(program, profile)
    wanted = [p for p in (_CPU if device == "cpu" else _GPU) if p.wanted(known) and _can_pay(p, profile, device)]
    ordered = sorted(wanted, key=lambda p: (-(p.gain - 1.0) / p.cost, json.dumps(dict(p.options), sort_keys=True)))
    return _candidates("dispatch", [(p.options, p.why) for p in ordered], device)


def _can_pay(proposal: _Proposal, profile: Profile | None, device: Device) -> bool:
    """Whether the steps that an option can change have enough to save of the call. Amdahl's law with a generous hand:
    single kernels can reach their floor and save half as much again for what a time alone does not show, other
    kernels can halve the time of all of them, and what vendor calls can save nobody knows."""
    if device == "cpu" or proposal.acts == "all" or profile is None or not profile.call_us:
        return True
    generated = [s for s in profile.steps if s.kind == "kernel"]
    if any(s.time_us is None for s in generated):
        return True
    saved = 1.5 * sum(s.savings_us for s in generated)
    if proposal.acts == "fusion" and len(generated) > 1:
        saved = max(saved, 0.5 * sum(s.time_us or 0.0 for s in generated))
    return saved >= LEAST_SAVED * profile.call_us


def launch(program: Program, profile: Profile | None, device: Device) -> tuple[OptionsCandidate, ...]:
    """Less host time for the same kernels: none where the profile says that the GPU hardly waits for the host.

    On a CPU host and device are one, and steps timed alone say nothing of a gap: the wrapper is always worth a try.
    """
    known = facts(program, profile)
    if not known.launches:
        return ()
    if device == "cpu":
        why = f"{known.launches} calls from Python become C++"
        return _candidates("launch", [({"cpp_wrapper": True}, why)], device)
    gap = known.launch_gap
    if gap is not None and gap < _NO_GAP:
        return ()
    seen = "not measured" if gap is None else f"{gap:.0%}"
    why = f"{known.launches} launches a call, the device waits for the host: {seen}"
    graphs: dict[str, Scalar] = {"triton.cudagraphs": True}
    return _candidates("launch", [
        (graphs, why), ({**graphs, "graph_partition": False}, why + "; one recording instead of several"),
    ], device)


def combine(lever: Lever, passed: Sequence[OptionsCandidate], device: Device) -> OptionsCandidate | None:
    """The union of the options of candidates that each passed, the earlier one (larger gain) deciding a conflict; None
    if that is no more than the first."""
    merged: dict[str, Scalar] = {}
    for candidate in passed:
        if not any(merged.get(name, value) != value for name, value in candidate.options.items()):
            merged |= candidate.options
    if not passed or merged == dict(passed[0].options):
        return None
    found = _candidates(lever, [(merged, "together: " + ", ".join(c.id for c in passed))], device)
    return found[0] if found else None


def _candidates(
    lever: Lever, proposals: Iterable[tuple[Mapping[str, Scalar], str]], device: Device,
) -> tuple[OptionsCandidate, ...]:
    found = []
    for options, why in proposals:
        if contract.check(lever, options, device):
            continue
        digest = hashlib.sha256(json.dumps([lever, dict(options)], sort_keys=True).encode()).hexdigest()[:10]
        technique = "+".join(f"{name}={value}" for name, value in sorted(options.items()))
        found.append(OptionsCandidate(f"{lever}-{digest}", lever, dict(options), technique, rationale=why))
    return tuple(found)
