"""Inductor's generated Triton kernels in a structured form: what a technique looks at and rewrites.

A generated kernel is straight-line code over index variables (`x0`, `r0_1`), masks (`xmask`, `r0_mask`) and values
(`tmp7`), with top-level loops over the reduction where a row does not fit one block. Parsed by `ast` only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

HEURISTICS = ("pointwise", "reduction", "persistent_reduction")
"""Decorators of `triton_heuristics` whose kernels have the shape that is understood here."""

PREFIXES = ("x", "y", "z", "r0_", "r1_")
BLOCKS: Mapping[str, str] = {p: f"{p.upper()}BLOCK" for p in PREFIXES}


class NotUnderstood(Exception):
    """The source is not a kernel of the known shape; the message says why. Techniques then propose nothing."""


@dataclass(frozen=True)
class Access:
    """One `tl.load` or `tl.store`. `index` is the element offset from the pointer, `mask` None where unmasked."""

    kind: Literal["load", "store"]
    pointer: str
    index: ast.expr
    mask: ast.expr | None
    eviction: str
    target: str
    """The variable a load binds ('' for a store)."""
    loop: int | None
    """Number of the loop that holds it, None outside loops."""


@dataclass(frozen=True)
class KernelSource:
    """A parsed kernel. `body` is shared: copy statements (`copied`) before changing them."""

    name: str
    heuristic: str
    grid_type: str
    reduction_hint: str
    parameters: tuple[str, ...]
    """Run-time parameters of the device function in order, sizes included."""
    tunable: tuple[str, ...]
    """`tl.constexpr` parameters: `XBLOCK`, `R0_BLOCK`, ..."""
    signature: Mapping[str, str]
    divisible: frozenset[str]
    """Parameters that Inductor knows to be multiples of 16 (bytes for pointers)."""
    size_hints: Mapping[str, int]
    constants: Mapping[str, int]
    """Sizes written into the body as literals: `xnumel`, `r0_numel`; absent where dynamic."""
    fixed: Mapping[str, int]
    """Blocks that the body fixes: `R0_BLOCK` of a persistent reduction."""
    body: tuple[ast.stmt, ...]
    helpers: tuple[ast.FunctionDef, ...]
    """Other device functions of the source (combine functions of scans)."""

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Prefixes of the iteration space that the kernel has, `("x", "r0_")`."""
        return tuple(p for p in PREFIXES if f"{p}numel" in self.parameters)

    def numel(self, prefix: str) -> int | None:
        """Extent of a dimension in elements; None where it is dynamic."""
        return self.constants.get(f"{prefix}numel")

    @property
    def loops(self) -> tuple[ast.For, ...]:
        return tuple(s for s in self.body if isinstance(s, ast.For))

    @property
    def accesses(self) -> tuple[Access, ...]:
        found: list[Access] = []
        loop = 0
        for statement in self.body:
            inside = isinstance(statement, ast.For)
            found += _accesses(statement, loop if inside else None)
            loop += inside
        return tuple(found)

    @property
    def loads(self) -> tuple[Access, ...]:
        return tuple(a for a in self.accesses if a.kind == "load")

    @property
    def stores(self) -> tuple[Access, ...]:
        return tuple(a for a in self.accesses if a.kind == "store")

    def masked(self, prefix: str) -> bool:
        """True if the body compares the dimension's index with its extent; False where Inductor left it out
        because every block that it tries divides the extent."""
        want = f"{prefix}mask"
        for statement in walk(self.body):
            if isinstance(statement, ast.Assign) and name_of(statement) == want:
                return any(isinstance(n, ast.Compare) for n in ast.walk(statement.value))
        return True

    def calls(self, *names: str) -> bool:
        """True if the body calls one of the functions, by dotted name."""
        return any(isinstance(n, ast.Call) and ast.unparse(n.func) in names for s in self.body for n in ast.walk(s))


