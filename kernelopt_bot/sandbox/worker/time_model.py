"""`time_model`: raw samples of pairs of arms, interleaved A B B A; `first_call`: the time to the first output.

| metric | a sample is |
|---|---|
| `latency` | wall time of one call, the device waited for before and after (of several where one is too short) |
| `throughput` | wall time of a batch of calls without waiting between them, over their number |

`cold` overwrites the GPU's L2 cache before each sample (not between the calls of a batch), `warm` does not; on a CPU
both are the same. Each arm's calls rotate over copies of the inputs.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import math
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.utils import counters
from torch._inductor.async_compile import AsyncCompile

from kernelopt_bot.sandbox.worker.arms import Arm, BuiltArm, build
from kernelopt_bot.sandbox.worker.device import Device
from kernelopt_bot.sandbox.worker.load import Target, copy_inputs, current
from kernelopt_bot.sandbox.worker.main import Context
from kernelopt_bot.sandbox.worker.precision import same_bits
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from kernelopt_bot.sandbox.worker.seeds import derive, seed_everything
from kernelopt_bot.sandbox.worker.tensors import half_digits, relative_error, tensor_leaves

COPIES = 4
"""Sets of inputs that the calls rotate over, where they fit."""
COPIES_SHARE = 0.25
"""Share of the free device memory that these may take."""
SHORT_CALL_S, SHORT_SAMPLE_S = 50e-6, 400e-6
"""A call shorter than the first is repeated until a sample takes about the second: a timer tick and an interrupt
must stay small against it."""
BATCH_S, BATCH_LEAST, BATCH_MOST = 5e-3, 4, 200
LEAST_BLOCKS, MOST_BLOCKS = 10, 400
RUN = 5
"""Blocks of one pair in a row, after an untimed sample of each arm: with several pairs in turn, an arm that all of them
have in common would be called more often and find the host's caches warmer (6 arms of identical code: up to 8%)."""
WARM_UP_S = 0.1
WARM_UP_LEAST = 3
"""An arm that an earlier round has warmed up needs no more than these."""
TIMERS = {True: "perf_counter between device synchronisations", False: "perf_counter"}
"""How times are taken, on a GPU and on a CPU: named in the evidence, never mixed in one measurement."""
POOL_WAIT_S = 20.0
STATE_AGE_S = 5.0
"""A device state this young is not read again: nvidia-smi takes some 0.1 s."""


def _copies(target: Target, device: Device) -> int:
    free = device.free()
    size = sum(t.untyped_storage().nbytes() for _, t in tensor_leaves((target.args, target.kwargs)))
    return COPIES if free is None or not size else max(1, min(COPIES, int(COPIES_SHARE * free / size)))


