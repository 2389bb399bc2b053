from __future__ import annotations

import ast
import dataclasses

import pytest

from kernelopt_bot.compiler._runtime import PlanError, find_runs, read_wrapper, render, substitute
from tests.compiler import candidates


def test_only_the_run_and_its_definition_change(inference: str) -> None:
    run = candidates.layer_norm_run(inference)
    done = substitute(inference, {run.hash: run})
    assert done.replaced == {run.hash: 1} and done.skipped == ()
    ast.parse(done.text)
    kept = [line for line in inference.split("\n") if line in set(done.text.split("\n"))]
    gone = read_wrapper(inference).kernels["triton_per_fused_native_layer_norm_0"]
    assert len(inference.split("\n")) - len(kept) <= gone.lines[1] - gone.lines[0] + 2
    assert "triton_per_fused_native_layer_norm_0 =" not in done.text
    calls = [c for c in find_runs(done.text) if c.kernel.startswith("kernelopt_")]
    assert len(calls) == 1
    assert ast.unparse(calls[0].statement.node) == (
        f"kernelopt_{run.hash[:12]}_0.run(arg2_1, arg0_1, arg1_1, buf3, 1024, stream=stream0)")


def test_the_launch_is_an_inductor_kernel_with_one_configuration(inference: str) -> None:
    run = candidates.layer_norm_run(inference)
    kernel = next(k for n, k in read_wrapper(substitute(inference, {run.hash: run}).text).kernels.items()
                  if n.startswith("kernelopt_"))
    assert (kernel.heuristic, kernel.function, kernel.device) == ("fixed_config", "layer_norm", "cuda")
    assert kernel.signature == {"x_ptr": "*fp32", "weight_ptr": "*fp32", "bias_ptr": "*fp32", "y_ptr": "*fp32",
                                "rows": "i32", "COLUMNS": "constexpr", "ROWS": "constexpr"}
    assert kernel.divisible == {"x_ptr", "weight_ptr", "bias_ptr", "y_ptr", "rows"}
    assert kernel.mutated == ("y_ptr",)
    assert kernel.multiprocessors == 132
    assert "'fixed_grid': [256, 1, 1]" in kernel.text
    assert "config={'COLUMNS': 256, 'ROWS': 4, 'num_warps': 4, 'num_stages': 1}" in kernel.text


def test_nothing_known_changes_nothing(inference: str) -> None:
    other = dataclasses.replace(candidates.layer_norm_run(inference), hash="0" * 24)
    assert substitute(inference, {other.hash: other}).text == inference
    assert substitute(inference, {}).text == inference
    assert substitute("not python (", {other.hash: other}).text == "not python ("


def test_a_changed_kernel_is_a_miss(inference: str) -> None:
    run = candidates.layer_norm_run(inference)
    changed = inference.replace("1e-05", "1e-06")
    assert substitute(changed, {run.hash: run}).text == changed


def test_every_equal_call_is_replaced_and_the_kernel_defined_once(backward: str) -> None:
    w = read_wrapper(backward)
    text = backward.replace("multi_processor_count=132", "multi_processor_count=100")
    run = dataclasses.replace(
        candidates.column_sum_run(backward), steps=1, hash=substitute_hash(w, 1), source=ONE, plan=ONE_PLAN)
    done = substitute(text, {run.hash: run})
    assert done.replaced == {run.hash: 3}
    assert done.text.count(f"kernelopt_{run.hash[:12]}_0 = async_compile") == 1
    assert "'fixed_grid': [100, 1, 1]" in done.text  # num_sms of the device in the text
    assert "triton_per_fused_sum_view_1 =" not in done.text


