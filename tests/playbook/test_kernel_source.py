from __future__ import annotations

import ast

import pytest

from kernelopt_bot.playbook.kernel_source import NotUnderstood, parse
from tests.playbook.sites import all_calls, calls


def test_a_looped_reduction() -> None:
    source = parse(calls("l2norm_3x2047")[0]["source"])
    assert (source.heuristic, source.grid_type, source.dimensions) == ("reduction", "Grid1D", ("x", "r0_"))
    assert source.constants == {"xnumel": 3, "r0_numel": 2047}
    assert source.tunable == ("XBLOCK", "R0_BLOCK") and not source.fixed
    assert len(source.loops) == 2
    assert [(a.kind, a.loop) for a in source.accesses] == [("load", 0), ("load", 1), ("store", 1)]
    assert {a.eviction for a in source.loads} == {"evict_last", "evict_first"}
    assert source.divisible == {"in_ptr0", "out_ptr1"} and source.reduction_hint == "INNER"
    assert source.masked("x") and source.masked("r0_")


def test_a_persistent_reduction_fixes_its_block() -> None:
    source = parse(calls("layernorm_9x200")[0]["source"])
    assert source.fixed == {"R0_BLOCK": 256} and source.tunable == ("XBLOCK",) and not source.loops
    assert source.stores[0].pointer == "out_ptr2" and ast.unparse(source.stores[0].index) == "r0_1 + 200 * x0"


def test_a_tiled_pointwise_kernel() -> None:
    source = parse(calls("transpose_2x33x17")[0]["source"])
    assert source.grid_type == "Grid2D" and set(source.dimensions) == {"x", "y"}
    assert source.numel("y") is not None and source.numel("z") is None


def test_a_dimension_that_every_block_divides_has_no_mask() -> None:
    text = calls("rmsnorm_2x4096")[0]["source"]
    assert parse(text).masked("r0_")
    assert not parse(text.replace("r0_index < r0_numel", "tl.full([R0_BLOCK], True, tl.int1)[None, :]")).masked("r0_")


def test_combine_functions_are_kept() -> None:
    source = parse(calls("cumsum_3x300")[0]["source"])
    assert [h.name for h in source.helpers] == ["_triton_helper_fn_add0"]
    assert source.calls("tl.associative_scan") and not source.calls("tl.sort")


@pytest.mark.parametrize("torch", ["torch2.11", "torch2.13"])
def test_every_captured_kernel_is_understood(torch: str) -> None:
    for call in all_calls(torch).values():
        source = parse(call["source"])
        assert len(source.parameters) == len(call["arguments"])
        assert source.stores and source.loads


@pytest.mark.parametrize(("text", "why"), [
    ("def f(:", "not Python"),
    ("import triton", "0 decorated kernels"),
    ("@triton_heuristics.template(num_stages=1)\n@triton.jit\ndef f(a): pass", "heuristic template"),
    ("@triton_heuristics.pointwise(size_hints={'x': 4})\n@triton.jit\ndef f(a): pass", "no signature"),
])
def test_says_why_something_is_not_understood(text: str, why: str) -> None:
    with pytest.raises(NotUnderstood, match=why):
        parse(text)
