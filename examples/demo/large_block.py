"""A transformer block large enough that arithmetic, not the host, takes the time."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_mlp = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        head = width // self.heads
        qkv = self.qkv(self.norm_attention(x)).view(batch, tokens, 3, self.heads, head).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        weights = torch.softmax(q @ k.transpose(-1, -2) / head**0.5, dim=-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm_mlp(x))))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 128, 512)]


def get_init_inputs() -> list[int]:
    return [512, 8]
