"""Small modules of ours, each with a step that one of the playbook's techniques is made for.

Sizes exceed an H200's L2 several times, so that the traffic to memory decides. `small_*` are for a look without a GPU.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class VocabularySoftmax(nn.Module):
    """Softmax over rows that no program can hold."""

    def forward(self, logits: Tensor) -> Tensor:
        return torch.softmax(logits, 1)


class UnitRows(nn.Module):
    """Rows divided by their length; the row's length is odd."""

    def forward(self, x: Tensor) -> Tensor:
        return x / (x * x).sum(1, keepdim=True).sqrt()


class WideLayerNorm(nn.Module):
    """Normalised rows that fit the registers of one multiprocessor, with no power of two."""

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[1:])


class HalfSoftmax(nn.Module):
    """Softmax with a temperature in half precision."""

    def forward(self, logits: Tensor) -> Tensor:
        return torch.softmax(logits * 0.7, 1)


class LogPartition(nn.Module):
    """Logarithm of a sum of exponentials over long rows."""

    def forward(self, logits: Tensor) -> Tensor:
        return torch.logsumexp(logits, 1)


class FewLongRows(nn.Module):
    """The largest element's place in a few long rows."""

    def forward(self, x: Tensor) -> Tensor:
        return x.argmax(1)


class ColumnNorms(nn.Module):
    """Sums of squares down the columns of a tall matrix."""

    def forward(self, x: Tensor) -> Tensor:
        return (x * x).sum(0)


class GroupTail(nn.Module):
    """What follows a convolution: activation, then normalisation over groups of channels."""

    def forward(self, x: Tensor) -> Tensor:
        return F.group_norm(F.gelu(x), 8)


class SquaredLoss(nn.Module):
    """A mean over everything."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return ((x - y) ** 2).mean()


class DilatedPool(nn.Module):
    """Largest values of dilated windows in three dimensions, padded."""

    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool3d(x, 3, 2, 1, 3)


class PatchMeans(nn.Module):
    """Means of patches that do not overlap."""

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(x, 9)


class SlidingMaximum(nn.Module):
    """Largest values of a dilated window that slides along long rows."""

    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool1d(x, 7, 1, 3, 2)


class RunningSum(nn.Module):
    """Prefix sums of weighted rows."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.cumsum(x * y, 1)


class RemainingSum(nn.Module):
    """Suffix sums of rows: a flip, a scan, a flip."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flip(1).cumsum(1).flip(1)


class JoinedChannels(nn.Module):
    """Two activations side by side, in the manner of a dense block."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([F.relu(x), F.silu(y)], 1)


class ChannelsLast(nn.Module):
    """A change of memory layout with a scale."""

    def forward(self, x: Tensor) -> Tensor:
        return (x * 0.5).to(memory_format=torch.channels_last)


def _draws(*shape: int, dtype: torch.dtype = torch.float32, count: int = 1) -> Callable[[], list[Tensor]]:
    return lambda: [torch.randn(*shape, dtype=dtype) for _ in range(count)]


full_VocabularySoftmax, small_VocabularySoftmax = _draws(512, 393_216), _draws(3, 2051)
full_UnitRows, small_UnitRows = _draws(4096, 65_535), _draws(3, 2047)
full_WideLayerNorm, small_WideLayerNorm = _draws(8192, 24_576), _draws(3, 2050)
full_HalfSoftmax, small_HalfSoftmax = _draws(8192, 50_304, dtype=torch.float16), _draws(3, 1500, dtype=torch.float16)
full_LogPartition, small_LogPartition = _draws(2048, 128_256), _draws(3, 4100)
full_FewLongRows, small_FewLongRows = _draws(300, 1_000_003), _draws(3, 5001)
full_ColumnNorms, small_ColumnNorms = _draws(131_072, 1536), _draws(500, 33)
full_GroupTail, small_GroupTail = _draws(32, 64, 256, 256), _draws(2, 8, 20, 30)
full_SquaredLoss, small_SquaredLoss = _draws(16_384, 8191, count=2), _draws(70, 101, count=2)
full_DilatedPool, small_DilatedPool = _draws(16, 24, 112, 112, 128), _draws(1, 1, 7, 7, 24)
full_PatchMeans, small_PatchMeans = _draws(16, 32, 900, 1024), _draws(1, 1, 23, 300)
full_SlidingMaximum, small_SlidingMaximum = _draws(48, 128, 50_000), _draws(1, 2, 1100)
full_RunningSum, small_RunningSum = _draws(8192, 24_576, count=2), _draws(2, 1537, count=2)
full_RemainingSum, small_RemainingSum = _draws(8192, 24_576), _draws(2, 1500)
full_JoinedChannels, small_JoinedChannels = _draws(64, 96, 72, 72, count=2), _draws(2, 2, 23, 23, count=2)
full_ChannelsLast, small_ChannelsLast = _draws(64, 96, 112, 112), _draws(2, 5, 6, 7)
