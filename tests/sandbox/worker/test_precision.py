"""The precision rule: honest arithmetic passes, weaker arithmetic does not."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from kernelopt_bot.sandbox.worker import families, precision
from kernelopt_bot.sandbox.worker.precision import compare, same_bits

RULE = {"m": 2.0, "k": 4.0}
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def rows(family: str, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return families.make(family, torch.empty(1024, 256, dtype=dtype), None, generator)


def sequential(x: Tensor) -> Tensor:
    total = torch.zeros(len(x), dtype=x.dtype)
    for column in x.unbind(1):
        total = total + column
    return total


@pytest.mark.parametrize("family", ["normal", "large"])
def test_another_order_of_summation_passes(family: str) -> None:
    failed = [s for s in range(20) if not (x := rows(family, s), compare(
        "y", sequential(x), x.sum(1), x.double().sum(1), **RULE))[1]["passed"]]
    assert len(failed) <= 1


def test_without_the_k_term_the_same_sum_fails() -> None:
    x = rows("normal", 0)
    assert not compare("y", sequential(x), x.sum(1), x.double().sum(1), m=2, k=0)["passed"]


@pytest.mark.parametrize("family", ["normal", "cancelling", "large"])
@pytest.mark.parametrize("bits", [13, 16])
def test_operands_cut_to_tf32_or_bfloat16_fail(family: str, bits: int) -> None:
    x = rows(family, 3)
    cut = (x.view(torch.int32) & -(1 << bits)).view(torch.float32)
    result = compare("y", cut.sum(1), x.sum(1), x.double().sum(1), **RULE)
    assert not result["passed"] and "RMSE" in result["reason"]


def test_numbers_are_those_of_the_definition() -> None:
    reference = torch.tensor([3.0, -4.0], dtype=torch.float64)
    baseline = torch.tensor([3.0, -3.5])
    result = compare("y", torch.tensor([3.5, -4.0]), baseline, reference, **RULE)
    assert result["rmse_candidate"] == pytest.approx(math.sqrt(0.125))
    assert result["rmse_baseline"] == pytest.approx(math.sqrt(0.125))
    assert (result["max_candidate"], result["max_baseline"], result["max_abs"]) == (0.5, 0.5, 0.5)
    assert (result["rms_reference"], result["max_reference"]) == (pytest.approx(math.sqrt(12.5)), 4.0)
    assert result["ratio"] == pytest.approx(1.0) and not result["allclose"] and not result["bit_equal"]
    assert result["passed"]


def test_one_outlier_among_many_is_caught_by_the_maximum() -> None:
    reference = torch.randn(1_000_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    baseline = (reference * (1 + 1e-7)).float()
    candidate = baseline.clone()
    candidate[12345] += 2e-5
    result = compare("y", candidate, baseline, reference, **RULE)
    assert not result["passed"] and "maximum error" in result["reason"]


@pytest.mark.parametrize("dtype", FLOATS)
def test_small_and_half_outputs_get_the_larger_factor(dtype: torch.dtype) -> None:
    reference = torch.ones(2000, dtype=torch.float64)
    step = torch.finfo(dtype).eps
    baseline = torch.full((2000,), 1 + step, dtype=torch.float64).to(dtype)
    candidate = torch.full((2000,), 1 + 3 * step, dtype=torch.float64).to(dtype)
    assert compare("y", candidate, baseline, reference, m=2, k=0)["passed"] is (torch.finfo(dtype).bits <= 16)
    assert compare("y", candidate[:999], baseline[:999], reference[:999], m=2, k=0)["passed"]


def test_without_a_reference_the_baseline_stands_in() -> None:
    baseline = torch.randn(5000, generator=torch.Generator().manual_seed(0))
    near = baseline * (1 + 1e-7)
    assert compare("y", baseline.clone(), baseline, None, **RULE)["bit_equal"]
    result = compare("y", near, baseline, None, **RULE)
    assert result["passed"] and not result["bit_equal"] and result["rmse_baseline"] == 0.0 and result["ratio"] is None
    assert not compare("y", near, baseline, None, m=2, k=0)["passed"]


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(("candidate", "baseline", "reference", "passed", "equal"), [
    (NAN, 1.0, 1.0, False, False),
    (INF, 1.0, 1.0, False, False),
    (1.0, NAN, 1.0, False, False),
    (INF, -INF, 1.0, False, False),
    (NAN, NAN, 1.0, True, True),
    (INF, NAN, INF, True, False),
    (INF, 3e38, 1e39, True, False),
    (NAN, 1.0, NAN, True, False),
    (1.0, NAN, NAN, False, False),
    (INF, NAN, NAN, False, False),
    (3e38, INF, INF, False, False),
    (NAN, INF, INF, True, False),
    (INF, -INF, INF, True, False),
])
def test_non_finite_classes(
    candidate: float, baseline: float, reference: float, passed: bool, equal: bool
) -> None:
    result = compare("y", torch.tensor([candidate, 2.0]), torch.tensor([baseline, 2.0]),
                     torch.tensor([reference, 2.0], dtype=torch.float64), **RULE)
    assert result["passed"] is passed and result["nonfinite_equal"] is equal


def test_the_least_k_is_where_the_verdict_turns() -> None:
    reference = torch.linspace(1, 2, 4000, dtype=torch.float64)
    baseline = reference.float()
    for candidate in (baseline * (1 + 1e-6), torch.where(torch.arange(4000) == 9, baseline + 1e-4, baseline)):
        said = compare("y", candidate, baseline, reference, m=2, k=0)
        least = max(said["least_k_rmse"], said["least_k_max"])
        assert least > 1
        assert compare("y", candidate, baseline, reference, m=2, k=least * 1.001)["passed"]
        assert not compare("y", candidate, baseline, reference, m=2, k=least * 0.999)["passed"]
    assert compare("y", baseline, baseline, reference, m=2, k=0)["least_k_rmse"] == 0.0
    zero = torch.zeros(4000)
    assert compare("y", zero + 1, zero, zero.double(), m=2, k=1)["least_k_max"] is None


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool, torch.uint8])
def test_integers_and_booleans_are_exact(dtype: torch.dtype) -> None:
    baseline = torch.tensor([0, 1, 1]).to(dtype)
    assert compare("y", baseline.clone(), baseline, None, **RULE)["passed"]
    result = compare("y", torch.tensor([0, 1, 0]).to(dtype), baseline, None, **RULE)
    assert not result["passed"] and "1 of 3" in result["reason"] and result["max_abs"] == 1.0


def test_shape_and_dtype_must_be_equal() -> None:
    assert "expected" in compare("y", torch.ones(3), torch.ones(4), None, **RULE)["reason"]
    assert not compare("y", torch.ones(3).double(), torch.ones(3), None, **RULE)["passed"]


def test_flush_to_zero_is_no_error() -> None:
    tiny = torch.full((2000,), 1e-40)
    assert compare("y", torch.zeros(2000), tiny, tiny.double(), **RULE)["passed"]


def test_large_float64_values_do_not_overflow() -> None:
    x = torch.full((2000,), 1e300, dtype=torch.float64)
    result = compare("y", x * (1 + 1e-10), x, None, **RULE)
    assert not result["passed"] and math.isfinite(result["rmse_candidate"])


def test_chunks_give_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    x = rows("normal", 1)
    args = ("y", x * (1 + 1e-7), x, x.double())
    whole = compare(*args, **RULE)
    monkeypatch.setattr(precision, "CHUNK", 1000)
    parts = compare(*args, **RULE)
    assert {k: v for k, v in parts.items() if k[:3] != "rms"} == pytest.approx(
        {k: v for k, v in whole.items() if k[:3] != "rms"})


def test_permuted_layouts_and_complex_values_compare() -> None:
    x = torch.randn(4, 5, 6).permute(2, 0, 1)
    assert compare("y", x.clone(memory_format=torch.preserve_format), x, x.double(), **RULE)["bit_equal"]
    z = torch.randn(7, dtype=torch.complex64)
    assert compare("y", z.clone(), z, z.to(torch.complex128), **RULE)["passed"]
    assert not compare("y", z + 1, z, z.to(torch.complex128), **RULE)["passed"]


def test_same_bits_tells_signed_zeros_and_not_nans() -> None:
    assert same_bits(torch.tensor([NAN, 1.0]), torch.tensor([NAN, 1.0]))
    assert not same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not same_bits(torch.ones(2), torch.ones(3)) and not same_bits(torch.ones(2), torch.ones(2).double())
    assert same_bits(torch.empty(0), torch.empty(0))
