"""Small modules of ours, each with a step that one of the playbook's techniques for reductions is made for.

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
