"""`load`: the user's model, its inputs, and how to make both again under another seed."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from kernelopt_bot.sandbox.worker import declined, foreign
from kernelopt_bot.sandbox.worker.main import Context
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from kernelopt_bot.sandbox.worker.seeds import seed_everything
from kernelopt_bot.sandbox.worker.self_compiled import left_out
from kernelopt_bot.sandbox.worker.state import State
from kernelopt_bot.sandbox.worker.tensors import clone, leaves, map_tensors, meta, tensor_leaves

TRACE_FRAMES = 8
"""Frames of the user's code that an error shows at most."""
_DEVICE_WORDS = ("to be on the same device", "expected device", "on cpu, but", "is on cpu", "not on the same device")
_MEMORY_WORDS = ("DefaultCPUAllocator: can't allocate memory", "DefaultCPUAllocator: not enough memory",
                 "CUDA error: out of memory", "CUDNN_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_ALLOC_FAILED")
"""What allocators say that raise a plain RuntimeError."""
_COMPILES = "torch.compile in the model's own code is left out, so that eager is eager and its modes are baselines: "
_OURS = os.path.dirname(os.path.realpath(__file__)) + os.sep


@dataclass
class Target:
    """A loaded model. `args` and `kwargs` are the pristine inputs on the device: hand out copies only."""

    root: str
    name: str
    """Of the class, or of the function that builds the model."""
    build: Callable[[], Any]
    draw: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]
    device: torch.device
    seed: int
    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    compiles: list[str] = field(default_factory=list)
    """Where the user's code calls `torch.compile`, which is left out."""

    def construct(self, seed: int) -> nn.Module:
        """A new model in eval mode on the device, initialised under `seed`. Raises WorkerFault."""
        seed_everything(seed)
        with (left_out(self.root, self.compiles),
              user_code(self.root, "target_constructor", f"the constructor of {self.name} failed")):
            model = self.build()
        if not isinstance(model, nn.Module):
            raise WorkerFault("target_constructor", f"{self.name} returned no nn.Module but a {type(model).__name__}")
        declined.look(model)
        return self.place(model)

    def place(self, model: nn.Module) -> nn.Module:
        with user_code(self.root, "target_device", f"the model cannot be moved to {self.device}"):
            return model.to(self.device).eval()

    def inputs(self, seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """New inputs on the device, drawn under `seed`. Raises WorkerFault."""
        seed_everything(seed)
        args, kwargs = self.draw()
        declined.look_at("input", self.named_inputs(args, kwargs, tensors=True))
        moved = [n for n, t in tensor_leaves((args, kwargs)) if t.device != self.device]
        if moved:
            note = f"the inputs were made elsewhere and moved to {self.device}"
            if note not in self.notes:
                self.notes.append(note)
        with user_code(self.root, "target_device", f"the inputs cannot be moved to {self.device}"):
            args, kwargs = map_tensors((args, kwargs), lambda t: t.detach().to(self.device))
        return args, kwargs

    def copies(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Fresh copies of the pristine inputs: strides and aliasing kept."""
        return copy_inputs((self.args, self.kwargs))

    def named_inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, tensors: bool = False,
                     ) -> list[tuple[str, Any]]:
        """(name after the parameters of `forward`, leaf) of given inputs, in order; with `tensors` no other leaf."""
        names = [p.name for p in inspect.signature(self.model.forward).parameters.values()
                 if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        found: list[tuple[str, Any]] = []
        for i, value in enumerate(args):
            found += leaves(value, names[i] if i < len(names) else f"args.{i}")
        for key, value in kwargs.items():
            found += leaves(value, key)
        return [(n, v) for n, v in found if not tensors or isinstance(v, Tensor)]


def copy_inputs(inputs: tuple[tuple[Any, ...], dict[str, Any]]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    memo: dict[tuple[str, int], torch.UntypedStorage] = {}
    args, kwargs = map_tensors(inputs, lambda t: clone(t, memo))
    return args, kwargs


def users_trace(root: str, error: BaseException) -> str:
    """The traceback cut to the frames under `root` (or to the last three where there is none), without our own."""
    # Frozen modules have no file: `<frozen importlib._bootstrap>` would be taken for one in the working folder.
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<frozen ")]
    inside = os.path.realpath(root) + os.sep
    own = [f for f in frames if os.path.realpath(f.filename).startswith(inside)][-TRACE_FRAMES:]
    others = [f for f in frames if not os.path.realpath(f.filename).startswith(_OURS)]
    shown = [*own, *(others[-1:] if own and others and others[-1] is not own[-1] else [])] or others[-3:]
    return "".join(traceback.format_list(shown) + traceback.format_exception_only(error))


@contextlib.contextmanager
def user_code(root: str, kind: str, what: str) -> Iterator[None]:
    """Turn whatever the user's code raises into a WorkerFault of `kind` with the user's traceback."""
    try:
        yield
    except WorkerFault:
        raise
    except (torch.OutOfMemoryError, MemoryError) as e:
        raise WorkerFault("out_of_memory", f"{what}: out of memory", users_trace(root, e)) from e
    except (Exception, SystemExit) as e:
        text = f"{type(e).__name__}: {e}".strip()
        first = text.splitlines()[0]
        if known := declined.recognised(what, text):
            raise known from e
        if any(w in text for w in _MEMORY_WORDS):
            raise WorkerFault("out_of_memory", f"{what}: out of memory", users_trace(root, e)) from e
        if kind == "target_forward" and any(w in text for w in _DEVICE_WORDS):
            kind = "target_device"
        if isinstance(e, ModuleNotFoundError) and e.name:
            first = f"the package {e.name.partition('.')[0]!r} is not installed in {sys.executable}"
        raise WorkerFault(kind, f"{what}: {first}", users_trace(root, e)) from e


def import_file(root: str, path: str, roots: Sequence[str] = ()) -> ModuleType:
    """Import a file under `root` as the user's program would: packages by their dotted name, scripts by path.

    `roots`: folders below `root` that belong on `sys.path` too, such as `src`.
    """
    full = os.path.realpath(os.path.join(root, path))
    if not full.startswith(os.path.realpath(root) + os.sep) or not os.path.isfile(full):
        raise WorkerFault("target_missing", f"no file {path!r} under the target's root")
    search = [os.path.realpath(os.path.join(root, r)) for r in ("", *roots)]
    for folder in (os.path.dirname(full), *reversed(search)):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    base = max((f for f in search if full.startswith(f + os.sep)), key=len)
    parts = os.path.relpath(full, base).removesuffix(".py").split(os.sep)
    with user_code(root, "target_import", f"importing {path} failed"):
        if len(parts) > 1 and all(p.isidentifier() for p in parts):
            known = sys.modules.get(".".join(parts))
            module = known or _by_name(".".join(parts))
            if module is not None and os.path.realpath(str(module.__file__)) == full:
                return module
        free = parts[-1].isidentifier() and parts[-1] not in sys.modules
        name = parts[-1] if free else f"kernelopt_target_{parts[-1]}"
        spec = importlib.util.spec_from_file_location(name, full)
        if spec is None or spec.loader is None:
            raise WorkerFault("target_import", f"{path} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return module


def _by_name(name: str) -> ModuleType | None:
    """A module by its dotted name; None where a folder of that name is no package or belongs to another one."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as e:
        if e.name is not None and (name == e.name or name.startswith(e.name + ".")):
            return None
        raise


def _function(root: str, main: ModuleType, path: str, spec: str, roots: Sequence[str],
              ) -> Callable[[], Any]:
    """`name` in the target's file, or `other/file.py:name`."""
    file, _, name = spec.rpartition(":")
    module = main if not file or file == path else import_file(root, file, roots)
    function = getattr(module, name, None)
    if not callable(function):
        raise WorkerFault("target_missing", f"no function {name!r} in {file or path}")
    return function  # type: ignore[no-any-return]


def _arguments(value: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if value is None:
        return (), {}
    if isinstance(value, dict):
        return (), dict(value)
    return (tuple(value), {}) if isinstance(value, list | tuple) else ((value,), {})


def load_target(params: dict[str, Any]) -> Target:
    """Import, construct and draw inputs; nothing is run yet. Raises WorkerFault of the kind that fits."""
    root, path = os.path.realpath(params["root"]), params["path"]
    device = torch.device(params["device"])
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        raise WorkerFault("target_device", f"there is no {device} on this machine")
    foreign.known()
    roots, compiles = tuple(params.get("roots") or ()), list[str]()
    with left_out(root, compiles):
        main = import_file(root, path, roots)
        entry = getattr(main, params["entry"], None)
        # A function that builds the model will do.
        if not (issubclass(entry, nn.Module) if isinstance(entry, type) else inspect.isroutine(entry)):
            raise WorkerFault("target_missing", f"no nn.Module class {params['entry']!r} in {path}, and no function")
        make_inputs = _function(root, main, path, params["inputs"], roots)
        make_init = _function(root, main, path, params["init"], roots) if params.get("init") else None

    def build() -> Any:
        args, kwargs = _arguments(make_init() if make_init else None)
        assert callable(entry)
        return entry(*args, **kwargs)

    def draw() -> tuple[tuple[Any, ...], dict[str, Any]]:
        if device.type == "cuda":
            # A processor draws a billion random numbers in some five seconds, and a gate draws anew each time. What
            # cannot be made there, such as what comes from numpy or from a generator, is made as it was written.
            with contextlib.suppress(Exception), torch.device(device):
                return _arguments(make_inputs())
        with user_code(root, "target_inputs", f"{params['inputs']} failed"):
            return _arguments(make_inputs())

    seed = int(params.get("seed", 0))
    target = Target(root, str(params["entry"]), build, draw, device, seed, nn.Identity(), (), {}, compiles=compiles)
    target.model = target.construct(seed)
    target.args, target.kwargs = target.inputs(seed)
    return target


def run_eager(target: Target, model: nn.Module, inputs: tuple[tuple[Any, ...], dict[str, Any]], seed: int) -> Any:
    """One forward on copies of `inputs` under `seed`, buffers put back. Raises WorkerFault (target_forward)."""
    args, kwargs = copy_inputs(inputs)
    kept = State(model)
    seed_everything(seed)
    try:
        with (user_code(target.root, "target_forward", f"{target.name}.forward failed"), torch.no_grad(),
              left_out(target.root, target.compiles)):
            out = model(*args, **kwargs)
            if target.device.type == "cuda":
                torch.cuda.synchronize(target.device)
        if reshaped := kept.reshaped():
            raise WorkerFault("declined", f"a call leaves state of another shape behind: {reshaped}",
                              "keep state of one shape, such as a cache of the longest length that is written in place")
        return out
    finally:
        kept.restore()


def max_difference(first: Any, second: Any) -> float:
    """Largest absolute difference between two outputs; inf if their structure differs."""
    a, b = tensor_leaves(first), tensor_leaves(second)
    if [(n, t.shape, t.dtype) for n, t in a] != [(n, t.shape, t.dtype) for n, t in b]:
        return float("inf")
    largest = 0.0
    for (_, x), (_, y) in zip(a, b, strict=True):
        if x.numel() and not torch.equal(x, y):
            wide = torch.complex128 if x.is_complex() else torch.float64
            difference = (x.to(wide) - y.to(wide)).abs().nan_to_num(nan=0.0)
            largest = max(largest, float(difference.max()))
    return largest


def equal_up_to_rounding(first: Any, second: Any) -> bool:
    """Whether two outputs differ by no more than atomic additions in another order can explain: the square root of
    the dtype's epsilon (`torch.finfo`), relative to the largest magnitude. Whole numbers have to be equal."""
    a, b = tensor_leaves(first), tensor_leaves(second)
    if [(n, t.shape, t.dtype) for n, t in a] != [(n, t.shape, t.dtype) for n, t in b]:
        return False
    for (_, x), (_, y) in zip(a, b, strict=True):
        if not x.numel() or torch.equal(x, y):
            continue
        if not (x.is_floating_point() or x.is_complex()):
            return False
        wide = torch.complex128 if x.is_complex() else torch.float64
        p, q = x.to(wide), y.to(wide)
        bound = torch.finfo(x.dtype).eps ** 0.5 * float(p.abs().nan_to_num(posinf=0.0).max())
        if not torch.allclose(p, q, rtol=0.0, atol=bound, equal_nan=True):
            return False
    return True


def describe(target: Target, first: Any, second: Any, reseeded: Any) -> dict[str, Any]:
    """The answer of `load`. `reseeded`: the output for the same inputs under another seed."""
    varies = ("between calls" if not equal_up_to_rounding(first, second)
              else "with the seed" if not equal_up_to_rounding(first, reseeded) else "")
    parameters: list[Tensor] = list(target.model.parameters())
    difference = max_difference(first, second)
    return {
        "class": target.name,
        "parameters": sum(p.numel() for p in parameters),
        "parameter_bytes": sum(p.numel() * p.element_size() for p in parameters),
        "inputs": [{"name": n, "meta": meta(v)} for n, v in target.named_inputs(target.args, target.kwargs)
                   if isinstance(v, Tensor)],
        "outputs": [meta(t) for _, t in tensor_leaves(first)],
        "deterministic": difference == 0.0,
        "max_difference": difference,
        "varies": varies,
        "notes": [*target.notes, *([_COMPILES + ", ".join(target.compiles)] if target.compiles else [])],
    }


def load(context: Context, params: dict[str, Any]) -> dict[str, Any]:
    """Load the model, run it three times and keep it. See docs/architecture.md for the kinds of error."""
    context.state.clear()
    target = load_target(params)
    first = run_eager(target, target.model, (target.args, target.kwargs), target.seed)
    if not tensor_leaves(first):
        raise WorkerFault("target_forward", f"{target.name}.forward returned no tensor")
    declined.look_at("output", tensor_leaves(first))
    second = run_eager(target, target.model, (target.args, target.kwargs), target.seed)
    reseeded = run_eager(target, target.model, (target.args, target.kwargs), target.seed + 1)
    context.state["target"] = target
    return describe(target, first, second, reseeded)


def current(context: Context) -> Target:
    """The loaded target. Raises WorkerFault (bad_request) before `load`."""
    target = context.state.get("target")
    if not isinstance(target, Target):
        raise WorkerFault("bad_request", "no model is loaded")
    return target
