from __future__ import annotations

import math
from collections import OrderedDict, namedtuple
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelopt_bot.sandbox.worker import tensors
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from tests.sandbox.worker.sessions import Session

Named = namedtuple("Named", "a b")


@pytest.mark.parametrize("make", [
    lambda: torch.randn(5, 6).t()[1:],
    lambda: torch.randn(3).expand(4, 3),
    lambda: torch.randn(0, 2),
    lambda: torch.tensor(3, dtype=torch.int16),
    lambda: torch.randn(4, 4).to(torch.bfloat16)[:, ::2],
    lambda: torch.randn(2, 2, dtype=torch.complex64),
    lambda: torch.rand(7) > 0.5,
])
def test_a_saved_tensor_comes_back_with_its_layout(tmp_path: Path, make: object) -> None:
    tensor = make()  # type: ignore[operator]
    session = Session(tmp_path)
    back = tensors.load(session, tensors.save(session, tensor))
    assert torch.equal(back, tensor)
    assert back.stride() == tensor.stride() and back.storage_offset() == tensor.storage_offset()
    assert back.dtype is tensor.dtype


def test_equal_storages_share_a_file(tmp_path: Path) -> None:
    session, base = Session(tmp_path), torch.randn(8)
    assert tensors.save(session, base)["file"] == tensors.save(session, base[2:])["file"]


@pytest.mark.parametrize("change", [{"file": "../x"}, {"file": "absent"}, {"dtype": "nn"}, {"storage_bytes": 5}])
def test_a_reference_that_does_not_fit_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    session = Session(tmp_path)
    reference = tensors.save(session, torch.randn(4))
    with pytest.raises(WorkerFault, match="bad_request"):
        tensors.load(session, reference | change)


def test_copies_keep_aliasing_and_strides() -> None:
    base = torch.randn(4, 6)
    a, b, plain = tensors.clone_all([base.t(), base[1], 3])
    assert plain == 3 and a.stride() == (1, 6)
    b.zero_()
    assert bool((a[:, 1] == 0).all()) and bool((base[1] != 0).all())


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=30), st.booleans())
@settings(max_examples=50, deadline=None)
def test_stats_are_of_the_finite_values(values: list[float], spoilt: bool) -> None:
    found = tensors.stats(torch.tensor(values + [math.nan, math.inf] * spoilt))
    assert found is not None
    exact = torch.tensor(values, dtype=torch.float64)
    assert found["finite"] is not spoilt
    assert found["min"] == float(exact.min()) and found["max"] == float(exact.max())
    assert found["mean"] == pytest.approx(float(exact.mean()), rel=1e-6, abs=1e-6)


def test_stats_of_integers_and_booleans() -> None:
    assert tensors.stats(torch.tensor([3, -5, 2**40])) == {
        "min": -5, "max": 2**40, "mean": pytest.approx((2**40 - 2) / 3),
        "std": pytest.approx(2**40 * 2**0.5 / 3, rel=1e-6), "finite": True}
    assert tensors.stats(torch.tensor([True, False])) == {"min": 0, "max": 1, "mean": 0.5, "std": 0.5, "finite": True}
    assert tensors.stats(torch.randn(0)) is None


def test_relative_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "CHUNK", 2)
    x = torch.tensor([3.0, 4.0, float("nan"), 1.0])
    assert tensors.relative_error(x, x) == 0.0
    assert tensors.relative_error(x * 1.01, x) == pytest.approx(0.01, rel=1e-4)
    assert tensors.relative_error(x[:2], x) == float("inf")
    assert tensors.relative_error(torch.ones(2), torch.zeros(2)) == float("inf")
    assert tensors.relative_error(torch.tensor([1, 2]), torch.tensor([1, 3])) == pytest.approx(1 / 10**0.5)


def test_leaves_of_nested_values() -> None:
    a, b = torch.zeros(1), torch.ones(1)
    value = OrderedDict(x=[a, Named(b, 4)], y="text")
    assert [n for n, _ in tensors.leaves(value)] == ["x.0", "x.1.a", "x.1.b", "y"]
    assert [n for n, _ in tensors.tensor_leaves(value, "out")] == ["out.x.0", "out.x.1.a"]
    doubled = tensors.map_tensors(value, lambda t: t + 1)
    assert type(doubled) is OrderedDict and isinstance(doubled["x"][1], Named)
    assert float(doubled["x"][0]) == 1.0 and doubled["x"][1].b == 4 and doubled["y"] == "text"


@pytest.mark.parametrize("values", [
    torch.randn(5, 6, dtype=torch.float64).t()[1:], torch.randint(-9, 9, (40,)), torch.rand(50) > 0.5,
    torch.arange(24, dtype=torch.int16).reshape(4, 6)[:, ::2], torch.randn(3, 1).expand(3, 8),
    torch.randint(-3, 3, (tensors.CHUNK + 5,), dtype=torch.int8)], ids=lambda t: f"{t.dtype}-{tuple(t.shape)}")
def test_statistics(values: torch.Tensor) -> None:
    found = tensors.stats(values)
    wide = values.double()
    assert found is not None and found["finite"]
    assert found["min"] == wide.min() and found["max"] == wide.max()
    assert found["mean"] == pytest.approx(float(wide.mean()), rel=1e-9, abs=1e-9)
    assert found["std"] == pytest.approx(float(wide.std(correction=0)), rel=1e-9)
    assert isinstance(found["min"], float if values.is_floating_point() else int)


def test_statistics_leave_out_what_is_not_finite() -> None:
    found = tensors.stats(torch.tensor([1.0, math.inf, 3.0, math.nan]))
    assert found == {"min": 1.0, "max": 3.0, "mean": 2.0, "std": 1.0, "finite": False}
    nothing = tensors.stats(torch.tensor([math.nan]))
    assert nothing == {"min": 0.0, "max": 0.0, "mean": 0.0, "std": 0.0, "finite": False}


def test_statistics_of_a_repeated_element_need_no_memory_for_its_repetitions() -> None:
    found = tensors.stats(torch.full((1, 1), 7, dtype=torch.int8).expand(1 << 20, 1 << 20))
    assert found == {"min": 7, "max": 7, "mean": 7.0, "std": 0.0, "finite": True}
