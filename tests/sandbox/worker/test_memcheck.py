"""Bounds of accesses in the interpreter lane."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernelopt_bot.sandbox.worker.memcheck import OutOfBounds, check, only


def addresses(tensor: torch.Tensor, *elements: int) -> np.ndarray:
    return np.array([tensor.data_ptr() + 4 * e for e in elements], dtype=np.uint64)


def test_accesses_inside_any_buffer_pass_and_others_are_counted() -> None:
    a, b = torch.empty(10), torch.empty(20)
    with only([a, b]):
        check("load", addresses(a, 0, 9), True, 4)
        check("load", addresses(b, 19), True, 4)
        check("load", addresses(a, 10_000_000), False, 4)
        for wrong in (-1, 10_000_000):
            with pytest.raises(OutOfBounds, match="a store touches 1 elements"):
                check("store", addresses(a, 0, wrong), np.array([True, True]), 4)


def test_the_last_element_must_fit_whole() -> None:
    a = torch.empty(10)
    with only([a]), pytest.raises(OutOfBounds):
        check("load", addresses(a, 9), True, 8)


def test_views_of_one_storage_count_together() -> None:
    base = torch.empty(100)
    with only([base[:60], base[10:20], base[50:]]):
        check("load", addresses(base, 30, 59, 99), True, 4)
    with only([base[10:20]]), pytest.raises(OutOfBounds):
        check("load", addresses(base, 20), True, 4)


def test_no_buffer_allows_nothing_and_outside_nothing_is_checked() -> None:
    with only([]), pytest.raises(OutOfBounds):
        check("load", np.array([16], dtype=np.uint64), True, 4)
    check("load", np.array([16], dtype=np.uint64), True, 4)
