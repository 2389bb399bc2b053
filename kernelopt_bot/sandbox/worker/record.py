"""Runs a wrapper's text on real inputs with a hook at every kernel and vendor call, and records the calls.

Used by the model worker on the CPU and on CUDA, and usable by anything that can execute a wrapper's text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from kernelopt_bot.compiler.instrument import HOOK, Instrumented, instrument
from kernelopt_bot.sandbox.worker.tensors import Scratch, meta, save, stats, storage_key

Hook = Callable[..., Any]
ALLOCATORS = ("empty_strided_cpu", "empty_strided_cuda")
MACHINE_KEYWORDS = ("stream",)
"""Keywords that say nothing about the call itself."""


class Recorder:
    """A hook that records every call as `CallJson` of docs/architecture.md before making it.

    At most `limit` bytes of raw storage are written per call, small tensors first; what was allocated but never
    handed to a call has no values worth recording, so its `stats` and `saved` are null.
    """

    def __init__(self, scratch: Scratch, instrumented: Instrumented, limit: int) -> None:
        self.calls: list[dict[str, Any]] = []
        self._scratch, self._sites, self._limit = scratch, instrumented.sites, limit
        self._unwritten: set[tuple[str, int]] = set()

    def prepare(self, names: dict[str, Any]) -> None:
        """Note what the wrapper allocates, so that uninitialised memory is told from values."""
        for name in ALLOCATORS:
            if name in names:
                names[name] = self._noting(names[name])

    def _noting(self, allocate: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def noting(*args: Any, **kwargs: Any) -> Tensor:
            tensor = allocate(*args, **kwargs)
            self._unwritten.add(storage_key(tensor))
            return tensor

        return noting

    def __call__(self, site: int, callee: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        at = self._sites[site]
        tensors = [t for value in (*args, *kwargs.values()) for t in _inside(value)]
        saved = self._saved(tensors)
        self.calls.append({
            "line": at.line,
            "callee": at.callee,
            "arguments": [self._describe(a, saved) for a in args],
            "keywords": {k: self._describe(v, saved) for k, v in kwargs.items() if k not in MACHINE_KEYWORDS},
        })
        result = callee(*args, **kwargs)
        for tensor in tensors:
            self._unwritten.discard(storage_key(tensor))
        return result

    def _saved(self, tensors: Sequence[Tensor]) -> dict[tuple[str, int], bool]:
        """Storage -> whether it is written raw, within the limit of one call."""
        sizes = {storage_key(t): t.untyped_storage().nbytes() for t in tensors}
        left, chosen = self._limit, {}
        for key, size in sorted(sizes.items(), key=lambda item: item[1]):
            chosen[key] = key not in self._unwritten and size <= left
            left -= size if chosen[key] else 0
        return chosen

    def _describe(self, value: Any, saved: Mapping[tuple[str, int], bool]) -> dict[str, Any]:
        if isinstance(value, Tensor):
            key = storage_key(value)
            known = key not in self._unwritten
            return {
                "tensor": meta(value), "value": None, "stats": stats(value) if known else None,
                "saved": save(self._scratch, value) if saved.get(key) else None,
            }
        plain = value is None or isinstance(value, bool | int | float | str)
        described = {"tensor": None, "value": value if plain else str(value), "stats": None, "saved": None}
        if isinstance(value, list | tuple):
            described["value"] = None if _inside(value) else str(value)
            described["items"] = [self._describe(v, saved) for v in value]
        return described


def _inside(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [t for v in value for t in _inside(v)] if isinstance(value, list | tuple) else []


def load_wrapper(text: str, constants: Mapping[str, Any]) -> dict[str, Any]:
    """Execute a wrapper's text (our compiler's own output) and return its globals."""
    names: dict[str, Any] = {"__name__": "kernelopt_wrapper", "__file__": "<wrapper>"}
    exec(compile(text, "<wrapper>", "exec"), names)
    names.update(constants)
    return names


def run_hooked(
    source: str, constants: Mapping[str, Any], inputs: Sequence[Any], make_hook: Callable[[Instrumented], Hook],
) -> tuple[list[Any], Hook]:
    """Run an instrumented wrapper on `inputs` (consumed and possibly mutated: hand in copies).

    Returns its outputs and the hook. A hook with a method `prepare(globals)` gets the wrapper's globals first.
    """
    instrumented = instrument(source)
    hook = make_hook(instrumented)
    names = load_wrapper(instrumented.text, constants)
    prepare = getattr(hook, "prepare", None)
    if prepare is not None:
        prepare(names)
    names[HOOK] = hook
    with torch.no_grad():
        return list(names["call"](list(inputs))), hook
