from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from kernelopt_bot.sandbox.worker.promote_graph import CannotPromote, promote, run_float64

aten = torch.ops.aten


def traced(function: Callable[..., Tensor], *inputs: Tensor) -> fx.GraphModule:
    return make_fx(function)(*inputs)


def test_casts_and_constants_are_promoted() -> None:
    def function(x: Tensor) -> list[Tensor]:
        third = torch.full((), 1 / 3, dtype=torch.float32)
        return [(x.to(torch.bfloat16) * third).to(torch.float32).sum()]

    x = torch.randn(100)
    (exact,), after = run_float64(traced(function, x), [x])
    assert exact.dtype is torch.float64
    assert float(exact) == pytest.approx(float(x.double().sum()) / 3, rel=1e-12)
    assert after[0].dtype is torch.float64 and torch.equal(x, after[0].float())


def test_inputs_are_not_changed_and_mutations_are_seen() -> None:
    x = torch.ones(3, dtype=torch.float64)
    gm = traced(lambda t: [aten.copy_.default(t, t * 3)], x.clone())
    _, after = run_float64(gm, [x])
    assert x.tolist() == [1, 1, 1] and after[0].tolist() == [3, 3, 3]


def test_fused_attention_has_the_composite_formula() -> None:
    q, k, v = (torch.randn(1, 2, 8, 16) for _ in range(3))
    target = aten._scaled_dot_product_flash_attention_for_cpu.default
    gm = traced(lambda a, b, c: [target(a, b, c, 0.0, True)[0]], q, k, v)
    (got,), _ = run_float64(gm, [q, k, v])
    exact = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
    torch.testing.assert_close(got, exact, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("function", "words"), [
    (lambda x: [x + aten.rand.default([4])], "random"),
    (lambda x: [aten.bernoulli.default(x.sigmoid())], "random"),
    (lambda x: [x.view(torch.int32)], "another type"),
])
def test_what_means_something_else_is_refused(function: Callable[..., Tensor], words: str) -> None:
    x = torch.randn(4)
    with pytest.raises(CannotPromote, match=words):
        run_float64(traced(function, x), [x])


def test_integers_stay() -> None:
    assert promote(torch.tensor([1])).dtype is torch.int64 and promote(3) == 3
    assert promote(torch.zeros(1, dtype=torch.complex64)).dtype is torch.complex128
