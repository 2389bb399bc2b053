"""Small models for the model worker's tests."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


class Counted(nn.Module):
    """Changes a buffer; returns a nested dict with a plain leaf."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor, *, scale: float = 1.0) -> dict[str, object]:
        self.calls += 1
        return {"y": functional.gelu(self.up(self.norm(x))) + self.calls, "rest": (3, x * scale)}


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(32, 96)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 16)).permute(2, 0, 3, 1, 4)
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class Embedded(nn.Module):
    """Integer inputs, a negative buffer would make it nan."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 16)
        self.norm = nn.BatchNorm1d(16)

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.softmax(self.norm(self.table(tokens).mean(1)), -1)


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x)


class Sharing(nn.Module):
    """Outputs over one storage, one of them the input's; changes its input."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x.add_(1)
        y = x * 2
        return x.view(-1), y, y.t()


class Casting(nn.Module):
    """Casts down by itself, so that the eager model in float64 is no reference."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.up(x.to(self.up.weight.dtype)).float(), -1)


class Broken(nn.Module):
    """Two graphs: the compiler cannot see through a Python value of a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.up(x))
        if float(y.sum()) < 0:
            return y
        return self.up(y) * 2


class Uncompiled(nn.Module):
    """Nothing is left for the compiler."""

    @torch._dynamo.disable
    def forward(self, x: Tensor) -> Tensor:
        return x + 1


@dataclass
class Pair:
    first: Tensor
    second: Tensor


class Dataclassed(nn.Module):
    def forward(self, x: Tensor) -> Pair:
        return Pair(x + 1, x.sum())


class Failing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x @ torch.ones(3, 3)


class Unbuildable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        raise ValueError("no such width")


class Silent(nn.Module):
    def forward(self, x: Tensor) -> None:
        return None


class Running(nn.Module):
    """Returns a buffer that the next call changes, and a tensor of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.total += x.sum()
        return self.total, x * 2


Chain = nn.Sequential


def width() -> list[int]:
    return [64]


def width_by_name() -> dict[str, int]:
    return {"width": 64}


def layers() -> list[nn.Module]:
    return [nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 8)]


def wide() -> list[Tensor]:
    return [torch.randn(4, 64)]


def narrow() -> list[Tensor]:
    return [torch.randn(4, 16)]


def scaled() -> dict[str, object]:
    return {"x": torch.randn(4, 64), "scale": 2.0}


def sequence() -> list[Tensor]:
    return [torch.randn(2, 8, 32)]


def tokens() -> list[Tensor]:
    return [torch.randint(0, 11, (4, 6))]


def on_meta() -> list[Tensor]:
    return [torch.randn(4, 16, device="meta")]


def failing() -> list[Tensor]:
    raise RuntimeError("the data set is not here")
