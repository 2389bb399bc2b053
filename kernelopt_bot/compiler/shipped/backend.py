"""The compile backend of an artifact: Inductor with a recipe of options and known runs replaced."""

from __future__ import annotations

import contextvars
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelopt_bot.compiler.shipped.errors import ArtifactError, ArtifactWarning
from kernelopt_bot.compiler.shipped.substitution import Run, standard_device, substitute

TORCH_VERSIONS = ((2, 11), (2, 13))
"""First and last torch release that the substitution is verified with."""
_EDIT: contextvars.ContextVar[Callable[[str], str] | None] = contextvars.ContextVar("kernelopt_edit", default=None)


@dataclass(frozen=True)
class GraphRecord:
    """One graph that the backend compiled. `source` is the wrapper's text as it runs."""

    source: str
    replaced: Mapping[str, int]
    covered: bool
    inference: bool
    skipped: tuple[str, ...] = ()


def _device_properties(index: int) -> str:
    """A CUDA device as Inductor's kernels state it; an H200 where there is none (a wrapper that is only read)."""
    import torch

    if not torch.cuda.is_available():
        return standard_device(index)
    from torch._inductor.runtime.hints import DeviceProperties

    return repr(DeviceProperties.create(torch.device("cuda", index)))


class _Missed(Exception):
    """A graph without its expected runs, where the caller wants eager execution."""


def torch_supported(version: str) -> bool:
    """True for a torch release whose generated code this runtime knows."""
    parts = version.split("+")[0].split(".")
    number = tuple(int(p) for p in parts[:2] if p.isdigit())
    return len(number) == 2 and TORCH_VERSIONS[0] <= number <= TORCH_VERSIONS[1]


def _install_hook() -> None:
    """Let `_EDIT` change a wrapper's text between its generation and its loading.

    The class is patched once and for good: threads that compile at the same time would undo each other's patches,
    while a context variable belongs to one compilation."""
    from torch._inductor.graph import GraphLowering

    original = GraphLowering.codegen
    if getattr(original, "kernelopt_edit", None) is _EDIT:
        return

    def codegen(self: Any) -> Any:
        result = original(self)
        edit = _EDIT.get()
        if edit is not None:
            result[0].value = edit(result[0].value)
        return result

    codegen.kernelopt_edit = _EDIT  # type: ignore[attr-defined]
    setattr(GraphLowering, "codegen", codegen)  # noqa: B010