def walk(body: tuple[ast.stmt, ...] | list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements in order, those of loops included."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.For):
            yield from walk(statement.body)


def name_of(statement: ast.stmt) -> str:
    """The one name that an assignment binds, '' otherwise."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id
    return ""


def parse(source: str) -> KernelSource:
    """The one generated kernel in `source`. Raises NotUnderstood with the reason."""
    try:
        tree = ast.parse(source)
    except SyntaxError as e:
        raise NotUnderstood(f"not Python: {e}") from e
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    found = [(f, d) for f in functions for d in f.decorator_list if isinstance(d, ast.Call)]
    if len(found) != 1:
        raise NotUnderstood(f"{len(found)} decorated kernels in the source, one expected")
    function, decorator = found[0]
    heuristic = ast.unparse(decorator.func).rpartition(".")[2]
    if heuristic not in HEURISTICS:
        raise NotUnderstood(f"heuristic {heuristic}")
    keywords = {k.arg: k.value for k in decorator.keywords if k.arg}
    meta, inductor = _literals(keywords.get("triton_meta")), _literals(keywords.get("inductor_meta"))
    signature = {str(k): str(v) for k, v in dict(meta.get("signature", {})).items()}
    if not signature:
        raise NotUnderstood("no signature")
    constexprs = tuple(a.arg for a in function.args.args if a.annotation is not None)
    parameters = tuple(a.arg for a in function.args.args if a.annotation is None)
    constants, fixed = _literal_sizes(function.body)
    hint = keywords.get("reduction_hint")
    return KernelSource(
        name=function.name, heuristic=heuristic, grid_type=str(inductor.get("grid_type", "Grid1D")),
        reduction_hint=ast.unparse(hint).rpartition(".")[2] if hint is not None else "",
        parameters=parameters, tunable=constexprs, signature=signature,
        divisible=_divisible(meta, tuple(signature)),
        size_hints={str(k): int(v) for k, v in _literal(keywords.get("size_hints"), {}).items()},
        constants=constants, fixed=fixed, body=tuple(function.body),
        helpers=tuple(f for f in functions if f is not function),
    )


def _accesses(statement: ast.stmt, loop: int | None) -> list[Access]:
    found = []
    for inner in walk([statement]):
        if isinstance(inner, ast.For):
            continue
        for call in ast.walk(inner):
            access = access_of(call, name_of(inner), loop) if isinstance(call, ast.Call) else None
            if access is not None:
                found.append(access)
    return found


def access_of(call: ast.Call, target: str = "", loop: int | None = None) -> Access | None:
    """The access a call makes, None if it is no load or store through `pointer + index`."""
    function = ast.unparse(call.func)
    if function not in ("tl.load", "tl.store") or not call.args:
        return None
    address = call.args[0]
    if not (isinstance(address, ast.BinOp) and isinstance(address.op, ast.Add) and isinstance(address.left, ast.Name)):
        return None
    position = 1 if function == "tl.load" else 2
    keywords = {k.arg: k.value for k in call.keywords}
    mask = call.args[position] if len(call.args) > position else keywords.get("mask")
    if isinstance(mask, ast.Constant) and mask.value is None:
        mask = None
    eviction = keywords.get("eviction_policy")
    return Access(
        "load" if function == "tl.load" else "store", address.left.id, address.right, mask,
        str(eviction.value) if isinstance(eviction, ast.Constant) else "", target, loop,
    )


def _literal(node: ast.expr | None, default: Any) -> Any:
    try:
        return ast.literal_eval(node) if node is not None else default
    except ValueError:
        return default


def _literals(node: ast.expr | None) -> dict[str, Any]:
    """The entries of a dict display whose values are literals (`DeviceProperties(...)` and the like left out)."""
    if not isinstance(node, ast.Dict):
        return {}
    missing = object()
    pairs = ((_literal(k, missing), _literal(v, missing)) for k, v in zip(node.keys, node.values, strict=True))
    return {k: v for k, v in pairs if k is not missing and v is not missing}


def _divisible(meta: Mapping[str, Any], names: tuple[str, ...]) -> frozenset[str]:
    attributes = meta.get("configs") or [{}]
    return frozenset(
        names[position[0]] for position, what in attributes[0].items()
        if ["tt.divisibility", 16] in what and position[0] < len(names)
    )


def _literal_sizes(body: list[ast.stmt]) -> tuple[dict[str, int], dict[str, int]]:
    constants: dict[str, int] = {}
    fixed: dict[str, int] = {}
    for statement in body:
        value = getattr(statement, "value", None)
        if isinstance(value, ast.Constant) and isinstance(value.value, int):
            name = name_of(statement)
            if name.endswith("numel") and isinstance(statement, ast.Assign):
                constants[name] = value.value
            elif isinstance(statement, ast.AnnAssign) and name in BLOCKS.values():
                fixed[name] = value.value
    return constants, fixed
