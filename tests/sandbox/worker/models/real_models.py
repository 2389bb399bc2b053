"""Models as their authors write them, small: what each shows is in `docs/inputs.md`, section "Models"."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations


class RMSNorm(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(dim) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class CachedAttention(nn.Module):
    """Writes keys and values of the new positions into its cache, and attends to all of it."""

    def __init__(self, dim: int, heads: int, longest: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.register_buffer("keys", torch.zeros(1, heads, longest, dim // heads), persistent=False)
        self.register_buffer("values", torch.zeros(1, heads, longest, dim // heads), persistent=False)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        self.keys.index_copy_(2, positions, k)
        self.values.index_copy_(2, positions, v)
        seen = torch.arange(self.keys.shape[2], device=x.device) <= positions[:, None]
        scores = (q @ self.keys.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(~seen, float("-inf"))
        return self.out((scores.softmax(-1) @ self.values).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, dim: int, heads: int, longest: int) -> None:
        super().__init__()
        self.norm, self.norm_2 = RMSNorm(dim), RMSNorm(dim)
        self.attention = CachedAttention(dim, heads, longest)
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        x = x + self.attention(self.norm(x), positions)
        return x + self.down(functional.silu(self.up(self.norm_2(x))))


@dataclass
class Decoded:
    logits: Tensor
    hidden: tuple[Tensor, ...]
    extra: dict[str, Tensor]


class Decoder(nn.Module):
    """Tied embedding and head, a cache in buffers, hooks, `no_grad` inside, a dataclass of a tuple and a dict."""

    def __init__(self, dim: int = 16, heads: int = 2, words: int = 19, longest: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, dim)
        self.layers = nn.ModuleList(Layer(dim, heads, longest) for _ in range(1))
        self.head = nn.Linear(dim, words, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.layers[0].register_forward_pre_hook(self._count)
        self.layers[0].register_forward_hook(lambda module, args, output: output * 2)

    def _count(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self.calls += 1

    @torch.no_grad()
    def entropy(self, logits: Tensor) -> Tensor:
        p = logits.softmax(-1)
        return -(p * p.log()).sum(-1)

    def forward(self, tokens: Tensor, positions: Tensor) -> Decoded:
        x = self.embedding(tokens)
        hidden = []
        for layer in self.layers:
            x = layer(x, positions)
            hidden.append(x)
        logits = self.head(x)
        return Decoded(logits, tuple(hidden), {"entropy": self.entropy(logits)})


def decoded() -> dict[str, Tensor]:
    return {"tokens": torch.randint(0, 19, (1, 3)), "positions": torch.arange(2, 5)}


class Images(nn.Module):
    """Convolutions in channels_last with batch norms; weights under two parametrisations."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = parametrizations.weight_norm(nn.Conv2d(3, 8, 3, padding=1, bias=False))
        self.norm = nn.BatchNorm2d(8)
        self.head = parametrizations.spectral_norm(nn.Linear(8, 5))
        nn.init.uniform_(self.norm.running_mean)
        nn.init.uniform_(self.norm.running_var, 0.5, 2.0)
        self.to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y = functional.relu(self.norm(self.stem(x)))
        return {"features": y, "logits": self.head(y.mean((2, 3)))}


def images() -> list[Tensor]:
    return [torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)]


class Logged(nn.Module):
    """A value on the host between two halves, each of which changes a buffer; one more tensor as a plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 24), nn.Linear(24, 64)
        self.register_buffer("mean", torch.zeros(24))
        self.register_buffer("seen", torch.zeros(()))
        self.last = torch.zeros(6, 64)
        self.history: list[float] = []

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.relu(self.first(x))
        self.mean.lerp_(y.mean(0), 0.1)
        self.history.append(y.abs().max().item())
        self.seen += 1
        out = self.second(torch.tanh(y + self.mean)) + 0.5 * self.last
        self.last.copy_(out)
        return out, y


def rows() -> list[Tensor]:
    return [torch.randn(6, 16)]


def transposed() -> list[Tensor]:
    """Not contiguous, and not at the start of its storage."""
    return [torch.randn(18, 8)[2:].t()[1:7]]


class Growing(nn.Module):
    """A cache that is longer after each call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(0, 16))

    def forward(self, x: Tensor) -> Tensor:
        self.cache = torch.cat([self.cache, x])
        return self.cache.softmax(0)


class Encoder(nn.TransformerEncoderLayer):
    """A library's layer with the author's sizes, `forward` as the library has it."""

    def __init__(self) -> None:
        super().__init__(16, 2, 32, dropout=0.1, batch_first=True)


def sequence() -> list[Tensor]:
    return [torch.randn(2, 5, 16)]


class Mlp(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(16, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, 8))


Stack = nn.Sequential


def stack() -> list[nn.Module]:
    return [nn.Linear(16, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, 8)]


