"""`check_model`: gate 3. The candidate against the default torch.compile, with eager in float64 as the judge.

Every draw has its own inputs; every initialisation its own weights, copied into the parameters that all arms share.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._inductor.compile_fx import compile_fx

from kernelopt_bot.sandbox.worker.arms import Arm, BuiltArm, build, twin
from kernelopt_bot.sandbox.worker.capture import fresh_compiler, no_caches
from kernelopt_bot.sandbox.worker.check_options import rule
from kernelopt_bot.sandbox.worker.load import Target, copy_inputs, current, user_code
from kernelopt_bot.sandbox.worker.main import Context
from kernelopt_bot.sandbox.worker.precision import compare, same_bits
from kernelopt_bot.sandbox.worker.promote_graph import LOW, CannotPromote, promote, run_float64
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from kernelopt_bot.sandbox.worker.seeds import derive, seed_everything
from kernelopt_bot.sandbox.worker.state import State, held
from kernelopt_bot.sandbox.worker.tensors import (
    half_digits,
    leaves,
    map_tensors,
    relative_error,
    storage_key,
    tensor_leaves,
)

Inputs = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Observation:
    """What one call did: outputs, changed state (`state.held`) and inputs by name, layout, and who shares memory."""

    tensors: dict[str, Tensor]
    layout: list[tuple[Any, ...]]
    shared: frozenset[tuple[str, str]]


def _layout(out: Any) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = [("container", type(out).__name__)]
    for name, leaf in leaves(out):
        if isinstance(leaf, Tensor):
            # the stride of a dimension of one element addresses nothing
            stride = tuple(st if size > 1 else 0 for size, st in zip(leaf.shape, leaf.stride(), strict=True))
            found.append((name, str(leaf.dtype), tuple(leaf.shape), stride, str(leaf.device)))
        else:
            found.append((name, repr(leaf)))
    return found


def _shared(outputs: list[tuple[str, Tensor]], others: list[tuple[str, Tensor]]) -> frozenset[tuple[str, str]]:
    """Pairs (output, output or input or parameter) over one storage."""
    owners: dict[tuple[str, int], list[str]] = {}
    for name, tensor in others:
        if tensor.numel():
            owners.setdefault(storage_key(tensor), []).append(name)
    pairs: set[tuple[str, str]] = set()
    for name, tensor in outputs:
        if tensor.numel():
            known = owners.setdefault(storage_key(tensor), [])
            pairs.update((name, other) for other in known)
            known.append(name)
    return frozenset(pairs)


def observe(target: Target, call: Callable[..., Any], model: nn.Module, inputs: Inputs, seed: int) -> Observation:
    """One call on copies of `inputs` under `seed`; buffers are put back. Tensors are copies."""
    args, kwargs = copy_inputs(inputs)
    buffers = State(model)
    before = {h.name: h.tensor.clone() for h in held(model)}
    seed_everything(seed)
    try:
        with torch.no_grad(), user_code(target.root, "runtime_failed", "an arm failed"):
            out = call(*args, **kwargs)
        outputs = tensor_leaves(out, "output")
        given = [(n, v) for n, v in target.named_inputs(args, kwargs) if isinstance(v, Tensor)]
        pristine = dict(target.named_inputs(*inputs))
        state = [(h.name, h.tensor) for h in held(model)]
        own = [*given, *model.named_parameters(), *state]
        changed = [(f"buffer {n}", b) for n, b in state if n in before and not same_bits(b, before[n])]
        changed += [(f"input {n}", t) for n, t in given if not same_bits(t, pristine[n])]
        tensors = {n: t.detach().clone() for n, t in [*outputs, *changed]}
        return Observation(tensors, _layout(out), _shared(outputs, own))
    finally:
        buffers.restore()


def _promoted_model(target: Target, model: nn.Module, inputs: Inputs, seed: int) -> dict[str, Tensor]:
    """The eager model in float64. Raises what torch raises, or CannotPromote if it casts back down by itself."""
    args, kwargs = map_tensors(inputs, promote)
    seen = observe(target, wide := copy.deepcopy(model).double(), wide, (args, kwargs), seed)
    low = [n for n, t in seen.tensors.items() if t.dtype in (*LOW, torch.complex64)]
    if low:
        raise CannotPromote(f"the model itself casts {low[0]} down")
    return seen.tensors


def _promoted_graphs(target: Target, model: nn.Module, inputs: Inputs, seed: int) -> dict[str, Tensor]:
    """The model's graphs interpreted in float64, casts in the user's code included."""

    def inner(gm: fx.GraphModule, example_inputs: Any, **settings: Any) -> Callable[[list[Any]], list[Any]]:
        module = copy.deepcopy(gm)

        def boxed(args: list[Any]) -> list[Any]:
            outputs, after = run_float64(module, args)
            for given, now in zip(args, after, strict=True):
                if isinstance(given, Tensor) and not torch.equal(given, now.to(given.dtype)):
                    given.copy_(now)
            args.clear()
            return outputs

        boxed._boxed_call = True  # type: ignore[attr-defined]
        return boxed

    def backend(gm: fx.GraphModule, example_inputs: list[Any]) -> Any:
        return compile_fx(gm, example_inputs, inner_compile=inner)  # type: ignore[arg-type]

    own = twin(model)
    with no_caches():
        return observe(target, torch.compile(own, backend=backend), own, inputs, seed).tensors


def float64_outputs(target: Target, model: nn.Module, inputs: Inputs, seed: int) -> tuple[dict[str, Tensor], str]:
    """(float64 tensors by name, "used"), or ({}, why there are none)."""
    reasons: list[str] = []
    for way in (_promoted_model, _promoted_graphs):
        try:
            return way(target, model, inputs, seed), "used"
        except (CannotPromote, WorkerFault, RuntimeError, TypeError, NotImplementedError) as e:
            text = e.message if isinstance(e, WorkerFault) else str(e)
            reasons.append(text.splitlines()[0][:200] if text else type(e).__name__)
        finally:
            if target.device.type == "cuda":
                torch.cuda.empty_cache()
    return {}, "; ".join(reasons)


def adopt(model: nn.Module, source: nn.Module) -> None:
    """Copy all parameters and buffers in place. Raises WorkerFault (unsupported) if they do not correspond."""
    for kind in ("named_parameters", "named_buffers"):
        into, new = dict(getattr(model, kind)()), dict(getattr(source, kind)())
        if {n: (t.shape, t.dtype) for n, t in into.items()} != {n: (t.shape, t.dtype) for n, t in new.items()}:
            raise WorkerFault("unsupported", "constructing the model again gives other parameters or buffers")
        with torch.no_grad():
            for name, tensor in into.items():
                tensor.copy_(new[name])


class _Gate:
    """The arms and what has been found so far."""

    def __init__(self, target: Target, default: BuiltArm, candidate: BuiltArm, precision: Mapping[str, float]) -> None:
        self.target, self.default, self.candidate, self.precision = target, default, candidate, precision
        self.aliasing_equal = self.metadata_equal = True
        self.differences: list[str] = []
        self.float64 = "used"

    def draw(self, inputs: Inputs, seed: int) -> tuple[list[dict[str, Any]], bool]:
        """(OutputResults, eager agrees with the candidate within the dtype's tolerance)."""
        target, model = self.target, self.target.model
        eager = observe(target, model, model, inputs, seed)
        expected = observe(target, self.default.call, self.default.model, inputs, seed)
        got = observe(target, self.candidate.call, self.candidate.model, inputs, seed)
        self._structure(expected, got)
        exact: dict[str, Tensor] = {}
        if self._random(eager, inputs, seed):
            self.float64 = "not used: the outputs are random"
        else:
            exact, used = float64_outputs(target, model, inputs, seed)
            if not exact:
                self.float64 = used
        results = [self._result(n, b, got.tensors.get(n), exact.get(n)) for n, b in expected.tensors.items()]
        close = all(compare(n, got.tensors[n], e, None, m=1.0, k=0.0)["allclose"]
                    for n, e in eager.tensors.items() if n in got.tensors)
        return results, close

    def _random(self, eager: Observation, inputs: Inputs, seed: int) -> bool:
        """Whether another seed changes more than an order of summation does."""
        other = observe(self.target, self.target.model, self.target.model, inputs, seed + 1)
        return any(relative_error(t, other.tensors[n]) > half_digits(t)
                   for n, t in eager.tensors.items() if n in other.tensors)

    def _structure(self, expected: Observation, got: Observation) -> None:
        if expected.layout != got.layout:
            self.metadata_equal = False
            self.differences += [f"{b} became {c}" for b, c in zip(expected.layout, got.layout, strict=False) if b != c]
        if expected.shared != got.shared:
            self.aliasing_equal = False
            self.differences.append(f"shared memory: {sorted(expected.shared ^ got.shared)}")
        extra = set(got.tensors) - set(expected.tensors)
        if extra:
            self.metadata_equal = False
            self.differences.append(f"changes what the default leaves alone: {', '.join(sorted(extra))}")

    def _result(self, name: str, b: Tensor, c: Tensor | None, f: Tensor | None) -> dict[str, Any]:
        missing = c is None
        c = torch.empty(0, dtype=b.dtype, device=b.device) if c is None else c
        usable = f if f is not None and f.shape == b.shape else None
        result = compare(name, c, b, usable, **self.precision)
        if missing:
            result["reason"] = "the candidate does not produce or change it"
        elif usable is None and result["passed"] and not result["bit_equal"]:
            result["passed"] = False
            result["reason"] = f"differs from the default, and there is no float64 reference ({self.float64})"
        return result


def candidate_arm(params: Mapping[str, Any]) -> Arm:
    artifact = params.get("artifact")
    return Arm("candidate", "artifact" if artifact else "compile", None,
               {} if artifact else dict(params.get("options") or {}), artifact)


def check_model(context: Context, params: dict[str, Any]) -> dict[str, Any]:
    """See docs/architecture.md; adds `differences` (texts), and to each draw `eager_allclose`.

    `seeds` draws of inputs for each of `inits` initialisations; the first is the model as it was loaded.
    """
    target, secret = current(context), str(params["secret"])
    seeds, inits = int(params["seeds"]), int(params["inits"])
    fresh_compiler(context)
    default = build(context, target, Arm("default", "compile"))
    candidate = build(context, target, candidate_arm(params))
    gate = _Gate(target, default, candidate, rule(params["precision"]))
    own = [*target.model.parameters(), *target.model.buffers()] if inits > 1 else []
    original = [t.detach().cpu().clone() for t in own]
    draws: list[dict[str, Any]] = []
    try:
        for init in range(inits):
            if init:
                fresh = target.construct(derive(secret, "init", init))
                for model in (target.model, default.model, candidate.model):
                    adopt(model, fresh)
                del fresh
            for i in range(seeds):
                context.progress(f"initialisation {init}, draw {i}", init * seeds + i, inits * seeds)
                seed = derive(secret, f"model/{init}", i)
                results, close = gate.draw(target.inputs(seed), seed)
                draws.append({"seed": seed, "init": init, "outputs": results, "eager_allclose": close})
    finally:
        with torch.no_grad():
            for tensor, value in zip(own, original, strict=True):
                tensor.copy_(value)
    answer = {
        "draws": draws, "aliasing_equal": gate.aliasing_equal, "metadata_equal": gate.metadata_equal,
        "differences": sorted(set(gate.differences)), "replaced": candidate.replaced, "float64": gate.float64,
        "peak_bytes": {"default": default.peak_bytes, "candidate": candidate.peak_bytes},
    }
    for arm in (default, candidate):
        arm.close()
    return answer
