"""What users call: `optimize(model)` and `status(model)`."""

from __future__ import annotations

import os
import types
import warnings
import weakref
from pathlib import Path
from typing import Any

from kernelopt_bot.compiler.shipped.backend import Backend, torch_supported
from kernelopt_bot.compiler.shipped.errors import ArtifactError, ArtifactWarning
from kernelopt_bot.compiler.shipped.manifest import Manifest, load_manifest


class Artifact:
    """A folder with a manifest, bound to the models that it optimises."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._backends: weakref.WeakKeyDictionary[Any, Backend] = weakref.WeakKeyDictionary()

    @classmethod
    def load(cls, folder: str | Path) -> Artifact:
        """Raises ArtifactError if the folder is no valid artifact."""
        return cls(load_manifest(folder))

    def backend(self, on_miss: str = "compile") -> Backend:
        """A `torch.compile` backend. Raises ArtifactError for an unknown `on_miss`."""
        if on_miss not in ("compile", "eager", "error"):
            raise ArtifactError(f"on_miss={on_miss!r}: use 'compile', 'eager' or 'error'")
        manifest = self.manifest
        return Backend(manifest.runs, manifest.options, clone_outputs=manifest.clone_outputs, on_miss=on_miss,
                       capability=manifest.capability, label=f"kernelopt artifact {manifest.target!r}")

    def optimize(self, model: Any, on_miss: str = "compile") -> Any:
        """Compile `model` in place with the artifact's kernels and return it.

        It stays the same module: state_dict, pickle and deepcopy work as before (a copy is not compiled). Where a
        graph is not the verified one, `on_miss` decides: the compiler's own code with one warning, eager execution,
        or an error. KERNELOPT_DISABLE=1 in the environment returns the model untouched. Raises ArtifactError."""
        import torch

        backend = self.backend(on_miss)
        if not isinstance(model, torch.nn.Module):
            raise ArtifactError(f"optimize() takes a torch.nn.Module, not {type(model).__name__}")
        if os.environ.get("KERNELOPT_DISABLE") == "1":
            return model
        if self.manifest.edited:
            warnings.warn(f"{backend.label}: {', '.join(self.manifest.edited)} changed after verification and "
                          f"will not be used", ArtifactWarning, stacklevel=2)
        if not torch_supported(torch.__version__):
            message = f"{backend.label} does not know torch {torch.__version__}"
            if on_miss == "error":
                raise ArtifactError(f"{message}; use torch 2.11 to 2.13 or on_miss='compile'")
            warnings.warn(f"{message}: plain {'eager' if on_miss == 'eager' else 'torch.compile'} runs instead",
                          ArtifactWarning, stacklevel=2)
            if on_miss == "compile":
                _compile(model, "inductor")
            return model
        _compile(model, backend)
        self._backends[model] = backend
        return model

    def status(self, model: Any) -> dict[str, Any]:
        """What happened to `model`: `optimized`, `graphs` compiled, `replaced` and `expected` kernels by run hash,
        `covered` (every inference graph as verified), `eager` graphs, `reasons`.

        Raises ArtifactError if it was optimised but no graph was compiled: it was not called yet, or torch.compile
        cannot capture it."""
        backend = self._backends.get(model)
        if backend is None:
            return {"optimized": False, "graphs": 0, "replaced": {}, "expected": {}, "covered": False, "eager": 0,
                    "reasons": ["optimize() was not called on this object, was switched off, or torch is unknown"]}
        if not backend.graphs:
            raise ArtifactError("no graph was compiled: call the model once before status(); if it was called, "
                                "torch.compile could not capture it and it runs eagerly")
        replaced: dict[str, int] = {}
        for graph in backend.graphs:
            for run, count in graph.replaced.items():
                replaced[run] = replaced.get(run, 0) + count
        return {"optimized": True, "graphs": len(backend.graphs), "replaced": replaced,
                "expected": {h: sum(r.counts) for h, r in backend.runs.items()},
                "covered": all(g.covered for g in backend.graphs if g.inference)
                and any(g.inference for g in backend.graphs), "eager": backend.eager,
                "reasons": [f"{name} changed after verification" for name in self.manifest.edited]
                + [reason for g in backend.graphs for reason in g.skipped]}

    def write_stitched(self, model: Any, folder: str | Path) -> list[Path]:
        """Write each compiled graph's wrapper, as it runs, to `folder/graph_<n>.py` for reading."""
        backend = self._backends.get(model)
        written = []
        for index, graph in enumerate(backend.graphs if backend else []):
            path = Path(folder) / f"graph_{index}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(graph.source, encoding="utf-8")
            written.append(path)
        return written


def _compile(model: Any, backend: Any) -> None:
    """`Module.compile`, for library classes too: Dynamo does not trace into a frame of theirs, so a bare
    `nn.Sequential` needs one frame of ours round it. What the author's own `torch.compile` made is looked through."""
    import torch
    from torch._dynamo import external_utils, trace_rules

    _take_over(model)
    implementation = _uncompiled(model._call_impl)
    if trace_rules.check(model.forward):
        implementation = external_utils.wrap_inline(implementation)
    model._compiled_call_impl = torch.compile(implementation, backend=backend)


def _uncompiled(method: Any) -> Any:
    """A bound method as it was before `torch.compile`."""
    plain = getattr(method, "_torchdynamo_orig_callable", None)
    return method if plain is None else types.MethodType(plain, method.__self__)


def _take_over(model: Any) -> None:
    """A class under `@torch.compile` compiles each call, and with it whatever its instances hold. Let this instance be
    called as other modules are; the others stay as they are."""
    for owner in type(model).__mro__:
        call = vars(owner).get("__call__")
        plain = getattr(call, "_torchdynamo_orig_callable", None)
        if plain is not None:
            call = _called(plain, call)
            setattr(owner, "__call__", call)  # noqa: B010
        ours = getattr(call, "kernelopt_models", None)
        if ours is not None:
            ours.add(model)


def _called(plain: Any, compiled: Any) -> Any:
    ours: weakref.WeakSet[Any] = weakref.WeakSet()

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return (plain if self in ours else compiled)(self, *args, **kwargs)

    call.kernelopt_models = ours  # type: ignore[attr-defined]
    return call
