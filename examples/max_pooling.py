"""Overlapping three-dimensional max pooling, as in a video network's stem."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, kernel: int, stride: int, padding: int) -> None:
        super().__init__()
        self.pool = nn.MaxPool3d(kernel, stride=stride, padding=padding)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pool(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8, 32, 24, 64, 64)]


def get_init_inputs() -> list[int]:
    return [3, 2, 1]
