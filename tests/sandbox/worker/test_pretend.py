from __future__ import annotations

import pytest
import torch

import tests.sandbox.worker.sessions  # noqa: F401
from kernelopt_bot.sandbox.worker.pretend import ARCHITECTURES, fake_cuda


def test_answers_as_the_named_architecture_within_the_block_only() -> None:
    before = torch.cuda.is_available(), torch.version.cuda
    with fake_cuda("sm_89"):
        assert torch.cuda.is_available() and torch.cuda.device_count() == 1
        assert torch.cuda.get_device_capability() == (8, 9)
        assert torch.cuda.get_device_properties(0).multi_processor_count == 58
    assert (torch.cuda.is_available(), torch.version.cuda) == before


def test_ends_after_an_error_too() -> None:
    before = torch.cuda.is_available()
    with pytest.raises(ZeroDivisionError), fake_cuda():
        raise ZeroDivisionError
    assert torch.cuda.is_available() == before


def test_unknown_architecture() -> None:
    with pytest.raises(KeyError), fake_cuda("sm_0"):
        raise AssertionError("unreachable")


def test_limits_are_consistent() -> None:
    for name, properties in ARCHITECTURES.items():
        assert name == f"sm_{properties.major}{properties.minor}"
        assert properties.shared_memory_per_block < properties.shared_memory_per_block_optin
        assert properties.shared_memory_per_block_optin < properties.shared_memory_per_multiprocessor
