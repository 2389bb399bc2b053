"""Promotion of a kernel's source to float64."""

from __future__ import annotations

import pytest

from kernelopt_bot.sandbox.worker.promote import CannotPromote, promote
from tests.sandbox.worker.sources import GATHER_BF16, SOFTMAX, WRAPPERS, kernels_of


def test_types_constants_and_signature_become_float64() -> None:
    text = promote(GATHER_BF16)
    assert "tl.float64" in text and "tl.float32" not in text and "bf16" not in text
    assert "'in_ptr0': '*i64'" in text and "'in_ptr1': '*fp64'" in text and "'out_ptr0': '*fp64'" in text


@pytest.mark.parametrize("wrapper", sorted(WRAPPERS.glob("h200*.py")), ids=lambda p: p.stem)
def test_captured_kernels_are_promoted_and_twice_is_once(wrapper: object) -> None:
    for source in kernels_of(wrapper).values():  # type: ignore[arg-type]
        text = promote(source)
        assert "fp32" not in text and "float32" not in text and promote(text) == text


def test_functions_of_float32_only_get_their_float64_form() -> None:
    text = promote(SOFTMAX.replace("libdevice.exp(tmp5)", "tl.div_rn(tl.sqrt_rn(tmp5), tmp4)"))
    assert "tl.sqrt(tmp5) / tmp4" in text


@pytest.mark.parametrize(("line", "why"), [
    ("tmp6.to(tl.int32, bitcast=True)", "bits"),
    ("tmp6.to(tl.int32, 'rtne', tmp0)", ""),
    ("tl.rand(0, r0_index)", "random"),
    ("triton_helpers.randint64(0, r0_index, 0, 9)", "random"),
    ("tl.dot(tmp6, tmp6)", "float64 form"),
    ("libdevice.fast_expf(tmp5)", "one width"),
    ("tl.inline_asm_elementwise('', '', [tmp5], tl.float32, True, 1)", "one width"),
    ("tmp6.to(tl.float8e4nv)", "float8"),
])
def test_what_depends_on_the_width_is_refused_with_the_reason(line: str, why: str) -> None:
    source = SOFTMAX.replace("libdevice.exp(tmp5)", line)
    assert source != SOFTMAX
    if not why:
        promote(source)
        return
    with pytest.raises(CannotPromote, match=why):
        promote(source)
