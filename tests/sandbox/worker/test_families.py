"""What each input family holds."""

from __future__ import annotations

import math

import pytest
import torch

from kernelopt_bot.sandbox.worker.families import CANCELLING_SCALE, FAMILIES, empty_like, make

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int8, torch.bool,
          torch.complex64]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtype_shape_and_strides_are_kept(family: str, dtype: torch.dtype) -> None:
    for like in (torch.ones(5, 7).to(dtype).t(), torch.ones(3, 1).to(dtype).expand(3, 4), torch.ones(0, 3).to(dtype),
                 torch.ones(()).to(dtype), torch.ones(6, 8).to(dtype)[:, ::2]):
        made = make(family, like, None, generator())
        assert (made.dtype, made.shape, made.stride()) == (dtype, like.shape, like.stride())
        assert made.untyped_storage().data_ptr() != like.untyped_storage().data_ptr() or made.numel() == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_seed_gives_the_same_values_and_another_does_not(family: str) -> None:
    like = torch.empty(64, 64)
    a, b = make(family, like, None, generator(1)), make(family, like, None, generator(1))
    assert torch.equal(a.nan_to_num(), b.nan_to_num())
    if family not in ("zero", "captured"):
        assert not torch.equal(a.nan_to_num(), make(family, like, None, generator(2)).nan_to_num())


def test_float_families() -> None:
    like = torch.empty(512, 256)
    normal = make("normal", like, None, generator())
    assert abs(float(normal.mean())) < 0.02 and abs(float(normal.std()) - 1) < 0.02
    constant = make("constant", like, None, generator())
    assert len(constant.unique()) == 1 and float(constant.abs().max()) > 0
    assert torch.equal(constant.sum(1).double(), constant.double().sum(1))
    assert not make("zero", like, None, generator()).any()
    large = make("large", like, None, generator())
    assert abs(float(large.std()) / 1024 - 1) < 0.02
    half = make("large", like.half(), None, generator())
    assert abs(float(half.float().std()) / 64 - 1) < 0.02


def test_cancelling_rows_hold_large_values_and_sum_to_little() -> None:
    x = make("cancelling", torch.empty(1000, 256), None, generator()).double()
    assert float(x.std()) > 0.8 * CANCELLING_SCALE
    assert abs(float(x.sum(1).std()) / 16 - 1) < 0.2


def test_extreme_holds_every_special_and_leaves_rows_without() -> None:
    x = make("extreme", torch.empty(64, 256), None, generator())
    largest = torch.finfo(torch.bfloat16).max
    assert x.isnan().any() and (x == math.inf).any() and (x == -math.inf).any() and (x == largest).any()
    assert ((x != 0) & (x.abs() < torch.finfo(torch.float32).smallest_normal)).any()
    assert x.isfinite().all(1).any()


@pytest.mark.parametrize("family", FAMILIES)
def test_integers_stay_within_the_recorded_range(family: str) -> None:
    stats = {"min": 3, "max": 17, "mean": 10.0, "std": 4.0, "finite": True}
    values = make(family, torch.empty(1000, dtype=torch.int64, device="meta"), stats, generator())
    assert int(values.min()) >= 3 and int(values.max()) <= 17
    if family not in ("zero", "constant"):
        assert len(values.unique()) == 15


def test_without_statistics_integers_take_the_range_of_the_tensor() -> None:
    values = make("normal", torch.arange(10), None, generator())
    assert int(values.min()) >= 0 and int(values.max()) <= 9


def test_captured_copies_real_values_and_draws_from_statistics_where_there_are_none() -> None:
    real = torch.randn(7, 5).t()
    assert torch.equal(make("captured", real, None, generator()), real)
    stats = {"min": 4.0, "max": 6.0, "mean": 5.0, "std": 0.5, "finite": True}
    drawn = make("captured", torch.empty(4000, device="meta"), stats, generator())
    assert drawn.device.type == "cpu" and float(drawn.min()) >= 4 and float(drawn.max()) <= 6
    assert abs(float(drawn.mean()) - 5) < 0.05 and abs(float(drawn.std()) - 0.5) < 0.05


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown input family"):
        make("typical", torch.empty(3), None, generator())


def test_empty_like_keeps_gaps_and_overlaps() -> None:
    overlapping = torch.empty(20).as_strided((4, 6), (2, 1))
    for like in (torch.empty(10, 10)[::3, ::2], torch.empty(5).expand(3, 5), overlapping):
        assert empty_like(like).stride() == like.stride()


@pytest.mark.parametrize(("shape", "places"), [((7,), 1), ((1, 9, 1), 1), ((2, 3), 2), ((16, 64, 5), 2), ((), 1)])
def test_the_largest_numbers_never_meet_in_one_row_or_column(shape: tuple[int, ...], places: int) -> None:
    for seed in range(20):
        drawn = torch.Generator().manual_seed(seed)
        x = make("extreme", torch.empty(shape), None, drawn)
        largest = float(torch.finfo(torch.bfloat16).max)
        found = [tuple(p) for p in (x.abs() == largest).nonzero().tolist()]
        assert len(found) == places
        if places == 2:
            assert x[found[0]] == -x[found[1]]
            assert all(a != b for a, b, size in zip(*found, shape, strict=True) if size > 1)
