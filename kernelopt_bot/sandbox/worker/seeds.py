"""Random draws: every generator is seeded from the run's secret, which the report reveals after the verdict."""

from __future__ import annotations

import hashlib
import random
import sys

import torch


def derive(secret: str, purpose: str, index: int) -> int:
    """A 56-bit seed, the same on every machine."""
    return int.from_bytes(hashlib.sha256(f"{secret}/{purpose}/{index}".encode()).digest()[:7], "big")


def generator(secret: str, purpose: str, index: int, device: str | torch.device = "cpu") -> torch.Generator:
    return torch.Generator(device=device).manual_seed(derive(secret, purpose, index))


def seed_everything(seed: int) -> None:
    """Seed torch (all devices), `random`, and numpy where the user's code has imported it."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
