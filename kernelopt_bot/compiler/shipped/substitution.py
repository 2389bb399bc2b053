"""Known runs of a wrapper replaced by their candidates; every other line stays as it is."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernelopt_bot.compiler.shipped.errors import PlanError
from kernelopt_bot.compiler.shipped.kernels import KernelSource
from kernelopt_bot.compiler.shipped.rendering import POINTER_TYPES, UNFIT, render, render_scratch
from kernelopt_bot.compiler.shipped.runs import Slot, consecutive, run_hash, run_slots
from kernelopt_bot.compiler.shipped.vendor import VendorCall, alignable, bare_kernel, call_sequence, device_index
from kernelopt_bot.compiler.shipped.wrapper import Call, Wrapper, read_wrapper


@dataclass(frozen=True)
class Run:
    """One entry of a manifest: `plan` is `Plan.to_json()`; `counts` the calls replaced in each graph, in order."""

    hash: str
    steps: int
    source: str
    plan: Mapping[str, Any]
    counts: tuple[int, ...] = ()
    name: str = ""


@dataclass(frozen=True)
class Substitution:
    text: str
    replaced: Mapping[str, int]
    """Run hash -> number of runs replaced."""
    skipped: tuple[str, ...]
    """Why a run with a known hash was not replaced."""


def substitute(wrapper: str, runs: Mapping[str, Run], num_sms: int | None = None,
               capability: int | None = None, device: Callable[[int], str] | None = None) -> Substitution:
    """The wrapper's text with every run whose hash is in `runs` replaced, longest first.

    `num_sms` defaults to the multiprocessors that the wrapper was made for; with `capability` (`90`), kernels made for
    another one stay. `device`: index -> `DeviceProperties(...)` as text, for wrappers without a kernel that would say
    it (an H200's by default). A text that is not Python, or a plan that does not fit, leaves the compiler's code in
    place."""
    if not runs:
        return Substitution(wrapper, {}, ())
    try:
        parsed = read_wrapper(wrapper)
        sequence, kernels = call_sequence(parsed)
        parsed = replace(parsed, kernels=kernels)
    except UNFIT:
        return Substitution(wrapper, {}, ())
    # Definitions of kernels go before this line.
    wait = next((n.lineno for n in parsed.tree.body if ast.unparse(n).startswith("async_compile.wait(")), 0)
    if not wait:
        return Substitution(wrapper, {}, ())
    replaced: dict[str, int] = {}
    skipped: list[str] = []
    edits: list[tuple[int, int, str]] = []
    definitions: dict[str, str] = {}
    taken: set[str] = set()
    lengths = sorted({r.steps for r in runs.values()}, reverse=True)
    position = 0
    while position < len(sequence):
        for length in lengths:
            calls = sequence[position:position + length]
            run = runs.get(run_hash(calls, kernels)) if len(calls) == length else None
            if run is None or run.steps != length or not consecutive(calls, parsed.statements):
                continue
            try:
                made, edit = _replace(run, calls, parsed, num_sms, capability, device, f"kernelopt_{len(edits)}")
            except UNFIT as e:
                skipped.append(f"{run.name or run.hash}: {e}")
                continue
            definitions.update(made)
            edits.append(edit)
            taken |= {c.kernel for c in calls if not isinstance(c, VendorCall)}
            replaced[run.hash] = replaced.get(run.hash, 0) + 1
            position += length - 1
            break
        position += 1
    if edits:
        edits += _dead_definitions(parsed, taken, edits)
        edits.append((wait, wait - 1, "".join(f"{n} = {t}\n\n\n" for n, t in definitions.items())))
    return Substitution(_splice(wrapper, edits), replaced, tuple(skipped))


def _replace(run: Run, calls: Sequence[Call], parsed: Wrapper, num_sms: int | None, capability: int | None,
             device: Callable[[int], str] | None, prefix: str) -> tuple[dict[str, str], tuple[int, int, str]]:
    kernel = _carrier(calls, parsed, device)
    if capability and kernel.capability and kernel.capability != capability:
        raise PlanError(f"verified for compute capability {capability}, this device has {kernel.capability}")
    slots = {s.name: s for s in run_slots(calls, parsed.kernels)}
    plan = {**run.plan, "parameters": [_checked(p, slots) for p in run.plan["parameters"]]}
    copies, lines, plan["parameters"] = _aligned_copies(calls, parsed, plan, slots, prefix)
    integers = {n: s.binding.value for n, s in slots.items()
                if isinstance(s.binding.value, int) and not isinstance(s.binding.value, bool)}
    launches = render(run.source, plan, kernel, integers, num_sms)
    buffers = render_scratch(plan, {**integers, "num_sms": num_sms or kernel.multiprocessors})
    variables = {n: s.binding.expression for n, s in slots.items()} | copies
    definitions = {}
    keywords, last = calls[-1].keywords, calls[-1]
    if isinstance(last, VendorCall):
        lines.append(f"{prefix}_stream = torch._C._cuda_getCurrentRawStream({device_index(last, parsed)})")
        keywords = f", stream={prefix}_stream"
    for buffer in buffers:
        variables[buffer.name] = f"{prefix}_{buffer.name}"
        lines.append(f"{prefix}_{buffer.name} = empty_strided_{kernel.device}(({buffer.elements}, ), (1, ), "
                     f"torch.{buffer.dtype})")
        if buffer.zeroed:
            lines.append(f"{prefix}_{buffer.name}.zero_()")
    for index, launch in enumerate(launches):
        name = f"kernelopt_{run.hash[:12]}_{index}"
        definitions[name] = (f"async_compile.triton({launch.function!r}, {_quoted(launch.source)}, "
                             f"device_str={kernel.device!r})")
        passed = ", ".join(variables[a] if isinstance(a, str) else str(a) for a in launch.arguments)
        lines.append(f"{name}.run({passed}{keywords})")
    lines += [f"del {name}" for name in (*(f"{prefix}_{b.name}" for b in buffers), *copies.values())]
    return definitions, _edit(calls, parsed, lines)


def _carrier(calls: Sequence[Call], parsed: Wrapper, device: Callable[[int], str] | None) -> KernelSource:
    """The kernel whose device and floating-point options the candidate gets: the run's first, or another of the
    wrapper."""
    for call in (*calls, *parsed.calls):
        if not isinstance(call, VendorCall) and parsed.kernels[call.kernel].language == "triton":
            return parsed.kernels[call.kernel]
    (call,) = calls
    assert isinstance(call, VendorCall)
    index = device_index(call, parsed)
    return bare_kernel((device or standard_device)(index))


def standard_device(index: int) -> str:
    return f"DeviceProperties(type='cuda', index={index}, multi_processor_count=132, cc=90, major=9, warp_size=32)"


def _results(calls: Sequence[Call]) -> list[str]:
    """Memory for what vendor calls of the run return: views, checks and frees of it then stay as they are."""
    lines = []
    for call in calls:
        if isinstance(call, VendorCall) and call.variable:
            shape, stride = call.layouts["out"]
            dtype = next(n for n, t in POINTER_TYPES.items() if t == call.bindings[-1].type)
            lines.append(f"{call.variable} = empty_strided_cuda({shape!r}, {stride!r}, torch.{dtype})")
    return lines


def _aligned_copies(calls: Sequence[Call], parsed: Wrapper, plan: Mapping[str, Any], slots: Mapping[str, Slot],
                    prefix: str) -> tuple[dict[str, str], list[str], list[Mapping[str, Any]]]:
    """Inputs that only a vendor took may start anywhere. For those that the plan takes as aligned: slot -> variable of
    the same values at an aligned address, the lines that bind these, and the plan's parameters, where what is written
    (and so cannot be a copy) counts as not aligned."""
    loose = alignable(calls[0], parsed) if isinstance(calls[0], VendorCall) else frozenset()
    variables, lines, parameters = {}, [], []
    for parameter in plan["parameters"]:
        name = parameter["name"]
        root = slots[name].binding.root
        if parameter.get("divisible") and root in loose:
            if parameter.get("written"):
                parameter = {**parameter, "divisible": False}
            else:
                variables[name] = f"{prefix}_{name}"
                lines.append(f"{prefix}_{name} = {root} if {root}.data_ptr() % 16 == 0 else "
                             f"torch._inductor.utils.clone_preserve_strides({root})")
        parameters.append(parameter)
    return variables, lines, parameters


def _checked(parameter: Mapping[str, Any], slots: Mapping[str, Slot]) -> Mapping[str, Any]:
    slot = slots.get(parameter["name"])
    if slot is None:
        raise PlanError(f"the run has no {parameter['name']!r}")
    declared, real = parameter["type"], slot.binding.type
    # A numel of 1 is `constexpr` in Inductor's signature and still passed.
    if declared != real and not (real == "constexpr" and declared in ("i32", "i64")):
        raise PlanError(f"{parameter['name']!r} is {real}, the plan says {declared}")
    return {**parameter, "divisible": bool(parameter.get("divisible")) and slot.divisible}


def _quoted(source: str) -> str:
    plain = "'''" not in source and "\\" not in source and not source.endswith("'")
    return f"'''\n{source}'''" if plain else repr(source)


def _edit(calls: Sequence[Call], parsed: Wrapper, launches: Sequence[str]) -> tuple[int, int, str]:
    """Replace the lines from the first to the last call. What stands between stays, frees move behind the launches."""
    first, last = calls[0].statement, calls[-1].statement
    inside = parsed.statements[first.index:last.index + 1]
    before = [*_results(calls), *(ast.unparse(s.node) for s in inside if s.kind not in ("kernel", "vendor", "free"))]
    frees = [ast.unparse(s.node) for s in inside if s.kind == "free"]
    for s in (parsed.statements[first.index - 1:first.index] + parsed.statements[last.index + 1:last.index + 2]):
        if s.scope is first.scope and (s.lines[1] == first.lines[0] or s.lines[0] == last.lines[1]):
            raise PlanError("the calls share a line with another statement")
    indent = " " * first.node.col_offset
    return first.lines[0], last.lines[1], "".join(f"{indent}{line}\n" for line in [*before, *launches, *frees])


def _dead_definitions(parsed: Wrapper, taken: set[str], edits: Sequence[tuple[int, int, str]]) -> list[
        tuple[int, int, str]]:
    """Definitions of kernels that nothing calls any more: they would only cost compile time."""
    def edited(line: int) -> bool:
        return any(a <= line <= b for a, b, _ in edits)

    used = {n.id for n in ast.walk(parsed.tree)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and not edited(n.lineno)}
    return [(*parsed.kernels[k].lines, "") for k in sorted(taken - used)]


def _splice(text: str, edits: Sequence[tuple[int, int, str]]) -> str:
    """Each edit is (first line, last line, new text); a last line before the first inserts."""
    lines = text.split("\n")
    for first, last, new in sorted(edits, reverse=True):
        lines[first - 1:last] = new.removesuffix("\n").split("\n") if new else []
    return "\n".join(lines)
