"""Draws in pieces: whole tensors of the family, in the layout of the argument, on the device that keeps them."""

from __future__ import annotations

import pytest
import torch

from kernelopt_bot.sandbox.worker import draws
from kernelopt_bot.sandbox.worker.families import FAMILIES

CPU = torch.device("cpu")
STATS = {"min": 2.0, "max": 9.0, "mean": 5.0, "std": 1.0, "finite": True}


def drawn(family: str, like: torch.Tensor, stats: dict[str, float] | None = None) -> torch.Tensor:
    return draws.draw(family, like, stats, torch.Generator().manual_seed(7), CPU)


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
        made = [draws.draw("extreme", torch.empty(5, 9, device="meta"), None, generator, CPU) for _ in range(2)]
        index = torch.arange(4000)
        draws.keep_one_largest([made[0], index, made[1]], generator)
        counts = [int(((m.abs() > draws.LARGE) & m.isfinite()).sum()) for m in made]
        assert sorted(counts) == [0, 2] and not made[counts.index(0)].isfinite().all()
        assert torch.equal(index, torch.arange(4000))
        keepers.add(counts.index(2))
    assert keepers == {0, 1}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_neighbours_are_at_most_one_unit_in_the_last_place_away(dtype: torch.dtype) -> None:
    values = torch.full((7, 50), 1.25, dtype=dtype).t()
    near = draws.neighbours(values, torch.Generator().manual_seed(1))
    assert near.stride() == values.stride() and bool((values == 1.25).all())
    assert set(((near - values) / torch.finfo(dtype).eps).flatten().tolist()) == {-1.0, 0.0, 1.0}
    expanded = torch.ones(1, 500, dtype=dtype).expand(4, 500)
    assert draws.neighbours(expanded, torch.Generator()).stride() == expanded.stride()


def test_neighbours_of_other_types_are_the_values() -> None:
    for values in (torch.arange(9), torch.ones(9, dtype=torch.bfloat16)):
        assert torch.equal(draws.neighbours(values, torch.Generator()), values)


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
