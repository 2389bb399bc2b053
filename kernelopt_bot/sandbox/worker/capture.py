"""`capture`: every graph that the compiler makes of the model, taken at `inner_compile` of `compile_fx`.

AOTAutograd's and the FX graph's caches are off meanwhile, so that a warm cache cannot skip the hook.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch._dynamo
import torch._functorch.config
import torch._inductor.config
from torch import Tensor, fx
from torch._dynamo.utils import counters
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._inductor.runtime.cache_dir_utils import cache_dir

from kernelopt_bot.sandbox.worker import pretend
from kernelopt_bot.sandbox.worker.foreign import Recording
from kernelopt_bot.sandbox.worker.load import Target, current
from kernelopt_bot.sandbox.worker.main import Context
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from kernelopt_bot.sandbox.worker.record import Recorder, run_hooked
from kernelopt_bot.sandbox.worker.seeds import seed_everything
from kernelopt_bot.sandbox.worker.state import State, held
from kernelopt_bot.sandbox.worker.tensors import Scratch, clone, clone_all, meta, save

LANES = ("cuda", "pretend", "cpu")
ALIGNMENT = 16
"""Bytes to which Inductor's kernels assume the inputs named in `inputs_to_check` to be aligned."""
REASON_LINES = 12
COMPILER_BYTES = 256 << 20
"""What a C++ compiler needs on disk: a precompiled header of torch's takes some 150 MB."""


@dataclass
class CapturedGraph:
    """One compiled graph, kept in the worker between calls."""

    index: int
    source: str
    is_inference: bool
    is_backward: bool
    names: list[str]
    compiled: Callable[[list[Any]], Any]
    module: fx.GraphModule
    """The inner graph before Inductor changed it."""
    constants: Mapping[str, Any]
    mutated: tuple[int, ...]
    to_align: tuple[int, ...]
    inputs: list[Any] = field(default_factory=list)
    """Pristine inputs of the first call; hand out `copies()` only."""
    qualified: list[tuple[str, str]] = field(default_factory=list)
    """(qualified name, kind) of each input."""
    outputs: list[dict[str, Any] | None] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    foreign: list[dict[str, Any]] = field(default_factory=list)
    """Calls of operators that only this environment has, in the pretended lane (`foreign.Recording`)."""

    def copies(self, inputs: Sequence[Any] | None = None) -> list[Any]:
        """Fresh copies of the inputs, aliasing kept, aligned as the kernels assume.

        The model's own parameters and buffers that the graph only reads stay as they are: a CUDA graph knows them
        by their address.
        """
        given = list(self.inputs if inputs is None else inputs)
        values = clone_all(given)
        for i, (value, (_, kind)) in enumerate(zip(given, self.qualified, strict=True)):
            if kind in ("parameter", "buffer") and i not in self.mutated and value is self.inputs[i]:
                values[i] = value
        for i in self.to_align:
            if isinstance(values[i], Tensor) and values[i].data_ptr() % ALIGNMENT:
                values[i] = values[i].clone()
        return values

    def to_json(self, scratch: Scratch, with_inputs: bool) -> dict[str, Any]:
        inputs = [
            {"name": n, "qualified": q, "kind": k, "tensor": meta(v) if isinstance(v, Tensor) else None,
             "mutated": i in self.mutated}
            for i, (n, (q, k), v) in enumerate(zip(self.names, self.qualified, self.inputs, strict=True))
        ]
        saved = [save(scratch, v) if isinstance(v, Tensor) else v for v in self.inputs] if with_inputs else None
        return {
            "index": self.index, "source": self.source, "is_inference": self.is_inference,
            "is_backward": self.is_backward, "inputs": inputs, "outputs": self.outputs, "calls": self.calls,
            "saved_inputs": saved, "foreign": self.foreign,
        }


