import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelopt_bot.gates import statistics
from tests.gates.simulation import MACHINES, Machine


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def test_known_speedup() -> None:
    a, b = Machine(noise=0.01).times(rng(), 2.0, 100)
    found = statistics.estimate(a, b, rng())
    assert found.low < 2.0 < found.high
    assert found.speedup == pytest.approx(2.0, rel=0.01)
    assert (found.blocks, found.pulled) == (100, 0)
    assert found.a_s == pytest.approx(1e-3, rel=0.01)


def test_linear_drift_cancels_exactly() -> None:
    """In logarithms: times that grow by a constant factor a sample."""
    t = np.asarray(1.01 ** np.arange(80), dtype=np.float64).reshape(-1, 4)
    ratios = statistics.log_ratios(t[:, [0, 3]].ravel(), t[:, [1, 2]].ravel())
    assert np.allclose(ratios, 0.0, atol=1e-12)


def test_one_huge_outlier_does_not_move_the_estimate_and_is_counted() -> None:
    a, b = Machine(noise=0.01).times(rng(), 1.1, 50)
    clean = statistics.estimate(a, b, rng())
    a[6] *= 1000
    hit = statistics.estimate(a, b, rng())
    assert hit.speedup == pytest.approx(clean.speedup, rel=0.003)
    assert hit.pulled == clean.pulled + 1
    assert hit.spread > 10 * clean.spread
    assert hit.blocks == clean.blocks


def test_the_same_seed_gives_the_same_interval() -> None:
    a, b = Machine().times(rng(), 1.0, 30)
    assert statistics.estimate(a, b, rng()) == statistics.estimate(a, b, rng())


@pytest.mark.parametrize("bad", [
    [1.0] * 18, [], [1.0] * 39 + [0.0], [1.0] * 39 + [math.nan], [math.inf] * 40, [-1.0] * 40])
def test_too_short_or_impossible(bad: list[float]) -> None:
    with pytest.raises(ValueError, match=r"blocks|finite"):
        statistics.estimate(bad, bad, rng())


def test_identical_times_have_an_interval_of_no_width() -> None:
    found = statistics.estimate([1.0] * 40, [1.0] * 40, rng())
    assert (found.speedup, found.low, found.high) == (1.0, 1.0, 1.0)
    assert statistics.noise_floor(found) == 1.0


@given(st.lists(st.floats(-1, 1), min_size=10, max_size=60))
def test_winsorised_mean_is_the_clipped_mean(values: list[float]) -> None:
    ratios = np.array(values)
    ordered = np.sort(ratios)
    k = int(len(values) * statistics.WINSOR)
    expected = np.clip(ratios, ordered[k], ordered[-k - 1]).mean()
    assert float(statistics.winsorised_mean(ratios)) == pytest.approx(float(expected), abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.5, 2.0), st.sampled_from(sorted(MACHINES)))
def test_swapping_the_arms_inverts_the_answer(seed: int, speedup: float, machine: str) -> None:
    a, b = MACHINES[machine].times(np.random.default_rng(seed), speedup, 40)
    # The same draws of runs for both directions.
    one, other = (statistics.estimate(x, y, rng()) for x, y in ((a, b), (b, a)))
    assert other.speedup == pytest.approx(1 / one.speedup)
    assert one.low <= one.speedup <= one.high
    assert other.high == pytest.approx(1 / one.low, rel=0.01)


@pytest.mark.parametrize("machine", MACHINES)
def test_intervals_cover_the_truth(machine: str) -> None:
    """95% intervals: 400 runs, so that less than 91% would be four standard errors off."""
    draws = np.random.default_rng(11)
    covered = 0
    for _ in range(400):
        a, b = MACHINES[machine].times(draws, 1.05, 100)
        found = statistics.estimate(a, b, draws, resamples=300)
        covered += found.low <= 1.05 <= found.high
    assert covered >= 364


@pytest.mark.parametrize(("freedom", "quantile"), [(5, 2.5706), (9, 2.2622), (39, 2.0227), (271, 1.9688)])
def test_small_samples_have_students_quantile(freedom: int, quantile: float) -> None:
    """Against printed tables of the 97.5% quantile."""
    assert statistics.widening(freedom, 0.95) * 1.959964 == pytest.approx(quantile, rel=2e-3)


@pytest.mark.parametrize("blocks", [10, 20, 40])
def test_short_measurements_have_honest_intervals(blocks: int) -> None:
    draws = np.random.default_rng(12)
    covered = 0
    for _ in range(400):
        found = statistics.estimate(*Machine().times(draws, 1.0, blocks), draws, resamples=300)
        covered += found.low <= 1.0 <= found.high
    assert covered >= 364


def test_settled() -> None:
    def found(speedup: float, width: float) -> statistics.Estimate:
        low, high = speedup * math.exp(-width), speedup * math.exp(width)
        return statistics.Estimate(speedup, low, high, 100, 0.95, 1, 1, 0, 0)

    assert statistics.settled(found(1.035, 0.004), 1.03)
    assert not statistics.settled(found(1.035, 0.02), 1.03)
    assert statistics.settled(found(1.5, 0.02), 1.03)
    assert statistics.settled(found(0.9, 0.02), 1.03)


def test_rounds_are_the_budget() -> None:
    assert statistics.rounds(9.0) == (3.0, 6.0)
    assert sum(statistics.rounds(10.0, count=4)) == pytest.approx(10.0)
