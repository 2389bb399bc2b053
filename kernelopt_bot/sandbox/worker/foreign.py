"""Operators that only the user's environment has (`torch.library.custom_op`, an extension), without a GPU.

The worker that interprets a graph never imports the user's code. The model worker records what these operators take
and return; there a stand-in checks what it is given and returns what was recorded.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from kernelopt_bot.sandbox.worker import tensors
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from kernelopt_bot.sandbox.worker.tensors import Scratch, half_digits, relative_error


@functools.cache
def known() -> frozenset[str]:
    """Operators that torch has by itself, `aten::add`. The first call must come before the user's code is imported."""
    return frozenset(name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names())


class Recording:
    """Within the block, calls of foreign operators go to `calls`: `{operator: "shop::clip.default", names: of its
    parameters, arguments: {name: TensorRef | value}, written: {name: TensorRef}, result}`, tensors as files.

    Seen are calls from Python, which those inside of other operators' functional forms are too.
    """

    def __init__(self, scratch: Scratch) -> None:
        self.calls: list[dict[str, Any]] = []
        self._scratch, self._inside, self._stack = scratch, False, contextlib.ExitStack()

    def __enter__(self) -> Recording:
        plain = torch._ops.OpOverload.__call__

        def call(operator: Any, /, *args: Any, **kwargs: Any) -> Any:
            if self._inside or operator._schema.name in known():
                return plain(operator, *args, **kwargs)
            self._inside = True
            try:
                return self._recorded(plain, operator, args, kwargs)
            finally:
                self._inside = False

        self._stack.enter_context(mock.patch.object(torch._ops.OpOverload, "__call__", call))
        return self

    def __exit__(self, *ignored: object) -> None:
        self._stack.close()

    def _recorded(self, plain: Callable[..., Any], operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        schema = operator._schema
        bound = dict(zip((a.name for a in schema.arguments), args, strict=False)) | kwargs
        before = {n: self._saved(v) for n, v in bound.items()}
        result = plain(operator, *args, **kwargs)
        changed = [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        self.calls.append({
            "operator": f"{schema.name}.{operator._overloadname}", "names": [a.name for a in schema.arguments],
            "arguments": before, "written": {n: self._saved(bound[n]) for n in changed if n in bound},
            "result": self._saved(result)})
        return result

    def _saved(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return tensors.save(self._scratch, value)
        if isinstance(value, list | tuple):
            return [self._saved(v) for v in value]
        return value if value is None or isinstance(value, bool | int | float | str) else str(value)


@contextlib.contextmanager
def standing_in(calls: Sequence[Mapping[str, Any]], scratch: Scratch) -> Iterator[None]:
    """Within the block `torch.ops` has the recorded operators; each recorded call answers once.

    Raises WorkerFault: bad_request for what this worker has itself; in a call, runtime_failed where nothing like it
    was recorded.
    """
    by_operator: dict[str, list[Mapping[str, Any]]] = {}
    for call in calls:
        by_operator.setdefault(str(call["operator"]), []).append(call)
    spaces: dict[str, dict[str, dict[str, Any]]] = {}
    for operator, recorded in by_operator.items():
        space, _, rest = operator.partition("::")
        name, _, overload = rest.partition(".")
        if f"{space}::{name}" in known() or not all(p.isidentifier() for p in (space, name, overload)):
            raise WorkerFault("bad_request", f"{operator} is no operator of the user's")
        spaces.setdefault(space, {}).setdefault(name, {})[overload] = _StandIn(operator, recorded, scratch)
    with contextlib.ExitStack() as stack:
        for space, names in spaces.items():
            made = SimpleNamespace(**{n: SimpleNamespace(**overloads) for n, overloads in names.items()})
            stack.enter_context(mock.patch.object(torch.ops, space, made, create=True))
        yield


class _StandIn:
    """One operator, which answers as recorded."""

    def __init__(self, operator: str, calls: Sequence[Mapping[str, Any]], scratch: Scratch) -> None:
        self._operator, self._left, self._scratch = operator, list(calls), scratch

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        fits = [(self._distance(c, args, kwargs), i) for i, c in enumerate(self._left)]
        distance, at = min(fits, default=(float("inf"), 0))
        if distance == float("inf"):
            raise WorkerFault("runtime_failed", f"{self._operator} is given what it is not given in the model")
        call = self._left.pop(at)
        bound = dict(zip(call["names"], args, strict=False)) | kwargs
        for name, value in call["written"].items():
            bound[name].copy_(self._loaded(value))
        return self._loaded(call["result"])

    def _distance(self, call: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> float:
        """The largest relative difference of a tensor; inf where more than half of the type's digits differ."""
        bound = dict(zip(call["names"], args, strict=False)) | dict(kwargs)
        largest = 0.0
        for name, value in call["arguments"].items():
            for given, then in zip(_flat(bound.get(name)), _flat(self._loaded(value)), strict=False):
                if isinstance(then, Tensor):
                    error = relative_error(given, then) if isinstance(given, Tensor) else float("inf")
                    largest = max(largest, error if error <= half_digits(then) else float("inf"))
                elif isinstance(then, int | float) and given != then:
                    return float("inf")
        return largest

    def _loaded(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return tensors.clone(tensors.load(self._scratch, value))
        return tuple(self._loaded(v) for v in value) if isinstance(value, list) else value


def _flat(value: Any) -> list[Any]:
    return [x for v in value for x in _flat(v)] if isinstance(value, list | tuple) else [value]
