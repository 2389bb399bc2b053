"""A small residual network at batch 8: many short kernels, so that the host is the bottleneck."""

import torch
import torch.nn as nn


class Residual(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after),
        )
        self.skip = nn.Sequential()
        if stride != 1 or before != after:
            self.skip = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.skip(x))


class Model(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 32, 7, 2, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        widths = [32, 32, 64, 64, 128, 128, 256, 256]
        self.blocks = nn.Sequential(*[
            Residual(widths[max(i - 1, 0)], w, 2 if i and w != widths[i - 1] else 1) for i, w in enumerate(widths)
        ])
        self.head = nn.Linear(256, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8, 3, 160, 160)]


def get_init_inputs() -> list[int]:
    return [100]