def test_a_run_of_two_with_scratch(backward: str) -> None:
    run = candidates.column_sum_run(backward)
    done = substitute(backward, {run.hash: run})
    assert done.replaced == {run.hash: 1}
    w = read_wrapper(done.text)
    mine = [c for c in w.calls if c.kernel.startswith("kernelopt_")]
    assert [c.kernel[-1] for c in mine] == ["0", "1"]
    start = next(i for i, s in enumerate(w.statements) if ast.unparse(s.node).startswith("kernelopt_0_partial ="))
    texts = [ast.unparse(s.node) for s in w.statements[start:start + 7]]
    assert texts[0] == "kernelopt_0_partial = empty_strided_cuda((4096,), (1,), torch.float32)"
    assert texts[1].endswith("run(tangents_1, kernelopt_0_partial, 1024, 256, stream=stream0)")
    assert texts[2].endswith("run(kernelopt_0_partial, buf3, 256, stream=stream0)")
    assert texts[3] == "del kernelopt_0_partial"
    assert "triton_red_fused_sum_view_0 =" not in done.text
    assert "triton_per_fused_sum_view_1 =" in done.text  # two more calls of it stay


def test_frees_inside_a_run_move_behind_it(backward: str) -> None:
    w = read_wrapper(backward)
    first = w.calls[0].statement
    lines = backward.split("\n")
    lines.insert(first.lines[1], "            del tangents_1")
    text = "\n".join(lines)
    run = candidates.column_sum_run(text)
    done = substitute(text, {run.hash: run})
    assert done.replaced == {run.hash: 1}
    assert done.text.index("del tangents_1") > done.text.index("_1.run(kernelopt_0_partial")


def test_longest_run_first(backward: str) -> None:
    two = candidates.column_sum_run(backward)
    one = dataclasses.replace(two, steps=1, hash=substitute_hash(read_wrapper(backward), 1), source=ONE, plan=ONE_PLAN)
    done = substitute(backward, {two.hash: two, one.hash: one})
    assert done.replaced == {two.hash: 1, one.hash: 2}
    ast.parse(done.text)


def test_partitions(partitioned: str) -> None:
    run = candidates.layer_norm_run(partitioned, columns=32)
    done = substitute(partitioned, {run.hash: run})
    assert done.replaced == {run.hash: 1}
    call = next(c for c in find_runs(done.text) if c.kernel.startswith("kernelopt_"))
    assert call.statement.scope.name == "partition_0" and call.keywords == ", stream=raw_stream0"


def test_another_capability_keeps_the_compilers_code(inference: str) -> None:
    run = candidates.layer_norm_run(inference)
    done = substitute(inference, {run.hash: run}, capability=100)
    assert done.text == inference and "capability 100" in done.skipped[0]
    assert substitute(inference, {run.hash: run}, capability=90).replaced


@pytest.mark.parametrize(("path", "value", "reason"), [
    (("parameters", 0, "type"), "*bf16", "in_ptr0"), (("parameters", 0, "name"), "in_ptr9", "in_ptr9"),
    (("launches", 0, "grid"), ["0"], "grid"), (("launches", 0, "grid"), ["1", "70000"], "grid"),
    (("launches", 0, "grid"), ["1", "1", "1", "1"], "grid"), (("launches", 0, "function"), "other", "other"),
    (("launches", 0, "arguments"), ["in_ptr0"], "more arguments"),
    (("launches", 0, "arguments"), ["in_ptr0"] * 6, "fewer arguments"),
    (("launches", 0, "constexprs"), {"COLUMNS": 256}, "ROWS"),
    (("launches", 0, "constexprs"), {"COLUMNS": 256, "ROWS": 4, "X": 1}, "X"),
    (("launches", 0, "num_ctas"), 2, "num_ctas"), (("launches", 0, "maxnreg"), 64, "maxnreg"),
    (("scratch",), [{"name": "s", "elements": "0", "dtype": "float32"}], "scratch"),
    (("scratch",), [{"name": "s", "elements": "1", "dtype": "complex64"}], "scratch")])
