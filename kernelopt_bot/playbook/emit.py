"""From a (rewritten) kernel body to a candidate: contract-conforming source text and the launch plan."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kernelopt_bot.contract.candidate import KernelCandidate, Launch, Parameter, Plan, Scratch
from kernelopt_bot.playbook.kernel_source import KernelSource, NotUnderstood
from kernelopt_bot.playbook.rewrite import drop_dead
from kernelopt_bot.playbook.syntax import copied, nodes
from kernelopt_bot.playbook.technique import Site

_IMPORTS = (
    ("tl.", "import triton.language as tl"),
    ("triton_helpers.", "from torch._inductor.runtime import triton_helpers"),
    ("libdevice.", "from torch._inductor.runtime.triton_helpers import libdevice"),
    ("tl_math.", "from torch._inductor.runtime.triton_helpers import math as tl_math"),
)
_MAX_Y_GRID = 65535
"""Largest extent of the grid's second and third axis (CUDA C++ Programming Guide, compute capabilities)."""


@dataclass(frozen=True)
class Function:
    """A device function to emit: parameters that are run-time values, then `tl.constexpr` ones."""

    name: str
    parameters: tuple[str, ...]
    constexprs: tuple[str, ...]
    body: Sequence[ast.stmt]


def runtime_parameters(source: KernelSource) -> tuple[str, ...]:
    """Parameters that must still be passed: sizes written as literals into the body need not be."""
    return tuple(p for p in source.parameters if p not in source.constants)


def to_candidate_source(functions: Iterable[Function], helpers: Iterable[ast.FunctionDef] = ()) -> str:
    """Source text of a candidate: imports from the allow-list, then `@triton.jit` functions and nothing else.

    Function names are taken through `plain`; so are the names inside.
    """
    texts = []
    for helper in helpers:
        texts.append(_text(helper.name, [ast.unparse(a) for a in helper.args.args], helper.body))
    for function in functions:
        parameters = [*function.parameters, *(f"{c}: tl.constexpr" for c in function.constexprs)]
        texts.append(_text(function.name, parameters, drop_dead(function.body)))
    code = "\n\n\n".join(texts)
    imports = "\n".join(["import triton", *(line for use, line in _IMPORTS if use in code)])
    return f"{imports}\n\n\n{code}\n"


def plain(name: str) -> str:
    """A name that the contract takes: no leading underscore and no two in a row (`_tmp3` -> `acc_tmp3`)."""
    parts = [p for p in name.split("_") if p]
    return "_".join(["acc", *parts] if name.startswith("_") else parts)


def _text(name: str, parameters: Iterable[str], body: Iterable[ast.stmt]) -> str:
    tree = copied(list(body))
    names = [n for s in tree for n in nodes(s) if isinstance(n, ast.Name)]
    used = {n.id for n in names}
    for node in names:
        better = plain(node.id)
        if better != node.id:
            node.id = better if better not in used else f"{better}_kept"
    return f"@triton.jit\ndef {plain(name)}({', '.join(parameters)}):\n{_body(tree)}"


def _body(body: Iterable[ast.stmt]) -> str:
    text = "\n".join(ast.unparse(ast.fix_missing_locations(s)) for s in body)
    return "\n".join(f"    {line}" for line in text.splitlines()) or "    pass"


def plan_parameters(site: Site) -> tuple[Parameter, ...]:
    """The run's slots: the baseline kernel's own run-time parameters in order. Raises NotUnderstood."""
    source = understood(site)
    written = set(site.kernel.written)
    read = {a.pointer for a in source.loads}
    result = []
    for name in source.parameters:
        type_ = source.signature.get(name, "i32")
        result.append(Parameter(
            name, "i32" if type_ == "constexpr" else type_, written=name in written,
            read=not type_.startswith("*") or name in read or name not in written,
            divisible=name in source.divisible,
        ))
    return tuple(result)


def understood(site: Site) -> KernelSource:
    if site.source is None:
        raise NotUnderstood("the kernel is not of the known shape")
    return site.source


def grid(source: KernelSource, blocks: Mapping[str, int]) -> tuple[str, ...]:
    """The launch grid of the unchanged index arithmetic, as plan expressions.

    Grid types are those of `torch._inductor.runtime.triton_heuristics`. Raises NotUnderstood for any other.
    """
    def extent(prefix: str) -> str:
        size = source.constants.get(f"{prefix}numel", f"{prefix}numel")
        block = blocks.get(f"{prefix.upper()}BLOCK", source.fixed.get(f"{prefix.upper()}BLOCK", 1))
        return f"cdiv({size}, {block})" if block != 1 else str(size)

    if source.grid_type == "Grid1D":
        return (extent("x"),)
    if source.grid_type == "Grid2D":
        return (extent("x"), extent("y"))
    if source.grid_type == "Grid3D":
        return (extent("x"), extent("y"), extent("z"))
    if source.grid_type == "Grid2DWithYZOverflow":
        folds = f"cdiv({extent('y')}, {_MAX_Y_GRID})"
        return (extent("x"), f"cdiv({extent('y')}, {folds})", folds)
    raise NotUnderstood(f"grid type {source.grid_type}")


def candidate(
    site: Site, technique: str, functions: Sequence[Function], launches: Sequence[Launch], rationale: str,
    scratch: Sequence[Scratch] = (),
) -> KernelCandidate:
    """The candidate for the site's one step; its id is a digest of what it is, so equal ones coincide."""
    source = understood(site)
    text = to_candidate_source(functions, source.helpers)
    plan = Plan(plan_parameters(site), tuple(launches), tuple(scratch))
    content = json.dumps([site.step.hash, text, plan.to_json()], sort_keys=True)
    digest = hashlib.sha256(content.encode()).hexdigest()[:10]
    return KernelCandidate(
        id=f"{technique}-{digest}", run_hash=site.step.hash, graph=site.step.graph, steps=(site.step.index,),
        source=text, plan=plan, technique=technique, rationale=rationale,
    )


def identity(site: Site, blocks: Mapping[str, int], num_warps: int, num_stages: int, technique: str,
             rationale: str, body: Sequence[ast.stmt] | None = None) -> KernelCandidate:
    """The baseline's own index arithmetic (and body, unless another is given) under one configuration."""
    source = understood(site)
    function = Function(source.name, runtime_parameters(source), source.tunable,
                        source.body if body is None else body)
    launch = Launch(
        plain(function.name), grid(source, blocks), function.parameters,
        {name: blocks[name] for name in source.tunable}, num_warps, num_stages,
    )
    return candidate(site, technique, [function], [launch], rationale)
