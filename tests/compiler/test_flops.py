from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from kernelopt_bot.compiler.flops import vendor_flops, vendor_name


def counted(call: Any) -> int:
    with FlopCounterMode(display=False) as counter:
        call()
    return int(counter.get_total_flops())


@pytest.mark.parametrize(("callee", "name"), [
    ("extern_kernels.mm", "mm"), ("torch.ops.aten.mm.default", "mm"), ("aten.bmm.out", "bmm"),
    ("torch.ops.aten._scaled_dot_product_flash_attention.default", "_scaled_dot_product_flash_attention"),
    ("torch.cuda.synchronize", ""), ("foo", ""), ("extern_kernels.a.b", "")])
def test_names(callee: str, name: str) -> None:
    assert vendor_name(callee) == name


@pytest.mark.parametrize(("callee", "shapes", "call"), [
    ("extern_kernels.mm", [(3, 5), (5, 7)], torch.mm), ("extern_kernels.bmm", [(2, 3, 5), (2, 5, 7)], torch.bmm),
    ("extern_kernels.addmm", [(7,), (3, 5), (5, 7)], torch.addmm),
    ("extern_kernels.baddbmm", [(2, 3, 7), (2, 3, 5), (2, 5, 7)], torch.baddbmm),
    ("torch.ops.aten._scaled_dot_product_flash_attention.default", [(2, 4, 16, 8), (2, 4, 32, 8), (2, 4, 32, 8)],
     lambda q, k, v: torch.softmax(q @ k.transpose(-1, -2), -1) @ v)])
def test_products_as_torch_counts_them(callee: str, shapes: list[tuple[int, ...]], call: Any) -> None:
    tensors = [torch.randn(s) for s in shapes]
    assert vendor_flops(callee, shapes, {}) == counted(lambda: call(*tensors))


@pytest.mark.parametrize(("x", "weight", "options"), [
    ((2, 6, 17), (4, 6, 3), {}), ((2, 6, 17, 19), (4, 3, 3, 5), {"groups": 2, "stride": (2, 1), "padding": (1, 2)}),
    ((1, 2, 9, 9, 9), (3, 2, 2, 2, 2), {"dilation": (2, 2, 2)}),
    ((2, 6, 11), (6, 4, 3), {"transposed": True, "stride": (2,)})])
def test_convolutions_as_torch_counts_them(x: tuple[int, ...], weight: tuple[int, ...],
                                           options: dict[str, Any]) -> None:
    n = len(weight) - 2
    full = {"stride": (1,) * n, "padding": (0,) * n, "dilation": (1,) * n, "transposed": False,
            "output_padding": (0,) * n, "groups": 1, **options}
    a, b = torch.randn(x), torch.randn(weight)
    expected = counted(lambda: torch.ops.aten.convolution.default(a, b, None, *full.values()))
    assert vendor_flops("extern_kernels.convolution", [x, weight, None], full) == expected


def test_what_is_unknown_stays_unknown() -> None:
    assert vendor_flops("extern_kernels.fancy", [(3, 5), (5, 7)], {}) is None
    assert vendor_flops("extern_kernels.mm", [(3, 5)], {}) is None
    assert vendor_flops("extern_kernels.mm", [(3, 5), (6, 7)], {}) is None
    assert vendor_flops("extern_kernels.convolution", [(2, 6, 17), (4, 6, 3)], {}) is None
