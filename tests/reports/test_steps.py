"""Step changes of times are found and dated, and nothing else is reported."""

import numpy as np
import pytest

from ptxdiff.reports.history import steps

NIGHTS = 30


def series(seed, noise=0.003, heavy=False):
    rng = np.random.default_rng(seed)
    draws = rng.standard_t(3, NIGHTS) if heavy else rng.normal(size=NIGHTS)
    return 1e-5 * np.exp(noise * draws)


@pytest.mark.parametrize("factor", [1.05, 1 / 1.05, 1.5])
@pytest.mark.parametrize("night", [5, 17, 28])
def test_a_step_is_found_on_its_night(factor, night):
    values = series(night)
    values[night:] *= factor
    (step,) = steps(list(values), 0.01)
    assert step.index == night
    assert step.ratio == pytest.approx(factor, rel=0.01)


def test_a_step_on_the_newest_night_must_be_larger():
    values = series(3)
    values[-1] *= 1.2
    assert [s.index for s in steps(list(values), 0.01)] == [NIGHTS - 1]
    values = series(3)
    values[-1] *= 1.015
    assert steps(list(values), 0.01) == []


def test_two_steps():
    values = series(4)
    values[10:] *= 1.1
    values[20:] /= 1.2
    assert [s.index for s in steps(list(values), 0.01)] == [10, 20]


def test_one_slow_night_is_no_step():
    values = series(5)
    values[12] *= 1.4
    assert steps(list(values), 0.01) == []


@pytest.mark.sample(2)
@pytest.mark.parametrize(("heavy", "allowed"), [(False, 0), (True, 2)])
def test_histories_without_steps_have_few_alarms(heavy, allowed):
    # The catalogue has about 500 series. Noise with the tails of Student's t(3) gives 7 false alarms in 10,000, all but
    # one on the newest night; normal noise gives none.
    assert sum(bool(steps(list(series(seed, heavy=heavy)), 0.01)) for seed in range(2000)) <= allowed


def test_a_difference_within_the_noise_of_the_session_is_none():
    values = series(6, noise=0.0005)
    values[15:] *= 1.008
    assert steps(list(values), 0.01) == []
    assert len(steps(list(values), 0.0)) == 1


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 1.0, 2.0, 2.0], [0.0] * 10, [float("nan")] * 10])
def test_too_little_or_invalid_data_gives_no_step(values):
    assert steps(values) == []
