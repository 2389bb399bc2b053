"""Models of ours in which the compiler leaves neighbouring kernels apart; inputs of a full and of a small size."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class GroupNormTail(nn.Module):
    """Few long groups: statistics in parts, combine, scale, apply."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(16, 64, 3), nn.GroupNorm(8, 64)

    def forward(self, x: Tensor) -> Tensor:
        return F.hardtanh(self.norm(self.convolution(x)) * 2.0)


class BatchNormTraining(nn.Module):
    """Statistics over a batch of large images."""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(F.batch_norm(x, None, None, training=True))


class Softmax(nn.Module):
    """Few rows of many elements."""

    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(x, 1)


class Normalised(nn.Module):
    """A norm over everything."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.div(x, x.norm())


class Windows(nn.Module):
    """A window after a window."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(16, 32, 3)

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(F.max_pool2d(self.convolution(x).relu(), 2), 2)


class BiasWindowSoftmax(nn.Module):
    """A bias in place, a window, and a reduction over channels that reads it twice."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(16, 32, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(F.max_pool2d(self.convolution(x), 2), 1).mean((2, 3))


MODELS = ("GroupNormTail", "BatchNormTraining", "Softmax", "Normalised", "Windows", "BiasWindowSoftmax")
FULL = {"GroupNormTail": (8, 16, 130, 130), "BatchNormTraining": (16, 64, 112, 112), "Softmax": (16, 200_000),
        "Normalised": (64, 64, 64, 64), "Windows": (64, 16, 130, 130), "BiasWindowSoftmax": (64, 16, 66, 66)}


def group_norm_tail() -> list[Tensor]:
    return [torch.randn(FULL["GroupNormTail"])]


def batch_norm_training() -> list[Tensor]:
    return [torch.randn(FULL["BatchNormTraining"])]


def softmax() -> list[Tensor]:
    return [torch.randn(FULL["Softmax"])]


def normalised() -> list[Tensor]:
    return [torch.randn(FULL["Normalised"])]


def windows() -> list[Tensor]:
    return [torch.randn(FULL["Windows"])]


def bias_window_softmax() -> list[Tensor]:
    return [torch.randn(FULL["BiasWindowSoftmax"])]
