from __future__ import annotations

from typing import Any

import pytest

from kernelopt_bot.playbook.kernel_source import NotUnderstood, parse
from kernelopt_bot.playbook.separable_windows import TECHNIQUE, aligned_window, stretches
from kernelopt_bot.playbook.windows import window_of
from tests.playbook.sites import calls, site

TORCH = ["torch2.11", "torch2.13"]
POOL = "maxpool3d_dilated_7x7x24"


def source(name: str, torch: str = "torch2.13", **changes: str) -> Any:
    text = calls(name, torch)[0]["source"]
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return parse(text)


@pytest.mark.parametrize("torch", TORCH)
def test_a_dilated_padded_pool(torch: str) -> None:
    window = window_of(source(POOL, torch))
    assert (window.outputs, window.rows, window.taps, window.width) == (10, 4, 9, 3)
    assert (window.stride, window.dilation, window.function) == (2, 3, "triton_helpers.max2")
    # 24 columns behind one of padding; the last output ends at column 2 * 9 + 3 * 2.
    assert window.valid == (1, 25)


@pytest.mark.parametrize("torch", TORCH)
def test_a_sum_without_padding_has_all_columns(torch: str) -> None:
    window = window_of(source("avgpool2d_11_23x300", torch))
    assert (window.outputs, window.rows, window.taps, window.width, window.stride) == (27, 2, 11, 11, 11)
    assert window.valid == (0, 297) and window.neutral == "0.0"


def test_what_is_fused_before_a_window_bounds_it_only_where_it_is_the_neutral_element() -> None:
    assert window_of(source("maxpool2d_relu_9x30")).valid == (2, 32)
    text = calls("maxpool2d_relu_9x30")[0]["source"]
    assert "float(\"-inf\"), tmp" in text
    other = parse(text.replace("float(\"-inf\"), tmp", "-5.0, tmp"))
    assert window_of(other).valid == (0, 34)


@pytest.mark.parametrize("name", ["softmax_9x100", "argmax_2x40x33", "relu_1000", "cumsum_3x300"])
def test_other_kernels_are_no_windows(name: str) -> None:
    with pytest.raises(NotUnderstood):
        aligned_window(source(name))


@pytest.mark.parametrize("name", ["softmax_9x100", "rowsum_2x90x33", "argmax_2x40x33", "relu_1000", "cumsum_3x300"])
def test_other_kernels_and_windows_without_overlap_along_memory_get_no_proposal(name: str) -> None:
    assert TECHNIQUE.applies(site(calls(name)[0])) is None


def test_a_value_that_depends_on_the_place_otherwise_is_refused() -> None:
    text = calls("avgpool2d_11_23x300")[0]["source"]
    with pytest.raises(NotUnderstood):
        window_of(parse(text.replace("tl.broadcast_to(tmp0,", "tl.broadcast_to(tmp0 * (x0 % 2),")))


def test_a_window_of_the_buffer_that_is_written_is_left_alone() -> None:
    call = calls(POOL)[0]
    assert TECHNIQUE.applies(site(call)) is not None
    arguments = [{**a, "buffer": "same"} if "buffer" in a else a for a in call["arguments"]]
    assert TECHNIQUE.applies(site({**call, "arguments": arguments})) is None


def test_stretches_cover_every_output_and_hold_its_columns() -> None:
    for name in ("avgpool2d_11_23x300", POOL, "maxpool2d_relu_9x30"):
        kernel = source(name)
        window = aligned_window(kernel)
        for stretch in stretches(kernel, window):
            assert stretch.outputs * stretch.pieces >= window.outputs
            needed = window.stride * (stretch.outputs - 1) + window.dilation * (window.width - 1) + 1
            low, high = window.valid
            assert stretch.columns >= (needed if stretch.pieces > 1 else high - low)


def test_every_element_of_a_row_is_loaded_once() -> None:
    source_text = next(TECHNIQUE.propose(site(calls("avgpool2d_11_23x300")[0]))).source
    assert source_text.count("tl.load(") == 1 and source_text.count("tl.gather(") == 1
