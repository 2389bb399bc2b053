"""Convolution, group normalisation, SiLU and a residual, twice: the block of a diffusion model's decoder."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm2 = nn.GroupNorm(groups, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.conv1(nn.functional.silu(self.norm1(x)))
        return x + self.conv2(nn.functional.silu(self.norm2(h)))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8, 128, 64, 64)]


def get_init_inputs() -> list[int]:
    return [128, 32]