def make_mlp(width: int = 24) -> nn.Module:
    return nn.Sequential(nn.Linear(16, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, 8))


@torch.library.custom_op("kernelopt_tests::clipped", mutates_args=())
def clipped(x: Tensor, limit: float) -> Tensor:
    return x.clamp(-limit, limit)


@clipped.register_fake
def _(x: Tensor, limit: float) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("kernelopt_tests::accumulate", mutates_args={"total"})
def accumulate(total: Tensor, x: Tensor) -> None:
    total.add_(x.sum(0))


@accumulate.register_fake
def _(total: Tensor, x: Tensor) -> None:
    return None


class Custom(nn.Module):
    """A vendor's operators between generated kernels: one returns, one writes into a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(16), nn.Linear(16, 24)
        self.register_buffer("total", torch.zeros(24))

    def forward(self, x: Tensor) -> Tensor:
        y = clipped(self.up(self.norm(x)), 0.75)
        accumulate(self.total, y)
        return torch.softmax(y * 2 + self.total, -1)


class Half(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(16), nn.Linear(16, 24)
        self.to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        return functional.gelu(self.up(self.norm(x.to(self.up.weight.dtype))))


def bfloat() -> list[torch.dtype]:
    return [torch.bfloat16]


def half() -> list[torch.dtype]:
    return [torch.float16]


class Float8(nn.Module):
    """Weights kept as float8 with a scale for each row."""

    def __init__(self) -> None:
        super().__init__()
        weight = torch.randn(24, 16)
        scale = weight.abs().amax(1, keepdim=True) / 448
        self.register_buffer("weight", (weight / scale).to(torch.float8_e4m3fn))
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(functional.linear(x, self.weight.to(x.dtype) * self.scale), -1)


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(16), nn.Linear(16, 24)

    def forward(self, x: Tensor) -> Tensor:
        return functional.gelu(self.up(self.norm(x)))


@torch.compile
class CompiledClass(Body):
    pass


class CompiledForward(Body):
    @torch.compile(mode="max-autotune-no-cudagraphs")
    def forward(self, x: Tensor) -> Tensor:
        return functional.gelu(self.up(self.norm(x)))


class CompiledSelf(Body):
    def __init__(self) -> None:
        super().__init__()
        self.compile()


class CompiledOwnForward(Body):
    def __init__(self) -> None:
        super().__init__()
        self.forward = torch.compile(self.forward)


class CompiledPart(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.compile(Body())

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) * 2


def compiled_model() -> nn.Module:
    return torch.compile(Body())


class Locked(Body):
    """Holds what cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x) + self.calls


class OldNorm(nn.Module):
    """The hook of `torch.nn.utils.weight_norm` sets the weight anew before each call: a tensor that no copy takes."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.utils.weight_norm(nn.Linear(16, 24))

    def forward(self, x: Tensor) -> Tensor:
        return functional.gelu(self.up(x))


class Rotary(nn.Module):
    """A complex table, as Llama's first code has it."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(6.0), 1e4 ** -torch.arange(0, 1, 1 / 4))
        self.register_buffer("table", torch.polar(torch.ones_like(angles), angles), persistent=False)
        self.up = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.view_as_complex(self.up(x).unflatten(-1, (-1, 2)))
        return torch.view_as_real(y * self.table).flatten(-2)


def rotated() -> list[Tensor]:
    return [torch.randn(2, 6, 8)]


class Spectrum(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(torch.fft.rfft(torch.tanh(x)).abs() + 1) * 2


class Quantised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.ao.quantization.quantize_dynamic(Mlp(), {nn.Linear}, dtype=torch.qint8)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


class Parallel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.parallel.DistributedDataParallel(Mlp())

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


class Sharded(nn.Module):
    """What `nn.DataParallel` leaves of a model on a machine without GPUs."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.DataParallel(Mlp())

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


class FullySharded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from torch.distributed.fsdp import FullyShardedDataParallel

        self.body = FullyShardedDataParallel(Mlp())

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


class ComplexIn(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.abs()


def complex_rows() -> list[Tensor]:
    return [torch.randn(6, 16, dtype=torch.complex64)]


class ComplexWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.weight).abs()


class Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.jit.trace(Mlp().eval(), torch.randn(6, 16))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


@triton.jit
def scaled_add(x_ptr, y_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out_ptr + at, tl.load(x_ptr + at, inside) + scale * tl.load(y_ptr + at, inside), inside)


class OwnKernel(nn.Module):
    """A Triton kernel of the author's between the compiler's, and a number that lies on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(16), nn.Linear(16, 16)
        self.temperature = torch.tensor(0.7)

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(self.norm(x))
        out, n = torch.empty_like(y), y.numel()
        scaled_add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](y, x, out, n, 0.5, BLOCK=256)
        return torch.softmax(out / self.temperature, -1)
