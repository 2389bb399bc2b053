"""The precision rule: is a candidate's output as close to float64 as the compiler's own?

With a float64 reference f, a candidate c and the baseline b, over the elements where all three are finite:

    RMSE(c, f)  <= m * RMSE(b, f)  + k * eps(dtype) * RMS(f)
    max|c - f|  <= m * max|b - f|  + k * eps(dtype) * max|f|

`m` holds for float32 and wider; half types and outputs of fewer than 1000 elements get at least `m_half`, since
their baseline error is a small or coarse sample (pytorch's own benchmark harness takes 2, and 3 for half and for
fewer than 1000 elements). The k-term exists because a perfectly honest other order of summation can beat 2x: a
sequential sum of 256 float32 does so in 497 of 500 seeds. Errors below the smallest normal number are
flush-to-zero, not errors.

Where the baseline's errors on neighbouring inputs are given too, the larger of each pair stands for it.
Without a reference the baseline stands in for f with RMSE(b, f) = 0; callers that demand more read `bit_equal`.
Integers and booleans must be equal. Non-finite results must be of the baseline's class (nan, +inf, -inf) wherever
the reference is finite in the output's dtype. Where float64 itself is nan and the baseline is too, the candidate must
be nan; where both are the same infinity it must not be finite (another order of summation may overflow on the way,
and then give another infinity or nan). Elsewhere a difference is only reported.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

CHUNK = 1 << 22
"""Elements compared at a time: some 200 MiB of float64 temporaries at most."""
SMALL_M = 3.0
SMALL_NUMEL = 1000
TOLERANCES = {
    torch.float64: (1e-7, 1e-7),
    torch.float32: (1.3e-6, 1e-5),
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
}
"""dtype -> (rtol, atol) of `allclose`; the defaults of `torch.testing.assert_close`."""
_INTEGER_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass
class _Sums:
    """Running sums over chunks; squares are scaled by the square of `scale` so that they cannot overflow."""

    scale: float = 1.0
    count: int = 0
    candidate_squares: float = 0.0
    baseline_squares: float = 0.0
    reference_squares: float = 0.0
    candidate_max: float = 0.0
    baseline_max: float = 0.0
    reference_max: float = 0.0
    difference_max: float = 0.0
    allclose: bool = True
    bit_equal: bool = True
    class_mismatches: int = 0
    reported_mismatches: int = 0

    def root(self, squares: float) -> float:
        return self.scale * math.sqrt(squares / self.count) if self.count else 0.0


@dataclass(frozen=True)
class _Judged:
    passed: bool
    reason: str
    least_k_rmse: float | None
    """The least k under which the first line of the rule holds; None if no k does."""
    least_k_max: float | None


def _flat(tensor: Tensor, like: Tensor) -> Tensor:
    """One dimension, in the memory order of `like`, so that dense permuted layouts need no copy."""
    if tensor.is_complex():
        return _flat(torch.view_as_real(tensor), torch.view_as_real(like))
    strides = list(like.stride())
    order = sorted(range(like.dim()), key=lambda d: -strides[d])
    return tensor.permute(order).reshape(-1)


def _chunks(*tensors: Tensor | None) -> Iterator[tuple[Tensor | None, ...]]:
    first = next(t for t in tensors if t is not None)
    for start in range(0, first.numel(), CHUNK):
        yield tuple(None if t is None else t[start : start + CHUNK].to(first.device) for t in tensors)


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal bit for bit; any nan equals any nan, +0 differs from -0. False if shape or dtype differ."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.numel() == 0:
        return True
    flat_a, flat_b = _flat(a, a), _flat(b, a)
    return all(_same_bits(x, y) for x, y in _chunks(flat_a, flat_b) if x is not None and y is not None)


def _same_bits(a: Tensor, b: Tensor) -> bool:
    if not a.is_floating_point():
        return bool(torch.equal(a, b))
    integer = _INTEGER_OF_SIZE[a.element_size()]
    return bool(((a.view(integer) == b.view(integer)) | (a.isnan() & b.isnan())).all())


def _class(t: Tensor) -> Tensor:
    return torch.where(t.isnan(), 3, torch.where(t.isinf(), torch.where(t > 0, 2, 1), 0))


def _add(
    sums: _Sums, candidate: Tensor, baseline: Tensor, reference: Tensor, dtype: torch.dtype, exact: bool
) -> None:
    """`exact`: the reference is float64's, not the baseline standing in."""
    same = _class(candidate) == _class(baseline)
    counts = reference.to(dtype).double().isfinite()
    wrong = ~same & counts
    if exact:
        agreed = ~reference.isfinite() & (_class(baseline) == _class(reference))
        wrong |= agreed & torch.where(reference.isnan(), ~candidate.isnan(), candidate.isfinite())
    sums.class_mismatches += int(wrong.sum())
    sums.reported_mismatches += int((~same & ~wrong).sum())
    finite = counts & candidate.isfinite() & baseline.isfinite()
    zero = torch.zeros((), dtype=torch.float64, device=candidate.device)
    f = torch.where(finite, reference, zero)
    c = torch.where(finite, candidate - reference, zero).abs_()
    b = torch.where(finite, baseline - reference, zero).abs_()
    sums.count += int(finite.sum())
    sums.candidate_squares += float((c / sums.scale).square_().sum())
    sums.baseline_squares += float((b / sums.scale).square_().sum())
    sums.reference_squares += float((f / sums.scale).square_().sum())
    sums.candidate_max = max(sums.candidate_max, float(c.max()))
    sums.baseline_max = max(sums.baseline_max, float(b.max()))
    sums.reference_max = max(sums.reference_max, float(f.abs().max()))
    difference = torch.where(finite, candidate - baseline, zero).abs_()
    sums.difference_max = max(sums.difference_max, float(difference.max()))