class _Names:
    """Which parameter, buffer or argument a graph input is: by identity, else by memory."""

    def __init__(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._by_id: dict[int, tuple[str, str]] = {}
        self._by_memory: dict[tuple[Any, ...], tuple[str, str]] = {}
        named = [(n, t, "input") for n, t in target.named_inputs(args, kwargs) if isinstance(t, Tensor)]
        named += [(n, t, "buffer") for n, t in target.model.named_buffers(remove_duplicate=False)]
        named += [(h.name, h.tensor, "buffer") for h in held(target.model)]
        named += [(n, t, "parameter") for n, t in target.model.named_parameters(remove_duplicate=False)]
        for name, tensor, kind in named:
            self._by_id.setdefault(id(tensor), (name, kind))
            self._by_memory.setdefault(self._memory(tensor), (name, kind))

    @staticmethod
    def _memory(t: Tensor) -> tuple[Any, ...]:
        return t.data_ptr(), t.dtype, tuple(t.shape), t.stride(), str(t.device)

    def find(self, value: Any, otherwise: str) -> tuple[str, str]:
        if not isinstance(value, Tensor):
            return otherwise, "symbol"
        known = self._by_id.get(id(value))
        if known is None and value.numel():
            known = self._by_memory.get(self._memory(value))
        return known or (otherwise, "input")


@contextlib.contextmanager
def no_caches(extra: Mapping[str, Any] | None = None) -> Iterator[None]:
    settings = {"fx_graph_cache": False, "fx_graph_remote_cache": False, **(extra or {})}
    with torch._inductor.config.patch(settings), torch._functorch.config.patch(enable_autograd_cache=False):
        yield


def fresh_compiler(context: Context) -> None:
    """Forget everything compiled so far, kept arms included."""
    for arm in context.state.pop("arms", {}).values():
        arm.close()
    torch._dynamo.reset()


def reason_of(error: BaseException) -> str:
    """The compiler's own words, without the advice that follows them; of a compile process's traceback, its end."""
    inner: BaseException = error
    while (deeper := getattr(inner, "inner_exception", None) or inner.__cause__) is not None and deeper is not inner:
        inner = deeper
    lines = [line for line in f"{type(inner).__name__}: {inner}".splitlines() if line.strip()]
    if any(line.startswith("Traceback (most recent") for line in lines):
        return "\n".join([lines[-1], *lines[-REASON_LINES:-1]])
    return "\n".join(lines[:REASON_LINES])


def disk_full(error: subprocess.CalledProcessError) -> bool:
    """Whether a compiler failed for want of room. It says so where Inductor keeps its words; what it had written is
    gone by then."""
    words = f"{error.stdout}{error.stderr}"
    return os.strerror(errno.ENOSPC) in words or shutil.disk_usage(cache_dir()).free < COMPILER_BYTES


@contextlib.contextmanager
def compiler_faults(what: str) -> Iterator[None]:
    """Turn what the compiler raises into WorkerFault: out_of_memory, bad_request (options) or unsupported."""
    try:
        yield
    except WorkerFault:
        raise
    except Exception as e:
        text = reason_of(e)
        chain: list[BaseException] = [e]
        while (inner := getattr(chain[-1], "inner_exception", None) or chain[-1].__cause__) and inner not in chain:
            chain.append(inner)
        for link in chain:
            if isinstance(link, WorkerFault):
                raise link from e
            if isinstance(link, torch.OutOfMemoryError):
                raise WorkerFault("out_of_memory", f"{what}: out of device memory", text) from e
            if isinstance(link, subprocess.CalledProcessError) and disk_full(link):
                full = f"[Errno {errno.ENOSPC}] {os.strerror(errno.ENOSPC)}"
                raise WorkerFault("unsupported", f"{what}: {full}", text) from e
        raise WorkerFault("unsupported", f"{what}: {text.splitlines()[0]}", text) from e


def check_options(options: Mapping[str, Any]) -> None:
    """Raises WorkerFault (compile_failed) for an option that this torch does not have."""
    known = torch._inductor.config.get_config_copy()
    for name in options:
        if name.replace("-", "_") not in known:
            raise WorkerFault("compile_failed", f"torch {torch.__version__} has no Inductor option {name!r}")


class Capture:
    """A Dynamo backend that keeps every inner graph, and records its first call."""

    def __init__(self, context: Context, target: Target, lane: str, options: Mapping[str, Any], limit: int,
                 architecture: str) -> None:
        self.graphs: list[CapturedGraph] = []
        self.kept: list[CapturedGraph] = []
        self._context, self._lane, self._options, self._limit = context, lane, dict(options), limit
        self._architecture = architecture
        self._sources: list[str] = []
        self._names: _Names | None = None

    def run(self, target: Target) -> None:
        """Compile and call the model once on copies of its inputs."""
        args, kwargs = target.copies()
        self._names = _Names(target, args, kwargs)
        buffers = State(target.model)
        seed_everything(target.seed)
        try:
            with torch.no_grad():
                torch.compile(target.model, backend=self)(*args, **kwargs)
        finally:
            buffers.restore()

    def __call__(self, gm: fx.GraphModule, example_inputs: list[Any]) -> Any:
        self._sources = [_source(n) for n in gm.graph.nodes if n.op == "placeholder"]
        return compile_fx(gm, example_inputs, inner_compile=self._inner, config_patches=self._options)

    def _inner(self, gm: fx.GraphModule, example_inputs: Sequence[Any], **settings: Any) -> Any:
        module = copy.deepcopy(gm)
        names = [n.name for n in gm.graph.nodes if n.op == "placeholder"]
        if self._lane == "pretend":
            source = pretend.generate(gm, example_inputs, self._architecture, **settings)
            run = pretend.interpreter(gm)
            details: dict[str, Any] = {"constants": {}, "mutated": _written(module), "to_align": ()}
        else:
            run = compile_fx_inner(gm, example_inputs, **settings)
            source = getattr(run, "source_code", "")
            details = {
                "constants": dict(getattr(run, "constants", None) or {}),
                "mutated": tuple(getattr(run, "mutated_input_idxs", ())),
                "to_align": tuple(getattr(run, "inputs_to_check", ())),
            }
        if not source:
            return run
        graph = CapturedGraph(
            index=len(self.graphs), source=source, is_inference=bool(settings.get("is_inference")),
            is_backward=bool(settings.get("is_backward")), names=names, compiled=run, module=module, **details,
        )
        self.graphs.append(graph)
        sources = list(self._sources) if len(self._sources) == len(names) else list(names)

        def boxed(args: list[Any]) -> Any:
            if not graph.inputs:
                self._first_call(graph, args, sources)
            return run(args)

        boxed._boxed_call = True  # type: ignore[attr-defined]
        return boxed

    def _first_call(self, graph: CapturedGraph, args: list[Any], sources: list[str]) -> None:
        assert self._names is not None
        graph.qualified = [self._names.find(a, s) for a, s in zip(args, sources, strict=True)]
        memo: dict[tuple[str, int], torch.UntypedStorage] = {}
        # parameters stay by reference: only what may change or vanish is copied, or was changed by a graph before
        changed = {g.qualified[i] for g in self.kept for i in g.mutated}
        graph.inputs = [
            clone(a, memo) if isinstance(a, Tensor) and (known[1] == "input" or i in graph.mutated or known in changed)
            else a for i, (a, known) in enumerate(zip(args, graph.qualified, strict=True))
        ]
        if self._lane == "pretend":
            with Recording(self._context) as recording:
                outputs = graph.compiled(graph.copies())
            graph.foreign = recording.calls
        elif "def call(" in graph.source:
            outputs, hook = run_hooked(graph.source, graph.constants, graph.copies(),
                                       lambda text: Recorder(self._context, text, self._limit))
            assert isinstance(hook, Recorder)
            graph.calls = hook.calls
        else:
            outputs = graph.compiled(graph.copies())
        graph.outputs = [meta(o) if isinstance(o, Tensor) else None for o in outputs]
        self.kept.append(graph)


def _source(node: fx.Node) -> str:
    argument = node.meta.get("grapharg")
    name = getattr(getattr(argument, "source", None), "name", None)
    return str(name() if callable(name) else name or node.name)


def _written(gm: fx.GraphModule) -> tuple[int, ...]:
    """Inputs that the graph copies back into (`copy_` of a placeholder is the only mutation AOTAutograd leaves)."""
    places = [n for n in gm.graph.nodes if n.op == "placeholder"]
    found = {n.args[0] for n in gm.graph.nodes if n.op == "call_function" and n.target is torch.ops.aten.copy_.default}
    return tuple(i for i, n in enumerate(places) if n in found)


def capture_graphs(
    context: Context, target: Target, lane: str, options: Mapping[str, Any], limit: int = 0,
    architecture: str = "sm_90",
) -> tuple[list[CapturedGraph], list[str], int]:
    """(graphs, reasons of graph breaks, breaks). Raises WorkerFault: no_graphs, unsupported, out_of_memory."""
    check_options(options)
    fresh_compiler(context)
    counters.clear()
    taken = Capture(context, target, lane, options, limit, architecture)
    extra = pretend.CONFIG if lane == "pretend" else {"compile_threads": 1} if lane == "cpu" else {}
    with compiler_faults("the compiler cannot handle this model"), no_caches(extra):
        taken.run(target)
    reasons = [str(reason) for reason in counters["graph_break"]]
    breaks = sum(counters["graph_break"].values())
    graphs = taken.kept
    for i, graph in enumerate(graphs):
        graph.index = i
    if not graphs:
        raise WorkerFault("no_graphs", "torch.compile captured no graph of this model", "\n".join(reasons))
    return graphs, reasons, breaks


def options_key(lane: str, options: Mapping[str, Any]) -> str:
    return json.dumps([lane, sorted(options.items())])


def captured(context: Context, target: Target, options: Mapping[str, Any]) -> list[CapturedGraph]:
    """The graphs on the target's own device under `options`, captured again if that was not done yet."""
    lane = "cuda" if target.device.type == "cuda" else "cpu"
    known: dict[str, list[CapturedGraph]] = context.state.setdefault("captures", {})
    key = options_key(lane, options)
    if key not in known:
        default = options_key(lane, {})
        # one candidate at a time: each keeps its inputs and compiled code
        for other in [k for k in known if default not in (k, key)]:
            del known[other]
        known[key] = capture_graphs(context, target, lane, options)[0]
    return known[key]


def capture(context: Context, params: dict[str, Any]) -> dict[str, Any]:
    """See docs/architecture.md; `architecture` (default sm_90) names the pretended GPU."""
    target, lane, options = current(context), params["lane"], dict(params.get("options") or {})
    architecture = params.get("architecture", "sm_90")
    if lane not in LANES or (lane == "cuda") != (target.device.type == "cuda"):
        raise WorkerFault("bad_request", f"lane {lane!r} does not fit a model on {target.device}")
    if lane == "pretend" and architecture not in pretend.ARCHITECTURES:
        known = ", ".join(pretend.ARCHITECTURES)
        raise WorkerFault("bad_request", f"no pretended GPU {architecture!r}; known: {known}")
    graphs, reasons, breaks = capture_graphs(
        context, target, lane, options, int(params.get("save_limit_bytes", 0)), architecture)
    context.state.setdefault("captures", {})[options_key(lane, options)] = graphs
    return {
        "graphs": [g.to_json(context, with_inputs=lane == "pretend") for g in graphs],
        "graph_breaks": breaks,
        "break_reasons": reasons,
    }
