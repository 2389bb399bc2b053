"""Simulated timings: noise, drift and bursts on a known speedup."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Machine:
    """`noise`: standard deviation of log times; `drift`: growth over the run, with a slow wave of half that size;
    `bursts`: share of samples inside bursts of 4 to 15 samples that are 1.3 to 3 times slower."""

    noise: float = 0.05
    drift: float = 0.0
    bursts: float = 0.0

    def times(self, rng: np.random.Generator, speedup: float, blocks: int) -> tuple[Floats, Floats]:
        """(a, b) in seconds, two of each a block, in the order a b b a."""
        n = 4 * blocks
        t = 1e-3 * np.exp(self.noise * rng.standard_normal(n))
        t *= 1 + self.drift * np.linspace(0, 1, n) + self.drift / 2 * np.sin(np.linspace(0, 12, n))
        position = 0
        while self.bursts and position < n:
            position += int(rng.geometric(self.bursts / 9.5))
            length = int(rng.integers(4, 16))
            t[position : position + length] *= rng.uniform(1.3, 3)
            position += length
        quads = t.reshape(-1, 4)
        return quads[:, [0, 3]].ravel(), quads[:, [1, 2]].ravel() / speedup


MACHINES = {
    "noise": Machine(), "drift": Machine(drift=0.3), "bursts": Machine(bursts=0.05),
    "all": Machine(drift=0.3, bursts=0.05), "heavy bursts": Machine(bursts=0.15),
}
