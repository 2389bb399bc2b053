"""Statistics of interleaved timings: paired bootstrap over A B B A blocks, A/A noise, when to stop.

Samples come in the order a b b a a b b a ...; block i holds a[2i], b[2i], b[2i+1], a[2i+1]. Its log ratio
(log a + log a - log b - log b) / 2 cancels any drift that is linear over the block, and speedups are averaged as
logarithms, so that 2x and 1/2x weigh the same.

Outliers: no block is removed. The most extreme fifth at each end counts as the value at the edge of that fifth
(Winsorised mean, 20%). Interrupts and clock changes hit single samples of either arm by factors, and up to a fifth of
hit blocks at each end cannot move the estimate, while on clean normal noise its error is only some 5% above the
mean's (the median's: 25%). How many blocks were pulled in by how much is in the evidence.

Interval: percentile bootstrap of that mean, drawing runs of neighbouring blocks (circular, length n^(1/3)), because a
burst spans neighbours and drawing single blocks would make the interval too narrow (Kuensch 1989; Hall, Horowitz and
Jing 1995 for the length). It is widened about the centre by sqrt(n / (n - 1)) and by Student's t over the normal
quantile (Hesterberg 2015, "expanded percentile"), with the degrees of freedom of a trimmed mean (Tukey and McLaughlin
1963): 1.31 with ten blocks, 1.01 with two hundred.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Times = Sequence[float] | Floats

WINSOR = 0.2
"""Share of blocks at each end that counts as the edge of that share."""
MIN_BLOCKS = 10
"""Fewer say nothing: with ten, two at each end may be outliers."""
RESAMPLES = 2000
"""The Monte Carlo error of a 2.5% bound is then some 5% of the interval's half width."""
CHUNK = 4_000_000
"""Numbers drawn at once, to bound memory."""


@dataclass(frozen=True)
class Estimate:
    """Speedup of b over a (a's time / b's time) with its interval; times in seconds are medians."""

    speedup: float
    low: float
    high: float
    blocks: int
    confidence: float
    a_s: float
    b_s: float
    spread: float
    """Standard deviation of the blocks' log ratios, outliers included."""
    pulled: int
    """Blocks more than three Winsorised standard deviations away: outliers that were pulled in."""

    @property
    def half_width(self) -> float:
        """Half the interval, as a logarithm: about the relative error of the speedup."""
        return (math.log(self.high) - math.log(self.low)) / 2


def log_ratios(a: Times, b: Times) -> Floats:
    """One log speedup a block, shape (min(len(a), len(b)) // 2,). An incomplete last block is left out.

    Raises ValueError where a time is not finite and above zero.
    """
    n = min(len(a), len(b)) // 2 * 2
    times = np.array([a[:n], b[:n]], dtype=np.float64)
    if not bool(np.all(np.isfinite(times) & (times > 0))):
        raise ValueError("a time is not a finite number above zero")
    logs = np.log(times).reshape(2, -1, 2).mean(axis=2)
    ratios: Floats = logs[0] - logs[1]
    return ratios


def winsorised_mean(values: Floats) -> Floats:
    """Over the last axis."""
    n = values.shape[-1]
    k = int(n * WINSOR)
    ordered = np.sort(values, axis=-1)
    inner = ordered[..., k : n - k].sum(axis=-1)
    mean: Floats = (inner + k * (ordered[..., k] + ordered[..., n - k - 1])) / n
    return mean


def bootstrap(ratios: Floats, rng: np.random.Generator, *, resamples: int = RESAMPLES) -> Floats:
    """`resamples` Winsorised means of samples drawn with replacement as circular runs of neighbours."""
    n = len(ratios)
    length = max(1, round(n ** (1 / 3)))
    runs = math.ceil(n / length)
    neighbours = np.lib.stride_tricks.sliding_window_view(np.concatenate([ratios, ratios[: length - 1]]), length)
    means = []
    step = max(1, CHUNK // n)
    for begin in range(0, resamples, step):
        starts = rng.integers(0, n, size=(min(step, resamples - begin), runs))
        means.append(winsorised_mean(neighbours[starts].reshape(len(starts), -1)[:, :n]))
    return np.concatenate(means)


def widening(freedom: int, confidence: float) -> float:
    """Student's t quantile over the normal one, two-sided (Abramowitz and Stegun 26.7.5; within 0.2% from 5 on)."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    t = (z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
         + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3))
    return t / z


def estimate(
    a: Times, b: Times, rng: np.random.Generator, *, confidence: float = 0.95,
    resamples: int = RESAMPLES,
) -> Estimate:
    """From interleaved times in seconds. Raises ValueError with fewer than MIN_BLOCKS blocks or a bad time."""
    ratios = log_ratios(a, b)
    n = len(ratios)
    if n < MIN_BLOCKS:
        raise ValueError(f"{n} blocks of four samples: at least {MIN_BLOCKS} are needed")
    centre = float(winsorised_mean(ratios))
    tail = (1 - confidence) / 2
    low, high = np.quantile(bootstrap(ratios, rng, resamples=resamples), [tail, 1 - tail])
    wider = math.sqrt(n / (n - 1)) * widening(n - 2 * int(n * WINSOR) - 1, confidence)
    edge = np.quantile(ratios, [WINSOR, 1 - WINSOR])
    scale = float(np.std(np.clip(ratios, *edge))) * 1.35
    return Estimate(
        speedup=math.exp(centre),
        low=math.exp(centre + (min(float(low), centre) - centre) * wider),
        high=math.exp(centre + (max(float(high), centre) - centre) * wider),
        blocks=n,
        confidence=confidence,
        a_s=float(np.median(a)),
        b_s=float(np.median(b)),
        spread=float(np.std(ratios)),
        pulled=int(np.sum(np.abs(ratios - np.median(ratios)) > 3 * scale)) if scale > 0 else 0,
    )


def noise_floor(control: Estimate) -> float:
    """The largest speedup that identical code may have shown: the A/A interval's farther end, either way round."""
    return max(control.high, 1 / control.low)


def settled(measured: Estimate, threshold: float, *, precision: float = 0.005) -> bool:
    """Whether more samples are not worth their time.

    True when the half width is below `precision` (a width says nothing about which way the answer goes, so stopping
    by it favours neither), or when the estimate is farther from the threshold, on either side, than four half widths:
    about eight standard errors, where looking a few times costs nothing in error rate.
    """
    distance = abs(math.log(threshold) - math.log(measured.speedup))
    return measured.half_width < precision or distance > 4 * measured.half_width


def rounds(budget_s: float, *, count: int = 2) -> tuple[float, ...]:
    """Seconds of each measuring round, each twice the one before, together the budget."""
    unit = budget_s / (2**count - 1)
    return tuple(unit * 2**i for i in range(count))
