"""The arms of a comparison: eager, torch.compile under a mode or options, an artifact. Parameters are shared.

Every compiled arm has a backend object of its own, so that two equal arms are compiled twice (torch.compile would
let them share), and a structural copy of the model of its own, so that an artifact's `optimize` touches no other arm.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
import torch._dynamo
import torch._inductor
from torch import nn
from torch._inductor.compile_fx import compile_fx
from torch._inductor.cpu_vec_isa import valid_vec_isa_list
from torch._inductor.utils import clear_caches

from kernelopt_bot.compiler._runtime import Backend
from kernelopt_bot.sandbox.worker.capture import check_options, compiler_faults
from kernelopt_bot.sandbox.worker.choices import Choices
from kernelopt_bot.sandbox.worker.device import Device
from kernelopt_bot.sandbox.worker.load import Target, user_code
from kernelopt_bot.sandbox.worker.main import Context
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from kernelopt_bot.sandbox.worker.state import State
from kernelopt_bot.sandbox.worker.tensors import storage_key, tensor_leaves

CACHE_VARIABLES = {"TORCHINDUCTOR_CACHE_DIR": "", "TRITON_CACHE_DIR": "triton"}
WARM_UP_CALLS = 3
"""A CUDA graph is warmed up, recorded, and then replayed."""
ENTRIES = 64
"""Compiled forms of one function that Dynamo keeps; its default of 8 is too few for several arms."""


@dataclass(frozen=True)
class Arm:
    """One side of a comparison, as the host names it (docs/architecture.md)."""

    name: str
    kind: str
    mode: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    artifact: str | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Arm:
        arm = cls(str(data["name"]), str(data["kind"]), data.get("mode"), dict(data.get("options") or {}),
                  data.get("artifact"))
        if arm.kind not in ("eager", "compile", "artifact") or (arm.kind == "artifact") != bool(arm.artifact) or (
                arm.mode and arm.options):
            raise WorkerFault("bad_request", f"arm {arm.name!r}: no such kind, no artifact, or both a mode and options")
        return arm


@dataclass
class BuiltArm:
    arm: Arm
    model: nn.Module
    call: Callable[..., Any]
    compile_s: float
    """Wall time from the start to the first output, compilation included."""
    graphs: int
    """Graphs that were compiled (0 for eager and for an artifact, whose `status` says it)."""
    replaced: dict[str, int]
    """{expected, found} runs of steps that the artifact replaces."""
    buffers: State
    """The model's buffers before any call."""
    peak_bytes: int | None
    """Device memory of the model, its inputs and a call; None on a CPU."""
    warm: bool = False
    """Whether it was called for long enough to be timed."""

    def close(self) -> None:
        """Let its compiled code and memory go."""
        self.call = _closed
        self.model = nn.Identity()
        self.buffers = State(self.model)
        torch._dynamo.reset()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _closed(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("this arm is closed")


@contextlib.contextmanager
def cache_folder(folder: str | None) -> Iterator[None]:
    """Inductor's and Triton's caches in `folder`, within the block; what is cached in memory is forgotten.

    None leaves the process's own caches in use.
    """
    if folder is None:
        yield
        return
    before = {name: os.environ.get(name) for name in CACHE_VARIABLES}
    clear_caches()
    for name, sub in CACHE_VARIABLES.items():
        os.environ[name] = os.path.join(folder, sub) if sub else folder
        os.makedirs(os.environ[name], exist_ok=True)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        clear_caches()


def twin(model: nn.Module) -> nn.Module:
    """The same modules with the same parameters and copied buffers. Attributes that cannot be copied (a lock, a handle,
    a weight that a hook computes) are shared."""
    memo: dict[int, Any] = {id(p): p for p in model.parameters()}
    with contextlib.suppress(Exception):
        return copy.deepcopy(model, dict(memo))
    for module in model.modules():
        for value in [v for n, v in vars(module).items() if n not in ("_parameters", "_modules")]:
            try:
                # A fresh list of all modules, lest one attribute's reference to another module copies that one too.
                copy.deepcopy(value, {**memo, **{id(m): m for m in model.modules()}})
            except Exception:
                memo[id(value)] = value
    return copy.deepcopy(model, memo)


def load_artifact(folder: str) -> ModuleType:
    """Import an artifact's package from its folder, as its user would."""
    name = f"kernelopt_artifact_{abs(hash(os.path.realpath(folder)))}"
    for known in [m for m in sys.modules if m == name or m.startswith(name + ".")]:
        del sys.modules[known]
    start = os.path.join(folder, "__init__.py")
    spec = importlib.util.spec_from_file_location(name, start, submodule_search_locations=[folder])
    if spec is None or spec.loader is None or not os.path.isfile(start):
        raise WorkerFault("bad_request", "there is no artifact in the given folder")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with user_code(folder, "runtime_failed", "the artifact cannot be imported"):
        spec.loader.exec_module(module)
    return module


def _compiled(model: nn.Module, arm: Arm, counted: list[int]) -> Callable[..., Any]:
    """A mode is what `torch.compile(mode=...)` does. Options are a candidate's recipe: they run as the artifact will
    run them, outputs of CUDA graphs cloned."""
    check_options(arm.options)
    mode = torch._inductor.list_mode_options(arm.mode) if arm.mode else {}
    recipe = Backend({}, arm.options, clone_outputs=bool(arm.options.get("triton.cudagraphs")))

    def backend(gm: Any, example_inputs: list[Any]) -> Any:
        counted.append(len(gm.graph.nodes))
        if arm.options:
            return recipe(gm, example_inputs)
        return compile_fx(gm, example_inputs, config_patches=mode)

    return torch.compile(model, backend=backend)


def build(context: Context, target: Target, arm: Arm, cache: str | None = None, model: nn.Module | None = None,
          ) -> BuiltArm:
    """Make an arm and call it until it is warm. Raises WorkerFault: unsupported, no_graphs, out_of_memory.

    `cache` is its own folder for compiled code; `model` (default: the loaded one) shares its parameters with it.
    Kernels that an earlier arm of this process has too run in the configuration that was chosen there.
    """
    device = Device(target.device)
    own = twin(model or target.model)
    buffers = State(own)
    torch._dynamo.config.recompile_limit = max(ENTRIES, torch._dynamo.config.recompile_limit)
    before, unused = device.allocated(), device.private_unused()
    counted: list[int] = []
    artifact: ModuleType | None = None
    choices: Choices = context.state.setdefault("choices", Choices())
    if cache is not None:
        choices.give(cache)
    if not device.gpu and arm.kind != "eager":
        # Which vector instructions can be compiled for is found out by trial, some 10 s: once a machine, not a model.
        valid_vec_isa_list()
    with cache_folder(cache), compiler_faults(f"arm {arm.name!r}"), torch.no_grad():
        start = time.perf_counter()
        if arm.kind == "artifact":
            artifact = load_artifact(str(arm.artifact))
            call: Callable[..., Any] = artifact.optimize(own)
        else:
            call = own if arm.kind == "eager" else _compiled(own, arm, counted)
        args, kwargs = target.copies()
        call(*args, **kwargs)
        device.wait()
        seconds = time.perf_counter() - start
        for _ in range(WARM_UP_CALLS):
            args, kwargs = target.copies()
            call(*args, **kwargs)
        device.wait()
        buffers.restore()
        peak = _peak(target, call, device, before, unused)
        if cache is not None:
            choices.take(cache)
    if arm.kind == "compile" and not counted:
        raise WorkerFault("no_graphs", f"arm {arm.name!r}: torch.compile captured no graph")
    buffers.restore()
    replaced = _replaced(artifact, own, arm)
    return BuiltArm(arm, own, call, seconds, len(counted), replaced, buffers, peak)


def _replaced(artifact: ModuleType | None, model: nn.Module, arm: Arm) -> dict[str, int]:
    if artifact is None:
        return {"expected": 0, "found": 0}
    try:
        status = artifact.status(model)
    except artifact.ArtifactError as e:
        raise WorkerFault("no_graphs", f"arm {arm.name!r}: {e}") from e
    return {"expected": sum(status["expected"].values()), "found": sum(status["replaced"].values())}


def _peak(target: Target, call: Callable[..., Any], device: Device, before: int, unused_before: int) -> int | None:
    if not device.gpu:
        return None
    held = device.allocated() - before
    args, kwargs = target.copies()
    inputs = device.allocated()
    torch.cuda.reset_peak_memory_stats(device.device)
    call(*args, **kwargs)
    device.wait()
    during = int(torch.cuda.max_memory_allocated(device.device)) - inputs
    resident = [*target.model.parameters(), *target.model.buffers(), *(t for _, t in tensor_leaves((args, kwargs)))]
    own = sum({storage_key(t): t.untyped_storage().nbytes() for t in resident}.values())
    return own + held + during + device.private_unused() - unused_before