class Backend:
    """A `torch.compile` backend. `runs` by hash; `options` the recipe; with `clone_outputs`, what a graph returns
    survives its next call; `on_miss` says what to do with an inference graph that lacks its expected runs."""

    def __init__(self, runs: Mapping[str, Run], options: Mapping[str, Any], *, clone_outputs: bool = False,
                 on_miss: str = "compile", capability: int | None = None, label: str = "artifact") -> None:
        self.runs, self.options, self.clone_outputs = dict(runs), dict(options), clone_outputs
        self.on_miss, self.capability, self.label = on_miss, capability, label
        self.graphs: list[GraphRecord] = []
        self.eager = 0
        self._warned = False

    @property
    def expected(self) -> list[dict[str, int]]:
        """Per graph of the verified program: run hash -> calls replaced."""
        graphs = max((len(r.counts) for r in self.runs.values()), default=0)
        return [{h: r.counts[i] for h, r in self.runs.items() if i < len(r.counts) and r.counts[i]}
                for i in range(graphs)]

    def __call__(self, gm: Any, example_inputs: Sequence[Any]) -> Any:
        import torch
        import torch._functorch.config
        from torch._inductor.compile_fx import compile_fx

        _install_hook()
        training = torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in example_inputs)
        # A hit in either cache would return code that was never edited.
        patches = {"fx_graph_cache": False, "fx_graph_remote_cache": False}
        # The recipe was verified without gradients only.
        options = {} if training else self.options
        try:
            with torch._functorch.config.patch(enable_autograd_cache=False):
                return compile_fx(gm, list(example_inputs), inner_compile=self._inner,
                                  config_patches={**options, **patches})
        except _Missed:
            self.eager += 1
            return gm.forward

    def _inner(self, gm: Any, example_inputs: Sequence[Any], **kwargs: Any) -> Any:
        from torch._inductor.compile_fx import compile_fx_inner

        seen: dict[str, Any] = {"source": "", "replaced": {}, "skipped": ()}

        def edit(text: str) -> str:
            done = substitute(text, self.runs, capability=self.capability, device=_device_properties)
            seen.update(source=done.text, replaced=done.replaced, skipped=done.skipped)
            return done.text

        token = _EDIT.set(edit)
        try:
            compiled = compile_fx_inner(gm, example_inputs, **kwargs)
        finally:
            _EDIT.reset(token)
        inference = bool(kwargs.get("is_inference"))
        covered = not self.runs or seen["replaced"] in self.expected
        self.graphs.append(GraphRecord(seen["source"], seen["replaced"], covered, inference, seen["skipped"]))
        if not covered and not kwargs.get("is_backward"):
            self._miss(seen)
        if self.clone_outputs and inference and hasattr(compiled, "current_callable"):
            compiled.current_callable = cloning(compiled.current_callable, _from_inputs(gm))
        return compiled

    def _miss(self, seen: Mapping[str, Any]) -> None:
        found, wanted = sum(seen["replaced"].values()), sum(sum(r.counts) for r in self.runs.values())
        message = (f"{self.label}: {found} of {wanted} verified kernels fit this graph; the compiler's own code runs "
                   f"for the rest. Shapes, dtypes, device, mode or versions differ from those verified."
                   + "".join(f" {reason}." for reason in seen["skipped"]))
        if self.on_miss == "error":
            raise ArtifactError(message)
        if self.on_miss == "eager":
            raise _Missed
        if not self._warned:
            self._warned = True
            warnings.warn(message, ArtifactWarning, stacklevel=2)


def _from_inputs(gm: Any) -> frozenset[int]:
    """Positions of outputs whose storage is an input's: these are never cloned."""
    def storage(node: Any) -> Any:
        value: Any = getattr(node, "meta", {}).get("val")
        return value.untyped_storage()._cdata if hasattr(value, "untyped_storage") else None

    nodes = list(gm.graph.nodes)
    given = {storage(n) for n in nodes if n.op == "placeholder"} - {None}
    outputs = next(n for n in nodes if n.op == "output").args[0]
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    return frozenset(i for i, n in enumerate(outputs) if storage(n) in given)


def cloning(compiled: Callable[[list[Any]], Any], keep: frozenset[int]) -> Callable[[list[Any]], Any]:
    """`compiled` with each output storage cloned, so that a later call cannot overwrite it. Outputs that share a
    storage share the clone; outputs at the positions `keep`, and what is no tensor, are returned as they are."""
    import torch

    def clone_storage(tensor: Any, copies: dict[int, Any]) -> Any:
        storage = tensor.untyped_storage()
        key = storage.data_ptr()
        if key not in copies:
            copies[key] = storage.clone()
        fresh = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return fresh.set_(copies[key], tensor.storage_offset(), tensor.size(), tensor.stride())

    def call(args: list[Any]) -> Any:
        outputs = compiled(args)
        mine = [i for i, t in enumerate(outputs) if i not in keep and isinstance(t, torch.Tensor)]
        result = list(outputs)
        if len(mine) == 1:
            only = outputs[mine[0]]
            copy = only.clone()
            # `clone` keeps the strides of dense tensors alone.
            result[mine[0]] = copy if copy.stride() == only.stride() else clone_storage(only, {})
        else:
            copies: dict[int, Any] = {}
            for i in mine:
                result[i] = clone_storage(outputs[i], copies)
        return type(outputs)(result) if isinstance(outputs, (list, tuple)) else result

    call._boxed_call = True  # type: ignore[attr-defined]
    return call
