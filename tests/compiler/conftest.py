from __future__ import annotations

from pathlib import Path

import pytest

WRAPPERS = Path(__file__).parents[1] / "data" / "wrappers"


def wrapper(name: str) -> str:
    return (WRAPPERS / f"{name}.py").read_text()


@pytest.fixture(scope="session")
def inference() -> str:
    """LayerNorm, Linear, GELU, Linear, residual as compiled on an H200 with torch 2.11, without gradients."""
    return wrapper("h200_torch2.11_inference")


@pytest.fixture(scope="session")
def backward() -> str:
    """The backward graph of the same model."""
    return wrapper("h200_torch2.11_backward")


@pytest.fixture(scope="session")
def partitioned() -> str:
    """The same kind of block under `triton.cudagraphs`, compiled for a pretended sm_90 by torch 2.13."""
    return wrapper("pretended_torch2.13_partition")