def _scale(reference: Tensor) -> float:
    """Largest finite magnitude of a float64 tensor that might overflow when squared, else 1."""
    largest = 0.0
    for (chunk,) in _chunks(reference):
        assert chunk is not None
        largest = max(largest, float(chunk.double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).abs().max()))
    return largest if largest > 1e100 else 1.0


def compare(
    name: str, candidate: Tensor, baseline: Tensor, reference64: Tensor | None, *, m: float, k: float,
    m_half: float = SMALL_M, near_rmse: float = 0.0, near_max: float = 0.0,
) -> dict[str, Any]:
    """One `OutputResult` (docs/architecture.md) under the rule of this module.

    `candidate`, `baseline` and `reference64` have one shape; the first two one dtype. `m`, `k`, `m_half`: no unit.
    All numbers are finite floats; `ratio` is RMSE(candidate)/RMSE(baseline), None where the baseline's is zero;
    `least_k_rmse` and `least_k_max`, of floating types only, are the least k under which each line of the rule holds,
    None where none does. `near_rmse`, `near_max`: the baseline's errors against float64 on inputs next to these.
    Never raises on bad values: a difference in shape or dtype is a failed result.
    """
    dtype_name = str(baseline.dtype).removeprefix("torch.")
    result: dict[str, Any] = {"name": name, "dtype": dtype_name, "numel": baseline.numel()}
    if candidate.shape != baseline.shape or candidate.dtype != baseline.dtype:
        reason = (f"expected {baseline.dtype} {tuple(baseline.shape)}, got {candidate.dtype} {tuple(candidate.shape)}")
        return {**result, **_numbers(_Sums(allclose=False, bit_equal=False)), "passed": False, "reason": reason}
    floating = baseline.is_floating_point() or baseline.is_complex()
    dtype = torch.view_as_real(baseline).dtype if baseline.is_complex() else baseline.dtype
    if not floating:
        return {**result, **_exact(candidate, baseline)}
    c, b = _flat(candidate, baseline), _flat(baseline, baseline)
    f = None if reference64 is None else _flat(reference64, baseline)
    sums = _Sums(scale=_scale(b if f is None else f) if dtype is torch.float64 else 1.0)
    rtol, atol = TOLERANCES.get(dtype, (float(torch.finfo(dtype).eps) * 2, 1e-5))
    for c_part, b_part, f_part in _chunks(c, b, f):
        assert c_part is not None and b_part is not None
        sums.bit_equal = sums.bit_equal and _same_bits(c_part, b_part)
        c64, b64 = c_part.double(), b_part.double()
        sums.allclose = sums.allclose and bool(torch.allclose(c64, b64, rtol=rtol, atol=atol, equal_nan=True))
        _add(sums, c64, b64, b64 if f_part is None else f_part.double(), dtype, f_part is not None)
    judged = _judge(sums, dtype, baseline.numel(), m, k, m_half, (near_rmse, near_max))
    return {**result, **_numbers(sums), "near_rmse": near_rmse, "near_max": near_max, **dataclasses.asdict(judged)}


