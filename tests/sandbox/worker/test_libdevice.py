"""libdevice functions evaluated by torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
from triton.language.extra.cuda import libdevice

from kernelopt_bot.sandbox.worker.libdevice import TABLE, evaluate_symbol, lookup

X = np.array([0.25, 0.5, 0.9], dtype=np.float32)


@pytest.mark.parametrize(("symbol", "expected"), [
    ("__nv_expf", math.exp), ("__nv_exp", math.exp), ("__nv_erff", math.erf), ("__nv_log1pf", math.log1p),
    ("__nv_rsqrtf", lambda x: 1 / math.sqrt(x)), ("__nv_tgammaf", math.gamma), ("__nv_cbrtf", lambda x: x ** (1 / 3)),
    ("__nv_exp10f", lambda x: 10**x), ("__nv_fast_expf", math.exp), ("__nv_frcp_rn", lambda x: 1 / x),
    ("__nv_lgammaf", math.lgamma), ("__nv_logbf", lambda x: math.frexp(x)[1] - 1),
])
def test_unary_values(symbol: str, expected: object) -> None:
    got = evaluate_symbol(symbol, [X], np.float32)
    assert got == pytest.approx([expected(float(x)) for x in X], rel=2e-6)  # type: ignore[operator]


@pytest.mark.parametrize(("symbol", "expected"), [
    ("__nv_powf", lambda x: x**2.5), ("__nv_fmodf", lambda x: math.fmod(x, 2.5)), ("__nv_fdiv_rn", lambda x: x / 2.5),
    ("__nv_copysignf", lambda x: abs(x)), ("__nv_hypotf", lambda x: math.hypot(x, 2.5)),
    ("__nv_remainderf", lambda x: math.remainder(x, 2.5)),
])
def test_binary_values_broadcast(symbol: str, expected: object) -> None:
    got = evaluate_symbol(symbol, [X, np.array([2.5], dtype=np.float32)], np.float32)
    assert got == pytest.approx([expected(float(x)) for x in X], rel=2e-6)  # type: ignore[operator]


def test_predicates_are_integers_and_rounding_is_as_documented() -> None:
    values = np.array([math.nan, math.inf, -1.0], dtype=np.float32)
    assert evaluate_symbol("__nv_isnanf", [values], np.int32).tolist() == [1, 0, 0]
    assert evaluate_symbol("__nv_isinfd", [values], np.int32).tolist() == [0, 1, 0]
    assert evaluate_symbol("__nv_signbitf", [values[2:]], np.int32).tolist() == [1]
    halves = np.array([0.5, 1.5, -2.5], dtype=np.float32)
    assert evaluate_symbol("__nv_rintf", [halves], np.float32).tolist() == [0.0, 2.0, -2.0]
    assert evaluate_symbol("__nv_roundf", [halves], np.float32).tolist() == [1.0, 2.0, -3.0]
    assert evaluate_symbol("__nv_popc", [np.array([7, 0], dtype=np.int32)], np.int32).tolist() == [3, 0]


def test_an_unknown_function_is_named() -> None:
    with pytest.raises(NotImplementedError, match="__nv_jnf"):
        lookup("__nv_jnf")


def test_every_entry_is_a_function_that_triton_has() -> None:
    known = {n for n in dir(libdevice) if not n.startswith("_")}
    extra = {"fabs", "llabs", "fmax", "fmin", "max", "min", "isfinite", "finite", "powi", "saturate"} | {
        n for n in TABLE if n.endswith("_rn") or n.startswith("fast_")}
    assert set(TABLE) - known - extra == set()
