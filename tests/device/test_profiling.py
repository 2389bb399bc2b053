import dataclasses
import math
from typing import Any

import pytest

from kernelopt_bot.compiler.program import Argument, Graph, GraphInput, Kernel, Program, Step, StepKind, TensorMeta
from kernelopt_bot.device import profiling
from kernelopt_bot.device.profile import Profile, Roofs, StepProfile

ROOFS = Roofs("gpu", "", 1e12, {"float32": 1e13}, 1000, 132, "measured", peak_bytes_per_s=2e12)


def meta(*shape: int, dtype: str = "float32", stride: tuple[int, ...] | None = None) -> TensorMeta:
    if stride is None:
        stride = tuple(math.prod(shape[i + 1:]) for i in range(len(shape)))
    return TensorMeta(dtype, shape, stride, 0, 0, "cuda:0")


def kernel(name: str, written: tuple[str, ...], source: str = "") -> Kernel:
    return Kernel(name, name, source, name, "pointwise", {}, written, {})


def step(index: int, kind: StepKind, name: str, *arguments: Argument, results: tuple[str, ...] = (),
         flops: int | None = None) -> Step:
    return Step(0, index, kind, name, "call", (10 + index, 10 + index), "", arguments, results, flops)


def argument(name: str, tensor: TensorMeta, buffer: str) -> Argument:
    return Argument(name, buffer, tensor=tensor, buffer=buffer)


BIG = meta(1000, 1000)
KERNELS = {
    "add": kernel("add", ("in_out_ptr0",)),
    "copy": kernel("copy", ("out_ptr0",)),
    "lookup": kernel("lookup", ("out_ptr0",), "tl.device_assert(ok, 'index out of bounds: 0 <= tmp < 9')"),
}
STEPS = (
    step(0, "allocation", "empty_strided_cuda"),
    step(1, "kernel", "copy", argument("in_ptr0", BIG, "x"), argument("out_ptr0", BIG, "buf0")),
    step(2, "kernel", "add", argument("in_out_ptr0", BIG, "buf0"), argument("in_ptr0", BIG, "y"),
         argument("in_ptr1", BIG, "y")),
    step(3, "vendor", "extern_kernels.mm", argument("0", BIG, "buf0"), argument("1", BIG, "w"),
         argument("out", BIG, "buf1"), flops=2 * 10**9),
    step(4, "kernel", "lookup", argument("in_ptr0", meta(10, dtype="int64"), "i"), argument("in_ptr1", BIG, "table"),
         argument("out_ptr0", meta(10, 10), "buf2")),
)
GRAPH = Graph(0, "", tuple(GraphInput(n, n, "input", BIG) for n in ("x", "y", "w", "table")), (BIG,), STEPS, KERNELS)
PROGRAM = Program("t", "cuda", (GRAPH,), "2.11", "3.6", "gpu")


def raw(**times: list[float]) -> dict[int, dict[str, Any]]:
    lines = {"copy": 11, "add": 12, "mm": 13, "lookup": 14}
    return {0: {"steps": [{"index": i, "line": lines[n], "times_us": t} for i, (n, t) in enumerate(times.items())],
                "call_us": [100.0, 300.0, 200.0]}}


def build(**times: list[float]) -> tuple[Profile, dict[str, StepProfile]]:
    found = profiling.build(PROGRAM, raw(**times), ROOFS)
    return found, {s.name: s for s in found.steps}


def test_bytes_and_floors() -> None:
    _, steps = build()
    assert steps["copy"].bytes == 8_000_000
    assert steps["add"].bytes == 12_000_000, "read and written in place, and y once though it is bound twice"
    assert steps["copy"].floor_us == pytest.approx(8.0)
    assert steps["extern_kernels.mm"].bytes == 12_000_000
    assert steps["extern_kernels.mm"].floor_us == pytest.approx(200.0), "the operations bound it"
    assert steps["lookup"].bytes == 80 + 400 + 400, "an indexed read counts at most what it yields"


def test_ranking_by_what_can_be_saved() -> None:
    found, steps = build(copy=[9.0, 30.0, 10.0], add=[50.0], mm=[210.0], lookup=[1.0])
    assert [s.name for s in found.steps] == ["add", "extern_kernels.mm", "copy", "lookup"]
    assert steps["copy"].time_us == 10.0
    assert steps["copy"].headroom == pytest.approx(10 / 8)
    assert steps["copy"].savings_us == pytest.approx(2.0)
    assert found.call_us == 200.0
    assert found.device_us == 271.0
    assert found.launch_gap == 0.0


def test_launch_gap() -> None:
    found, _ = build(copy=[10.0], add=[20.0], mm=[10.0], lookup=[10.0])
    assert found.launch_gap == pytest.approx(0.75)


def test_missing_times_are_not_guessed() -> None:
    found, steps = build(copy=[10.0])
    assert (found.device_us, found.launch_gap) == (None, None)
    assert steps["add"].time_us is None
    assert (steps["add"].headroom, steps["add"].savings_us) == (1.0, 0.0)
    nothing = profiling.build(PROGRAM, {}, ROOFS)
    assert (nothing.call_us, nothing.device_us) == (None, None)
    assert len(nothing.steps) == 4


def test_float32_convolutions_may_use_tf32() -> None:
    conv = dataclasses.replace(STEPS[3], name="extern_kernels.convolution")
    program = dataclasses.replace(PROGRAM, graphs=(dataclasses.replace(GRAPH, steps=(conv,)),))
    (only,) = profiling.build(program, {}, ROOFS).steps
    assert only.floor_us == pytest.approx(12.0)


def test_vendor_results_count_as_written() -> None:
    conv = step(5, "vendor", "extern_kernels.convolution", argument("0", BIG, "x"), results=("buf0",))
    program = dataclasses.replace(PROGRAM, graphs=(dataclasses.replace(GRAPH, steps=(*STEPS, conv)),))
    found = {s.name: s for s in profiling.build(program, {}, ROOFS).steps}
    assert found["extern_kernels.convolution"].bytes == 8_000_000


@pytest.mark.parametrize(("tensor", "size"), [
    (meta(4, 5), 80), (meta(4, 5, stride=(0, 1)), 20), (meta(), 4), (meta(0, 5), 0), (meta(3, dtype="bfloat16"), 6),
    (dataclasses.replace(meta(8, 8), storage_bytes=100), 100),
])
def test_unique_bytes(tensor: TensorMeta, size: int) -> None:
    assert profiling.unique_bytes(tensor) == size


def test_physical_floor() -> None:
    floor = profiling.physical_floor_s(PROGRAM, ROOFS)
    # x, y, w and the output; the table is only read in part.
    assert floor == pytest.approx((4 * 4_000_000 - 1000) / 2e12)
    assert profiling.physical_floor_s(PROGRAM, dataclasses.replace(ROOFS, peak_bytes_per_s=0.0)) is None
