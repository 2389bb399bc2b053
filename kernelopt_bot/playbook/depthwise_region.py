"""A depthwise convolution, and the kernel after it, as one kernel: each program a stretch of one channel's image.

A depthwise convolution has no product to speak of: each output element is a sum over one small window of one channel,
so that its floor is reading the image and writing the result once. The taps are unrolled, the weights are scalars of
the program, and the kernel after it goes on with the sum in registers.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass

from kernelopt_bot.compiler.run import KernelRun
from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.playbook.emit import Function
from kernelopt_bot.playbook.epilogue import Epilogue, alone, body, epilogue_of
from kernelopt_bot.playbook.fusion import LAUNCH_US, FusedLaunch, RunSite, candidate
from kernelopt_bot.playbook.kernel_source import NotUnderstood
from kernelopt_bot.playbook.product import LARGEST_INDEX
from kernelopt_bot.playbook.rewrite import statements
from kernelopt_bot.playbook.technique import Expectation

LEAST_GAIN = 1.02
UNTIMED = 1.25
"""Assumed of a vendor's depthwise convolution whose time is not known; a known time takes its place."""
MOST_TAPS = 64
"""Window elements that are written out."""
_SIZES = ((512, 4), (1024, 4), (256, 4), (2048, 8), (128, 4))
"""(elements, warps) of a program."""


@dataclass(frozen=True)
class Depthwise:
    """One window a channel. Sizes, steps and strides by image dimension; strides in elements."""

    batch: int
    channels: int
    """Of the result; `channels // inputs` of them share a channel of the image."""
    inputs: int
    image: tuple[int, ...]
    result: tuple[int, ...]
    window: tuple[int, ...]
    steps: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    image_strides: tuple[int, ...]
    """Of batch, channel and the image's dimensions."""
    weight_strides: tuple[int, ...]
    """Of channel and the window's dimensions."""
    source: str
    weight: str
    out: str

    @property
    def places(self) -> int:
        return math.prod(self.result)


def depthwise_of(run: KernelRun) -> Depthwise:
    """Raises NotUnderstood where the vendor call is no depthwise convolution with a contiguous result."""
    vendor = run.vendor
    if vendor is None or not vendor.function.endswith(".convolution") or set(vendor.operands) != {"a0", "a1"}:
        raise NotUnderstood("no convolution without a bias")
    options = dict(vendor.options)
    (shape, stride), (weight, weight_stride), (result, places) = (vendor.layouts[n] for n in ("a0", "a1", "out"))
    if options.get("transposed") or options.get("bias") is not None or (
            options.get("groups") != shape[1] or weight[1] != 1):
        raise NotUnderstood("channels that are summed")
    if math.prod(weight[2:]) > MOST_TAPS:
        raise NotUnderstood(f"windows of {math.prod(weight[2:])} elements")
    expected = 1
    for size, step in reversed(list(zip(result, places, strict=True))):
        if size != 1 and step != expected:
            raise NotUnderstood("a result that is not contiguous")
        expected *= size
    reach = sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    if max(reach, math.prod(result)) > LARGEST_INDEX or min(result) < 1:
        raise NotUnderstood("nothing, or offsets of more than 32 bits")
    return Depthwise(shape[0], result[1], shape[1], shape[2:], result[2:], weight[2:], tuple(options["stride"]),
                     tuple(options["padding"]), tuple(options["dilation"]), tuple(stride),
                     (weight_stride[0], *weight_stride[2:]), vendor.operands["a0"], vendor.operands["a1"], vendor.out)


