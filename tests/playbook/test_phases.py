from __future__ import annotations

import ast

import pytest

from kernelopt_bot.playbook.kernel_source import NotUnderstood, parse
from kernelopt_bot.playbook.phases import phases
from tests.playbook.sites import calls, site


def changed(name: str, *pairs: tuple[str, str]) -> str:
    """A captured kernel with texts replaced; each must occur."""
    text: str = calls(name)[0]["source"]
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(("name", "lanes"), [
    ("softmax_3x2051", [["_tmp2_max", "_tmp2_sum"], []]),
    ("layernorm_3x2050", [["tmp2_mean", "tmp2_m2", "tmp2_weight"], []]),
    ("logsumexp_3x4100", [["_tmp2"], ["_tmp13"]]),
    ("argmax_3x5001", [["_tmp2", "_tmp2_index"]]),
])
def test_accumulators_are_found_pass_by_pass(name: str, lanes: list[list[str]]) -> None:
    call = calls(name)[0]
    found = phases(parse(call["source"]), site(call))
    assert [[lane.name for lane in p.lanes] for p in found.phases] == lanes
    assert found.last_reduces == bool(lanes[-1])


def test_partial_results_have_the_accumulators_types_and_neutral_elements() -> None:
    call = calls("argmax_3x5001")[0]
    value, index = phases(parse(call["source"]), site(call)).phases[0].lanes
    assert (value.dtype, ast.literal_eval(index.neutral), index.dtype) == ("float32", 2147483647, "int32")
    assert "inf" in value.neutral


@pytest.mark.parametrize(("name", "pairs", "why"), [
    ("cumsum_3x300", (), "no looped reduction"),
    ("layernorm_9x200", (), "no looped reduction"),
    ("relu_1000", (), "no looped reduction"),
    ("any_3x5001", (), "not reduced"),
    ("l2norm_3x2047", (("rindex = r0_index", "rindex = r0_index + rbase"),), "own offset"),
    ("l2norm_3x2047", (("rindex = r0_index", "rindex = r0_index + roffset"),), "offset is used"),
    ("l2norm_3x2047", (("tl.range(0, r0_numel, R0_BLOCK)", "tl.range(0, r0_numel - 1, R0_BLOCK)"),), "a loop over"),
    ("l2norm_3x2047", (("tl.full([XBLOCK, R0_BLOCK], 0,", "tl.full([1, R0_BLOCK], 0,"),), "no accumulator"),
    ("l2norm_3x2047", (("tl.sum(", "tl.xor_sum("),), "not reduced"),
    ("l2norm_3x2047", (("xmask = xindex < xnumel", "mask = xindex < xnumel"),), "index or mask"),
    ("softmax_3x2051", (("tmp5 = tmp4 - tmp2", "tmp5 = tmp4 - tmp0"),), "kept from the loop before"),
    ("rmsnorm_2x4096", (("tl.load(in_ptr1", "tl.load(out_ptr1"),), "is written and may be what out_ptr1 reads"),
])
def test_what_depends_on_the_order_of_a_row_is_declined(
    name: str, pairs: tuple[tuple[str, str], ...], why: str,
) -> None:
    text = changed(name, *pairs)
    with pytest.raises(NotUnderstood, match=why):
        phases(parse(text), site(calls(name)[0]))


def test_a_buffer_that_is_read_and_written_under_two_names_is_declined() -> None:
    call = calls("softmax_3x2051")[0]
    shared = {**call, "arguments": [call["arguments"][0], call["arguments"][0], *call["arguments"][2:]]}
    with pytest.raises(NotUnderstood, match="out_ptr2 is written"):
        phases(parse(call["source"]), site(shared))
