"""The repaired interpreter, against torch. Each case is a wrapper of ours with one kernel, run by `interpret_graph`."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernelopt_bot.sandbox.client import WorkerFailed
from tests.sandbox.worker.conftest import KernelWorker
from tests.sandbox.worker.sources import inductor_kernel

N = 64
TYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.int64: "*i64",
         torch.float64: "*fp64", torch.int32: "*i32"}


def run(worker: KernelWorker, lines: str, inputs: list[Tensor], out: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """`lines` compute and store from `in_ptr0`.. to `out_ptr0`; `r` is a row of N indices."""
    names = [f"in_ptr{i}" for i in range(len(inputs))]
    signature = {n: TYPES[t.dtype] for n, t in zip(names, inputs, strict=True)}
    signature |= {"out_ptr0": TYPES[out], "xnumel": "i32", "XBLOCK": "constexpr"}
    body = "    i = tl.arange(0, 64)[:, None]\n    r = tl.arange(0, 64)[None, :]\n" + "".join(
        f"    {line}\n" for line in lines.strip().splitlines())
    kernel = inductor_kernel(body, signature, {"x": 16})
    stride = tuple(torch.empty(shape, device="meta").stride())
    args = ", ".join(names)
    wrapper = f"""
import torch
from torch._inductor.async_compile import AsyncCompile
async_compile = AsyncCompile()
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu
empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cuda
baseline = async_compile.triton('baseline', {kernel!r}, device_str='cuda')
async_compile.wait(globals())

class Runner:
    def call(self, args):
        {args}, = args
        args.clear()
        with torch.cuda._DeviceGuard(0):
            torch.cuda.set_device(0)
            buf0 = empty_strided_cuda({shape!r}, {stride!r}, {out})
            baseline.run({args}, buf0, 1, stream=0)
        return (buf0, )

call = Runner().call
"""
    answer = worker.call("interpret_graph", {"source": wrapper, "inputs": [worker.save(t) for t in inputs]})
    return worker.load(answer["outputs"][0])


X = torch.randn(N, N, generator=torch.Generator().manual_seed(5))
LOAD = "v = tl.load(in_ptr0 + i * 64 + r)\n"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_arithmetic_rounds_after_each_operation(interpreter: KernelWorker, dtype: torch.dtype) -> None:
    x = X.to(dtype)
    got = run(interpreter, LOAD + "tl.store(out_ptr0 + i * 64 + r, v * v + v - v * 3.0)", [x], dtype, (N, N))
    assert torch.equal(got, x * x + x - x * torch.tensor(3.0, dtype=dtype))


def test_comparisons_and_choices_of_bfloat16(interpreter: KernelWorker) -> None:
    x = X.bfloat16()
    lines = LOAD + "tl.store(out_ptr0 + i * 64 + r, tl.where((v > 0.5) | (v != v), v, -v))"
    got = run(interpreter, lines, [x], torch.bfloat16, (N, N))
    assert torch.equal(got, torch.where(x > 0.5, x, -x))


def test_rounding_to_bfloat16_is_to_nearest_even(interpreter: KernelWorker) -> None:
    got = run(interpreter, LOAD + "tl.store(out_ptr0 + i * 64 + r, v.to(tl.bfloat16))", [X], torch.bfloat16, (N, N))
    assert torch.equal(got, X.bfloat16())
    ints = torch.arange(N * N).view(N, N)
    got = run(interpreter, LOAD + "tl.store(out_ptr0 + i * 64 + r, v.to(tl.bfloat16))", [ints], torch.bfloat16, (N, N))
    assert torch.equal(got, ints.bfloat16())
    got = run(interpreter, LOAD + "tl.store(out_ptr0 + i * 64 + r, v.to(tl.float8e4nv).to(tl.float32))", [X * 50],
              torch.float32, (N, N))
    assert torch.equal(got, (X * 50).to(torch.float8_e4m3fn).float())


@pytest.mark.parametrize(("call", "expected"), [
    ("triton_helpers.max2(v, 1)", X.amax(1)), ("triton_helpers.min2(v, 1)", X.amin(1)),
    ("triton_helpers.prod(v, 1)", X.double().prod(1).float()),
    ("triton_helpers.max2(v, 0)", X.amax(0)),
    ("triton_helpers.welford(v, v * 0, v * 0 + 1, 1)[1] / 64", X.var(1, correction=0)),
    ("tl.sum(v, 1)", X.sum(1)),
])
def test_reductions(interpreter: KernelWorker, call: str, expected: Tensor) -> None:
    got = run(interpreter, LOAD + f"s = {call}\ntl.store(out_ptr0 + tl.arange(0, 64), s)", [X], torch.float32, (N,))
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


def test_index_reductions_take_the_first_of_equals(interpreter: KernelWorker) -> None:
    x = (X * 2).round()
    lines = LOAD + """