def sum_code(d: Depthwise) -> list[ast.stmt]:
    """Statements that bind `acc` to the float32 sums of BLOCK places of one plane (`plane`: batch and channel), `at` to
    the places and `there` to whether they exist."""
    plane_stride = f"(plane // {d.channels}) * {d.image_strides[0]}"
    plane_stride += f" + (plane % {d.channels}) // {d.channels // d.inputs} * {d.image_strides[1]}"
    chunks = f"(({d.places} + BLOCK - 1) // BLOCK)"
    lines = [f"plane = tl.program_id(0) // {chunks}", f"at = tl.program_id(0) % {chunks} * BLOCK + tl.arange(0, BLOCK)",
             f"there = at < {d.places}", f"origin = {plane_stride}",
             f"weights = (plane % {d.channels}) * {d.weight_strides[0]}"]
    rest = "at"
    for i in reversed(range(len(d.result))):
        lines.append(f"start_{i} = ({rest}) % {d.result[i]} * {d.steps[i]} - {d.padding[i]}" if i else
                     f"start_0 = ({rest}) * {d.steps[0]} - {d.padding[0]}")
        rest = f"({rest}) // {d.result[i]}"
    lines.append("acc = tl.zeros([BLOCK], tl.float32)")
    for number in range(math.prod(d.window)):
        tap: list[int] = []
        left = number
        for size in reversed(d.window):
            tap.insert(0, left % size)
            left //= size
        index, masks = ["origin"], ["there"]
        for i, t in enumerate(tap):
            place = f"(start_{i} + {t * d.dilation[i]})"
            index.append(f"{place} * {d.image_strides[2 + i]}")
            if _leaves_below(d, i, t):
                masks.append(f"({place} >= 0)")
            if _leaves_above(d, i, t):
                masks.append(f"({place} < {d.image[i]})")
        offset = sum(t * s for t, s in zip(tap, d.weight_strides[1:], strict=True))
        lines.append(f"acc += tl.load({d.source} + ({' + '.join(index)}), mask={' & '.join(masks)}, other=0.0)"
                     f".to(tl.float32) * tl.load({d.weight} + (weights + {offset})).to(tl.float32)")
    return statements("\n".join(lines))


def _leaves_below(d: Depthwise, i: int, tap: int) -> bool:
    return tap * d.dilation[i] < d.padding[i]


def _leaves_above(d: Depthwise, i: int, tap: int) -> bool:
    return (d.result[i] - 1) * d.steps[i] - d.padding[i] + tap * d.dilation[i] >= d.image[i]


class DepthwiseEpilogue:
    name = "depthwise_direct"
    citation = "Direct depthwise convolution: Zhang et al., High Performance Depthwise and Pointwise Convolutions, 2020"

    def applies(self, site: RunSite) -> Expectation | None:
        try:
            d, epilogue = _facts(site)
        except NotUnderstood:
            return None
        loads, stores = (epilogue.loads, epilogue.stores) if epilogue else (frozenset[str](), frozenset([d.out]))
        moved = [*({d.source, d.weight} | loads), *stores]
        after = LAUNCH_US + 1e6 * sum(map(site.buffer_bytes, moved)) / site.roofs.copy_bytes_per_s
        gain = site.before_us / after
        if site.profiles[0] is None:
            gain *= UNTIMED
        if gain < LEAST_GAIN:
            return None
        return Expectation(gain, "the image is read once and only the result is written")

    def propose(self, site: RunSite) -> Iterator[KernelCandidate]:
        try:
            d, epilogue = _facts(site)
        except NotUnderstood:
            return
        fitting = [s for s in _SIZES if s[0] < 2 * d.places] or [_SIZES[-1]]
        for elements, warps in fitting:
            yield _candidate(site, d, epilogue, elements, warps)


def _facts(site: RunSite) -> tuple[Depthwise, Epilogue | None]:
    """None where no kernel follows in the run."""
    if site.sources is None:
        raise NotUnderstood("the kernel is not of the known shape")
    found = depthwise_of(site.run)
    epilogue = epilogue_of(site.run, site.sources[0]) if site.sources else None
    if epilogue is not None and epilogue.row:
        raise NotUnderstood("a reduction")
    return found, epilogue


def _candidate(site: RunSite, d: Depthwise, epilogue: Epilogue | None, elements: int, warps: int) -> KernelCandidate:
    run = site.run
    head = statements(f"xindex = plane * {d.places} + at\nxmask = there")
    planes = d.batch * d.channels
    index = {f"xindex // {d.places}": "tl.broadcast_to(plane, [BLOCK])"}
    if epilogue is None:
        code, used = [*sum_code(d), *alone("acc", head, d.out)], {d.source, d.weight, d.out}
    else:
        keep = d.out in run.written and d.out not in epilogue.stores
        code = [*sum_code(d), *body(epilogue, "acc", head, "[BLOCK]", index, keep)]
        used = {d.source, d.weight} | epilogue.loads | epilogue.stores | ({d.out} if keep else set())
    pointers = tuple(b.name for b in run.buffers if b.name in used)
    launch = FusedLaunch(Function("depthwise_and_after", pointers, ("BLOCK",), code),
                         (f"cdiv({d.places}, {elements}) * {planes}",), pointers, {"BLOCK": elements}, warps)
    return candidate(site, DepthwiseEpilogue.name, [launch], (), f"{elements} places of a channel a program, windows "
                     "written out, the kernel after it in registers", lever="region")


REGION = DepthwiseEpilogue()