def _exact(candidate: Tensor, baseline: Tensor) -> dict[str, Any]:
    sums, wrong = _Sums(), 0
    for c, b in _chunks(_flat(candidate, baseline), _flat(baseline, baseline)):
        assert c is not None and b is not None
        differs = c != b
        wrong += int(differs.sum())
        difference = (c.double() - b.double()).abs_()
        sums.difference_max = max(sums.difference_max, float(difference.max()))
    sums.bit_equal = sums.allclose = wrong == 0
    sums.candidate_max = sums.difference_max
    reason = "" if wrong == 0 else f"{wrong} of {baseline.numel()} integers or booleans differ"
    return {**_numbers(sums), "passed": wrong == 0, "reason": reason}


def _judge(
    sums: _Sums, dtype: torch.dtype, numel: int, m: float, k: float, m_half: float, nearby: tuple[float, float],
) -> _Judged:
    finfo = torch.finfo(dtype)
    if finfo.bits <= 16 or numel < SMALL_NUMEL:
        m = max(m, m_half)
    floor, eps = float(finfo.smallest_normal), float(finfo.eps)
    reason = ""
    if sums.class_mismatches:
        reason = f"{sums.class_mismatches} elements are of another non-finite class than the baseline's"
    squares = sums.candidate_squares, sums.baseline_squares, sums.reference_squares
    largest = sums.candidate_max, sums.baseline_max, sums.reference_max
    least: list[float | None] = []
    for what, (got, base, size), near in (
            ("RMSE", map(sums.root, squares), nearby[0]), ("maximum error", largest, nearby[1])):
        base = max(base, near)
        allowed = m * base + k * eps * size + floor
        over = got - m * base - floor
        needed = 0.0 if over <= 0 else over / (eps * size) if eps * size else math.inf
        least.append(needed if math.isfinite(needed) else None)
        if not got <= allowed and not reason:
            terms = f"baseline {base:.3g}, m {m:g}, k {k:g}, scale {size:.3g}"
            reason = f"{what} {got:.3g} is over {allowed:.3g} ({terms})"
    return _Judged(not reason, reason, least[0], least[1])


def _numbers(sums: _Sums) -> dict[str, Any]:
    candidate, baseline = sums.root(sums.candidate_squares), sums.root(sums.baseline_squares)
    return {
        "max_abs": sums.difference_max,
        "rmse_candidate": candidate,
        "rmse_baseline": baseline,
        "max_candidate": sums.candidate_max,
        "max_baseline": sums.baseline_max,
        "rms_reference": sums.root(sums.reference_squares),
        "max_reference": sums.reference_max,
        "ratio": candidate / baseline if baseline else None,
        "allclose": sums.allclose,
        "nonfinite_equal": sums.class_mismatches + sums.reported_mismatches == 0,
        "bit_equal": sums.bit_equal,
    }
