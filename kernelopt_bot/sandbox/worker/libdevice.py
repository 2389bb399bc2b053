"""NVIDIA's libdevice functions evaluated by torch, for the interpreter lane.

Keyed by the name that the compiled code would call, `__nv_<name>` for float64 and `__nv_<name>f` for float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

PREFIX = "__nv_"

_SAME_NAME = (
    "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "floor", "ceil", "trunc",
    "fmod", "atan2", "hypot", "copysign", "nextafter", "pow",
)

TABLE: dict[str, Callable[..., Tensor]] = {name: getattr(torch, name) for name in _SAME_NAME}
TABLE.update(
    fabs=torch.abs, abs=torch.abs, llabs=torch.abs,
    rint=torch.round, nearbyint=torch.round,
    llrint=torch.round,
    round=lambda x: torch.where(x.frac().abs() == 0.5, x.trunc() + x.sign(), x.round()),
    llround=lambda x: torch.where(x.frac().abs() == 0.5, x.trunc() + x.sign(), x.round()),
    exp10=lambda x: torch.pow(torch.full_like(x, 10.0), x),
    erfinv=torch.special.erfinv, erfcx=torch.special.erfcx, normcdf=torch.special.ndtr, normcdfinv=torch.special.ndtri,
    tgamma=lambda x: _gamma(x),
    j0=torch.special.bessel_j0, j1=torch.special.bessel_j1, y0=torch.special.bessel_y0, y1=torch.special.bessel_y1,
    cyl_bessel_i0=torch.special.i0, cyl_bessel_i1=torch.special.i1,
    cbrt=lambda x: x.sign() * x.abs().pow(1 / 3),
    rcbrt=lambda x: x.sign() / x.abs().pow(1 / 3),
    sinpi=lambda x: torch.sin(x * torch.pi), cospi=lambda x: torch.cos(x * torch.pi),
    fmax=torch.fmax, fmin=torch.fmin, max=torch.maximum, min=torch.minimum,
    fma=lambda x, y, z: torch.addcmul(z.double(), x.double(), y.double()).to(x.dtype),
    fdim=lambda x, y: torch.clamp(x - y, min=0),
    remainder=lambda x, y: x - torch.round(x / y) * y,
    ldexp=lambda x, n: torch.ldexp(x.double(), n).to(x.dtype),
    scalbn=lambda x, n: torch.ldexp(x.double(), n).to(x.dtype),
    ilogb=lambda x: torch.frexp(x)[1] - 1, logb=lambda x: (torch.frexp(x)[1] - 1).to(x.dtype),
    isnan=torch.isnan, isinf=torch.isinf, finite=torch.isfinite, isfinite=torch.isfinite, signbit=torch.signbit,
    add_rn=torch.add, sub_rn=torch.sub, mul_rn=torch.mul, div_rn=torch.div, rcp_rn=torch.reciprocal,
    fma_rn=lambda x, y, z: torch.addcmul(z.double(), x.double(), y.double()).to(x.dtype), sqrt_rn=torch.sqrt,
    rsqrt_rn=torch.rsqrt, powi=torch.pow,
    popc=lambda x: _population_count(x),
    fast_exp=torch.exp, fast_log=torch.log, fast_sin=torch.sin, fast_cos=torch.cos, fast_tan=torch.tan,
    fast_exp10=lambda x: torch.pow(torch.full_like(x, 10.0), x), fast_log2=torch.log2, fast_log10=torch.log10,
    fast_pow=torch.pow, fast_fdivide=torch.div, saturate=lambda x: x.nan_to_num(nan=0.0).clamp(0, 1),
)
_ALIASES = {"isnand": "isnan", "isinfd": "isinf", "isfinited": "isfinite", "finitef": "isfinite", "signbitd": "signbit"}


def _gamma(x: Tensor) -> Tensor:
    magnitude = torch.exp(torch.lgamma(x))
    odd = torch.remainder(torch.floor(x), 2) == 1
    return torch.where((x < 0) & odd, -magnitude, magnitude)


def _population_count(x: Tensor) -> Tensor:
    width = x.element_size() * 8
    return sum(((x >> bit) & 1 for bit in range(width)), torch.zeros_like(x))


def lookup(symbol: str) -> Callable[..., Tensor]:
    """The function behind a libdevice symbol. Raises NotImplementedError, naming it, where there is none."""
    name = symbol.removeprefix(PREFIX)
    rounded = name[1:] if name.endswith("_rn") and name[:1] in "fd" else name
    spellings = (name.removesuffix("f"), name.replace("f_r", "_r"), name.removesuffix("ll"), rounded)
    for candidate in (_ALIASES.get(name, name), *spellings):
        if candidate in TABLE:
            return TABLE[candidate]
    raise NotImplementedError(f"libdevice function {symbol} is not available in the interpreter lane")


def evaluate_symbol(symbol: str, arguments: Sequence[Any], result_type: Any) -> Any:
    """Apply a libdevice function to numpy arrays, broadcast to one shape; the result has numpy type `result_type`."""
    function = lookup(symbol)
    tensors = [torch.from_numpy(np.array(a, copy=True)) for a in np.broadcast_arrays(*arguments)]
    return function(*tensors).numpy().astype(result_type)