j = tl.broadcast_to(r, [64, 64])
a, k = triton_helpers.max_with_index(v, j, 1)
tl.store(out_ptr0 + tl.arange(0, 64), k)
"""
    got = run(interpreter, lines.replace("\n\n", "\n"), [x], torch.int64, (N,))
    best = x.amax(1, keepdim=True)
    assert torch.equal(got, (x == best).int().argmax(1))


def test_scans_with_a_custom_combination(interpreter: KernelWorker) -> None:
    got = run(interpreter, LOAD + "tl.store(out_ptr0 + i * 64 + r, tl.associative_scan(v, 1, triton_helpers.maximum))",
              [X], torch.float32, (N, N))
    assert torch.equal(got, X.cummax(1).values)
    half = X.bfloat16()
    got = run(interpreter, LOAD + "tl.store(out_ptr0 + i * 64 + r, tl.associative_scan(v, 1, triton_helpers.maximum))",
              [half], torch.bfloat16, (N, N))
    assert torch.equal(got, half.cummax(1).values)


PRODUCT = """
a = tl.load(in_ptr0 + i * 64 + r)
b = tl.load(in_ptr1 + i * 64 + r)
tl.store(out_ptr0 + i * 64 + r, tl.dot(a, b, input_precision="{}"))
"""


@pytest.mark.parametrize(("precision", "low", "high"), [
    ("ieee", 1e-8, 2e-6), ("tf32x3", 1e-8, 2e-6), ("tf32", 5e-4, 5e-3)])
def test_products_have_the_precision_that_was_asked_for(
    interpreter: KernelWorker, precision: str, low: float, high: float
) -> None:
    y = X.flip(0).contiguous()
    got = run(interpreter, PRODUCT.format(precision), [X, y], torch.float32, (N, N))
    error = float((got.double() - X.double() @ y.double()).square().mean().sqrt())
    assert low < error < high


def test_products_of_bfloat16_are_exact_but_for_the_sum(interpreter: KernelWorker) -> None:
    a, b = X.bfloat16(), X.flip(0).contiguous().bfloat16()
    got = run(interpreter, PRODUCT.format("tf32"), [a, b], torch.float32, (N, N))
    torch.testing.assert_close(got, a.float() @ b.float(), rtol=1e-5, atol=1e-5)


def test_libdevice_is_called_by_its_own_names(interpreter: KernelWorker) -> None:
    lines = LOAD + "tl.store(out_ptr0 + i * 64 + r, libdevice.erf(v) + libdevice.pow(libdevice.abs(v), v))"
    got = run(interpreter, lines, [X], torch.float32, (N, N))
    torch.testing.assert_close(got, torch.erf(X) + X.abs().pow(X))
    wide = X.double()
    got = run(interpreter, LOAD + "tl.store(out_ptr0 + i * 64 + r, libdevice.tanh(v))", [wide], torch.float64, (N, N))
    assert torch.equal(got, wide.tanh())


@pytest.mark.parametrize(("line", "kind", "words"), [
    ("tl.device_assert(v < 0, 'too large')", "runtime_failed", "too large"),
    ("v = tl.load(in_ptr0 + i * 65 + r)", "runtime_failed", "a load touches"),
    ("v = tl.inline_asm_elementwise('', '=r,r', [v], tl.float32, True, 1)", "unsupported", "inline_asm"),
    ("v = libdevice.jn(tl.arange(0, 64)[None, :], v)", "unsupported", "__nv_jn"),
])
def test_what_goes_wrong_is_named(interpreter: KernelWorker, line: str, kind: str, words: str) -> None:
    with pytest.raises(WorkerFailed, match=words) as caught:
        run(interpreter, LOAD + line + "\ntl.store(out_ptr0 + i * 64 + r, v)", [X], torch.float32, (N, N))
    assert caught.value.kind == kind


def test_maximum_and_minimum_drop_nan_unless_told(interpreter: KernelWorker) -> None:
    x = X.clone()
    x[3, 5] = torch.nan
    for call in ("tl.maximum(v, 0.5)", "tl.minimum(v, 0.5)"):
        got = run(interpreter, LOAD + f"tl.store(out_ptr0 + i * 64 + r, {call})", [x], torch.float32, (N, N))
        assert float(got[3, 5]) == 0.5
    kept = run(interpreter, LOAD + "tl.store(out_ptr0 + i * 64 + r, tl.maximum(v, v, propagate_nan="
               "tl.PropagateNan.ALL))", [x], torch.float32, (N, N))
    assert torch.equal(kept.isnan(), x.isnan())


def test_three_tf32_products_keep_infinity(interpreter: KernelWorker) -> None:
    x = X.clone()
    x[3, 5] = torch.inf
    got = run(interpreter, LOAD + "tl.store(out_ptr0 + i * 64 + r, tl.dot(v, tl.zeros([64, 64], tl.float32) + 1.0, "
              "input_precision='tf32x3'))", [x], torch.float32, (N, N))
    assert bool((got[3] == torch.inf).all())
    assert torch.allclose(got[4], x[4].sum().expand(N), rtol=1e-5, atol=1e-5)
