"""RMSNorm and a SwiGLU feed-forward with residual, in bfloat16: the second half of a modern language model's layer."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width, dtype=torch.bfloat16))
        self.gate = nn.Linear(width, hidden, bias=False, dtype=torch.bfloat16)
        self.up = nn.Linear(width, hidden, bias=False, dtype=torch.bfloat16)
        self.down = nn.Linear(hidden, width, bias=False, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean_square = x.float().pow(2).mean(-1, keepdim=True)
        normed = (x.float() * torch.rsqrt(mean_square + 1e-6)).to(x.dtype) * self.scale
        return x + self.down(nn.functional.silu(self.gate(normed)) * self.up(normed))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4, 1024, 2048, dtype=torch.bfloat16)]


def get_init_inputs() -> list[int]:
    return [2048, 5632]