class Stopwatch:
    """Times calls of arms; garbage collection is the caller's to switch off."""

    def __init__(self, target: Target, device: Device, metric: str, cold: bool) -> None:
        self._target, self._device, self._metric, self._cold = target, device, metric, cold
        self._copies = _copies(target, device)
        self._inputs = [target.copies() for _ in range(self._copies)]
        self._next = 0
        self._mutates = False

    def warm_up(self, arm: BuiltArm) -> float:
        """Seconds of one call, after warming up. Also notes whether calls change their inputs."""
        args, kwargs = self._target.copies()
        arm.call(*args, **kwargs)
        pristine = tensor_leaves((self._target.args, self._target.kwargs))
        self._mutates |= any(not same_bits(a, b) for (_, a), (_, b) in
                             zip(tensor_leaves((args, kwargs)), pristine, strict=True))
        times: list[float] = []
        start = time.perf_counter()
        while len(times) < WARM_UP_LEAST or (not arm.warm and time.perf_counter() - start < WARM_UP_S):
            times.append(self.sample(arm, 1))
        arm.warm = True
        return sorted(times)[len(times) // 2]

    def calls_per_sample(self, seconds: float) -> int:
        if self._metric == "throughput":
            return min(BATCH_MOST, max(BATCH_LEAST, math.ceil(BATCH_S / seconds)))
        if not self._device.gpu and seconds < SHORT_CALL_S:
            return math.ceil(SHORT_SAMPLE_S / seconds)
        return 1

    def sample(self, arm: BuiltArm, calls: int) -> float:
        """Seconds a call."""
        if self._mutates:
            self._inputs = [self._target.copies() for _ in range(self._copies)]
        chosen = [self._inputs[(self._next + i) % self._copies] for i in range(calls)]
        self._next += calls
        call = arm.call
        if self._cold:
            self._device.flush()
        self._device.wait()
        start = time.perf_counter()
        for args, kwargs in chosen:
            call(*args, **kwargs)
        self._device.wait()
        return (time.perf_counter() - start) / calls


def _blocks(context: Context, watch: Stopwatch, pairs: Sequence[tuple[BuiltArm, BuiltArm]], budget_s: float,
            ) -> list[dict[str, Any]]:
    """Runs of ABBA blocks, the pairs in turn, until the budget is spent: slow drift then hits all pairs alike."""
    graphs = counters["stats"]["unique_graphs"]
    single = {id(arm): watch.warm_up(arm) for pair in pairs for arm in pair}
    calls = [watch.calls_per_sample(min(single[id(a)], single[id(b)])) for a, b in pairs]
    samples: list[dict[str, Any]] = [
        {"pair": [a.arm.name, b.arm.name], "a_s": [], "b_s": [], "calls_per_sample": n}
        for (a, b), n in zip(pairs, calls, strict=True)]
    begin = time.perf_counter()
    for block in range(0, MOST_BLOCKS, RUN) if pairs else ():
        spent = time.perf_counter() - begin
        # The next run takes what the ones before took on average: it has to fit.
        if block >= LEAST_BLOCKS and spent * (1 + RUN / block) > budget_s:
            break
        context.progress("timing", block, MOST_BLOCKS)
        gc.collect()
        for (a, b), n, found in zip(pairs, calls, samples, strict=True):
            watch.sample(a, n)
            watch.sample(b, n)
            for _ in range(RUN):
                first, second = watch.sample(a, n), watch.sample(b, n)
                third, fourth = watch.sample(b, n), watch.sample(a, n)
                found["a_s"] += [first, fourth]
                found["b_s"] += [second, third]
    if counters["stats"]["unique_graphs"] != graphs:
        raise WorkerFault("unsupported", "something was compiled during the timing: the model's guards do not hold")
    return samples


Inputs = tuple[tuple[Any, ...], dict[str, Any]]


def check_outputs(target: Target, arms: Sequence[BuiltArm], seed: int) -> dict[str, dict[str, Any]]:
    """Arm -> {passed, reason} on inputs that no arm has seen, against the first arm.

    It finds arms that do not compute (a remembered answer, a skipped part), so half the digits must agree; how
    exact they are is gate 3's question. And it finds artifacts and options whose outputs the next call overwrites,
    where the first arm's survive it.
    """
    inputs = target.inputs(seed)
    expected = _outputs(arms[0], inputs, seed)
    other = _outputs(arms[0], inputs, seed + 1)
    if any(relative_error(x, y) > half_digits(y) for x, y in zip(other, expected, strict=True)):
        return {arm.arm.name: {"passed": True, "reason": "not compared: the outputs are random"} for arm in arms}
    usual = _surviving(arms[0], inputs, target.inputs(seed + 1), seed)
    found: dict[str, dict[str, Any]] = {}
    for arm in arms:
        got = _outputs(arm, inputs, seed)
        errors = [relative_error(x, y) / half_digits(y) for x, y in zip(got, expected, strict=False)]
        reason = ""
        if len(got) != len(expected) or any(not e <= 1.0 for e in errors):
            reason = f"outputs differ from those of {arms[0].arm.name!r} after the timing"
        elif arm.arm.artifact or arm.arm.options:
            lost = [i for i, (kept, before) in enumerate(
                zip(_surviving(arm, inputs, target.inputs(seed + 1), seed), usual, strict=True)) if before and not kept]
            if lost:
                reason = f"output {lost[0]} of a call does not survive the next call"
        found[arm.arm.name] = {"passed": not reason, "reason": reason}
    return found


def _surviving(arm: BuiltArm, inputs: Inputs, others: Inputs, seed: int) -> list[bool]:
    """For each output of a call on `inputs`: whether a call on `others` leaves it as it was.

    The baseline may return what a later call changes (a buffer of the model); a candidate may only where it does.
    CUDA graphs without clones overwrite their outputs, or refuse to show them.
    """
    arm.buffers.restore()
    seed_everything(seed)
    with torch.no_grad():
        args, kwargs = copy_inputs(inputs)
        kept = [t for _, t in tensor_leaves(arm.call(*args, **kwargs))]
        before = [t.clone() for t in kept]
        more, named = copy_inputs(others)
        arm.call(*more, **named)
        return [_as_it_was(t, old) for t, old in zip(kept, before, strict=True)]


def _as_it_was(tensor: Tensor, before: Tensor) -> bool:
    try:
        return same_bits(tensor, before)
    except RuntimeError as e:
        if "overwritten" in str(e):
            return False
        raise


def _reject(checked: Mapping[str, Mapping[str, Any]], built: Mapping[str, BuiltArm]) -> None:
    """Raises WorkerFault (runtime_failed) for arms that did not compute what they were timed for."""
    wrong = [name for name, found in checked.items() if not found["passed"]]
    if wrong:
        candidates = [n for n in wrong if built[n].arm.artifact or built[n].arm.options]
        kind = "runtime_failed" if candidates else "unsupported"
        raise WorkerFault(kind, "; ".join(f"{n}: {checked[n]['reason']}" for n in candidates or wrong))


def _outputs(arm: BuiltArm, inputs: Inputs, seed: int) -> list[Tensor]:
    args, kwargs = copy_inputs(inputs)
    arm.buffers.restore()
    seed_everything(seed)
    with torch.no_grad():
        return [t.clone() for _, t in tensor_leaves(arm.call(*args, **kwargs))]


def _build_all(context: Context, target: Target, arms: Sequence[Arm], shared: bool,
               ) -> tuple[dict[str, BuiltArm], dict[str, str]]:
    """(built, arm -> why it could not be built). Each arm has an empty cache folder of its own; with `shared` they have
    one in common.

    Arms of the call before that are asked for again are kept; the others are let go.
    """
    state: dict[str, BuiltArm] = context.state.setdefault("arms", {})
    wanted = {_key(arm): arm for arm in arms}
    for key in [k for k in state if k not in wanted]:
        del state[key]
    built: dict[str, BuiltArm] = {}
    failed: dict[str, str] = {}
    common = _empty_folder(context) if shared else ""
    for i, arm in enumerate(arms):
        context.progress(f"compiling {arm.name}", i, len(arms))
        try:
            if _key(arm) not in state:
                state[_key(arm)] = build(context, target, arm, common or _empty_folder(context))
            built[arm.name] = state[_key(arm)]
        except WorkerFault as e:
            if e.kind == "bad_request":
                raise
            failed[arm.name] = f"{e.kind}: {e.message}"
    return built, failed


def kept_arm(context: Context, target: Target, arm: Arm) -> BuiltArm:
    """The arm as the last `time_model` left it, else built anew and not kept. Raises WorkerFault."""
    state: dict[str, BuiltArm] = context.state.get("arms", {})
    return state.get(_key(arm)) or build(context, target, arm, _empty_folder(context))


def settle() -> None:
    """Wait until Inductor's compile processes, which start behind the first compilation, have started: some seconds of
    work on every core, while calls are timed that are bound by the host."""
    if AsyncCompile.process_pool.cache_info().currsize:
        with contextlib.suppress(Exception):
            AsyncCompile.wait_pool_ready(POOL_WAIT_S)


def _state(context: Context, device: Device, age_s: float) -> dict[str, Any]:
    """The device's state, at most `age_s` old."""
    known: dict[str, Any] | None = context.state.get("device_state")
    if known is None or time.time() - known["time"] >= age_s:
        known = context.state["device_state"] = device.state()
    return known


def _empty_folder(context: Context) -> str:
    return tempfile.mkdtemp(prefix="cache-", dir=context.scratch)


def _key(arm: Arm) -> str:
    """Changes with all that makes an arm, the artifact's files included."""
    digest = hashlib.sha256(repr((arm.name, arm.kind, arm.mode, sorted(arm.options.items()))).encode())
    for path in sorted(Path(arm.artifact).rglob("*")) if arm.artifact else ():
        if path.is_file() and path.suffix != ".pyc":
            digest.update(f"{path}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def time_model(context: Context, params: dict[str, Any]) -> dict[str, Any]:
    """See docs/architecture.md. Adds `failed` (arm -> reason; its pairs are left out), `checked` (arm ->
    {passed, reason}; one that did not compute is the error runtime_failed), `replaced` (arm -> {expected, found}),
    `timer` (how times were taken), and `calls_per_sample` to each pair's samples. Without pairs nothing is timed.

    `budget_s` bounds the sampling, not the compilation; arms stay compiled for the next call of this method.
    `caches: "shared"` gives the arms one cache folder: quicker, for a first look only.
    Raises WorkerFault (bad_request, runtime_failed, unsupported, out_of_memory).
    """
    target, device = current(context), Device(current(context).device)
    metric, cache = params["metric"], params["cache"]
    arms = [Arm.from_json(a) for a in params["arms"]]
    names = [a.name for a in arms]
    if metric not in ("latency", "throughput") or cache not in ("cold", "warm") or len(set(names)) != len(names):
        raise WorkerFault("bad_request", f"metric {metric!r}, cache {cache!r}, arms {names}")
    if any(n not in names for pair in params["pairs"] for n in pair):
        raise WorkerFault("bad_request", "a pair names an arm that is not there")
    if device.crowded():
        context.state.pop("captures", None)
    built, failed = _build_all(context, target, arms, params.get("caches") == "shared")
    pairs = [(built[a], built[b]) for a, b in params["pairs"] if a in built and b in built]
    if pairs:
        settle()
    watch = Stopwatch(target, device, metric, cold=cache == "cold")
    before = _state(context, device, STATE_AGE_S) if pairs else None
    gc.collect()
    # What lives now is not looked at again: a collection of all that torch and its compiler hold takes 0.2 s, longer
    # than many blocks of samples.
    gc.freeze()
    gc.disable()
    try:
        with torch.no_grad():
            samples = _blocks(context, watch, pairs, float(params["budget_s"]))
    finally:
        gc.enable()
        gc.unfreeze()
    after = _state(context, device, 0.0) if pairs else None
    checked: dict[str, dict[str, Any]] = {}
    if params.get("check") and built:
        checked = check_outputs(target, list(built.values()), derive(str(params["secret"]), "timing/check", 0))
        _reject(checked, built)
    return {
        "samples": samples,
        "compile_s": {n: b.compile_s for n, b in built.items() if b.arm.kind != "eager"},
        "peak_bytes": {n: b.peak_bytes for n, b in built.items() if b.peak_bytes is not None},
        "timer": TIMERS[device.gpu], "state_before": before, "state_after": after, "failed": failed, "checked": checked,
        "replaced": {n: b.replaced for n, b in built.items() if b.arm.kind == "artifact"},
    }


def first_call(context: Context, params: dict[str, Any]) -> dict[str, Any]:
    """Seconds from the start of the arm (`optimize` or `torch.compile`) to its first output. For a fresh process;
    `cache` is a folder (relative to the scratch folder unless absolute), empty for a cold start."""
    target, arm = current(context), Arm.from_json(params["arm"])
    folder = os.path.join(context.scratch, params["cache"])
    built = build(context, target, arm, folder)
    seconds = built.compile_s
    built.close()
    return {"seconds": seconds}
