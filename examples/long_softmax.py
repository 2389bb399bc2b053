"""Softmax with temperature over long rows, as over a large vocabulary."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        return torch.softmax(logits / self.temperature, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(1024, 151_936)]


def get_init_inputs() -> list[float]:
    return [0.8]
