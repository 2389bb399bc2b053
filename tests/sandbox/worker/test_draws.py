"""Draws in pieces: whole tensors of the family, in the layout of the argument, on the device that keeps them."""

from __future__ import annotations

import pytest
import torch

from kernelopt_bot.sandbox.worker import draws
from kernelopt_bot.sandbox.worker.families import FAMILIES

STATS = {"min": 2.0, "max": 9.0, "mean": 5.0, "std": 1.0, "finite": True}


def drawn(family: str, like: torch.Tensor, stats: dict[str, float] | None = None, *, seed: int = 7,
          dtype: torch.dtype | None = None) -> torch.Tensor:
    target = torch.empty_strided(like.shape, like.stride(), dtype=dtype or like.dtype)
    draws.draw(family, like, stats, torch.Generator().manual_seed(seed), target)
    return target


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draws, "DRAWN", 64)


@pytest.mark.parametrize("shape", [(1000,), (1, 1000), (50, 20), (3, 7, 48), (2, 1, 3, 100)])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_tensor_of_many_pieces_is_of_the_family(family: str, shape: tuple[int, ...]) -> None:
    got = drawn(family, torch.empty(shape, device="meta"), STATS)
    assert got.shape == shape and got.is_contiguous()
    if family in ("zero", "constant"):
        assert len(set(got.flatten().tolist())) == 1
    elif family == "extreme":
        assert not got.isfinite().all() and got.isfinite().any()
        largest = ((got.abs() > 1000) & got.isfinite()).sum()
        assert int(largest) == 1, "the largest numbers of several parts could meet in one sum"
    elif family == "captured":
        assert float(got.min()) >= 2.0 and float(got.max()) <= 9.0
    else:
        # a piece that was left out, or drawn twice, would show as equal values
        assert len(set(got.flatten().tolist())) > 0.99 * got.numel()
        assert float(got.std()) > (500 if family == "large" else 0.8)


def test_each_part_of_a_long_row_cancels_by_itself() -> None:
    got = drawn("cancelling", torch.empty(64 * 40, device="meta")).view(40, 64)
    assert float(got.abs().max()) > 16
    assert float(got.sum(1).abs().max()) < 64


def test_one_of_several_buffers_keeps_its_largest_numbers() -> None:
    keepers = set()
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        made = [torch.empty(5, 9), torch.empty(5, 9)]
        for target in made:
            draws.draw("extreme", target, None, generator, target)
        index = torch.arange(4000)
        draws.keep_one_largest([made[0], index, made[1]], generator)
        counts = [int(((m.abs() > draws.LARGE) & m.isfinite()).sum()) for m in made]
        assert sorted(counts) == [0, 2] and not made[counts.index(0)].isfinite().all()
        assert torch.equal(index, torch.arange(4000))
        keepers.add(counts.index(2))
    assert keepers == {0, 1}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_second_draw_into_wider_memory_is_the_same(family: str) -> None:
    like = torch.empty(3, 7, 48, device="meta")
    narrow, wide = (drawn(family, like, STATS, dtype=d) for d in (torch.float32, torch.float64))
    assert wide.dtype is torch.float64 and torch.equal(wide.nan_to_num(), narrow.double().nan_to_num())
    assert draws.digest(narrow, torch.float32) == draws.digest(wide, torch.float32)
    other = drawn(family, like, STATS, seed=8)
    if family not in ("zero", "constant"):
        assert draws.digest(other, torch.float32) != draws.digest(narrow, torch.float32)


def test_a_digest_sees_changes_and_exchanges() -> None:
    values = drawn("normal", torch.empty(1000, device="meta"))
    before = draws.digest(values, torch.float32)
    for first, second in ((3, 4), (3, 900)):
        values[[first, second]] = values[[second, first]]
        assert draws.digest(values, torch.float32) != before
        values[[first, second]] = values[[second, first]]
    assert draws.digest(values, torch.float32) == before
    values[999] = -values[999]
    assert draws.digest(values, torch.float32) != before


@pytest.mark.parametrize("like", [torch.arange(300) % 7 == 0, torch.randn(300, dtype=torch.complex64),
                                  torch.arange(300, dtype=torch.int8), torch.randn(300).bfloat16()])
def test_every_type_has_a_digest(like: torch.Tensor) -> None:
    before = draws.digest(like, like.dtype)
    assert draws.digest(like.clone(), like.dtype) == before
    changed = like.clone()
    changed[150] = ~changed[150] if like.dtype is torch.bool else changed[150] + 1
    assert draws.digest(changed, like.dtype) != before


@pytest.mark.parametrize(("dtype", "wide"), [
    (torch.float32, torch.float32), (torch.float32, torch.float64), (torch.float64, torch.float64)])
def test_neighbours_are_at_most_one_unit_in_the_last_place_away(dtype: torch.dtype, wide: torch.dtype) -> None:
    values = torch.full((7, 50), 1.25, dtype=wide).t()
    draws.nudge(values, dtype, torch.Generator().manual_seed(1))
    assert set(((values - 1.25) / torch.finfo(dtype).eps).flatten().tolist()) == {-1.0, 0.0, 1.0}
    assert torch.equal(values, values.to(dtype).to(wide))
    expanded = torch.ones(1, 500, dtype=wide).expand(4, 500)
    draws.nudge(expanded, dtype, torch.Generator())
    assert len(set(expanded[3].tolist())) == 3


def test_neighbours_of_other_types_are_the_values() -> None:
    for values in (torch.arange(9), torch.ones(9, dtype=torch.bfloat16)):
        before = values.clone()
        draws.nudge(values, values.dtype, torch.Generator())
        assert torch.equal(before, values)


def test_strides_and_expanded_dimensions_stay() -> None:
    like = torch.empty_strided((30, 20), (1, 30), device="meta")
    assert drawn("normal", like).stride() == (1, 30)
    expanded = torch.empty(1, 500, device="meta").expand(4, 500)
    got = drawn("normal", expanded)
    assert got.stride() == expanded.stride() and got.shape == (4, 500) and len(set(got.flatten().tolist())) > 490


def test_recorded_values_come_back_whole_and_integers_keep_their_range() -> None:
    real = torch.arange(500.0)
    got = drawn("captured", real)
    assert torch.equal(got, real) and got.data_ptr() != real.data_ptr()
    indices = torch.arange(3, 300)
    assert set(drawn("normal", indices).tolist()) <= set(range(3, 300))
    ranged = drawn("normal", torch.empty(500, dtype=torch.int64, device="meta"), STATS)
    assert set(ranged.tolist()) == set(range(2, 10))