def test_a_plan_that_does_not_fit_leaves_the_compilers_code(inference: str, path: tuple[str | int, ...], value: object,
                                                            reason: str) -> None:
    run = candidates.layer_norm_run(inference)
    place = run.plan
    for key in path[:-1]:
        place = place[key]  # type: ignore[index]
    place[path[-1]] = value  # type: ignore[index]
    done = substitute(inference, {run.hash: run})
    assert done.text == inference and done.replaced == {}
    assert reason in done.skipped[0]


def test_divisibility_is_never_more_than_the_compiler_knows(inference: str) -> None:
    unaligned = inference.replace("'configs': [{(0,): [['tt.divisibility', 16]], ", "'configs': [{", 1)
    assert unaligned != inference
    run = candidates.layer_norm_run(unaligned)
    text = substitute(unaligned, {run.hash: run}).text
    kernel = next(k for n, k in read_wrapper(text).kernels.items() if n.startswith("kernelopt_"))
    assert "x_ptr" not in kernel.divisible and "weight_ptr" in kernel.divisible


def test_a_source_may_not_bind_the_runtimes_names(inference: str) -> None:
    run = candidates.layer_norm_run(inference)
    kernel = read_wrapper(inference).kernels["triton_per_fused_native_layer_norm_0"]
    with pytest.raises(PlanError, match="triton_heuristics"):
        render(run.source + "\ntriton_heuristics = 1\n", run.plan, kernel, {"xnumel": 1024, "r0_numel": 256})


ONE = '''\
import triton
import triton.language as tl


@triton.jit
def last_sum(x_ptr, y_ptr, columns, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    part = tl.arange(0, PARTS)[:, None]
    x = tl.load(x_ptr + part * columns + column, column < columns, other=0.0)
    tl.store(y_ptr + column, tl.sum(x, 0)[None, :], column < columns)
'''
ONE_PLAN = {
    "parameters": [{"name": "in_ptr0", "type": "*fp32"}, {"name": "out_ptr0", "type": "*fp32", "written": True}],
    "launches": [{"function": "last_sum", "grid": ["num_sms"], "arguments": ["in_ptr0", "out_ptr0", "xnumel"],
                  "constexprs": {"PARTS": 8, "BLOCK": 2}}]}


def substitute_hash(w: object, index: int) -> str:
    from kernelopt_bot.compiler._runtime import Wrapper, run_hash

    assert isinstance(w, Wrapper)
    return run_hash(w.calls[index:index + 1], w.kernels)


@pytest.mark.parametrize("line", [
    "DeviceProperties: tl.constexpr = 5", "DeviceProperties = 5", "(a, [DeviceProperties]) = 1, [2]",
    "DeviceProperties += 1", "if (DeviceProperties := 1):\n    pass", "for DeviceProperties in (1,):\n    pass",
    "import os as DeviceProperties", "from os import DeviceProperties", "class DeviceProperties:\n    pass",
    "try:\n    pass\nexcept ValueError as DeviceProperties:\n    pass"])
def test_no_binding_hides_a_name_that_the_decorator_needs(inference: str, line: str) -> None:
    w = read_wrapper(inference)
    kernel = w.kernels[w.calls[0].kernel]
    source = candidates.LAYER_NORM.replace("@triton.jit", line + "\n\n\n@triton.jit")
    with pytest.raises(PlanError, match="binds DeviceProperties"):
        render(source, candidates.layer_norm_plan(), kernel, w.calls[0].integers)


@pytest.mark.parametrize("decorator", ["@(\ntriton.jit)", "@(triton.jit)", "@triton.jit\n@triton.jit"])
def test_a_decorator_that_is_not_one_line_is_not_rendered(inference: str, decorator: str) -> None:
    w = read_wrapper(inference)
    kernel = w.kernels[w.calls[0].kernel]
    source = candidates.LAYER_NORM.replace("@triton.jit", decorator)
    with pytest.raises(PlanError, match=r"jit function|stand alone"):
        render(source, candidates.layer_norm_plan(), kernel, w.calls[0].integers)
