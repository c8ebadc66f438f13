"""Closed forms against values worked out elsewhere."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as reference
from statsmodels.stats.power import TTestPower

from harness import stats


def test_below_ten_values_the_estimate_is_the_ordinary_t_interval() -> None:
    values = [0.01, 0.03, -0.02, 0.05]
    estimate = stats.trimmed(values)
    expected = reference.ttest_1samp(values, 0.0).confidence_interval(0.95)
    interval = estimate.interval(0.95)
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))


def test_trimmed_mean_and_standard_error_agree_with_yuens_one_sample_form() -> None:
    values = [*range(1, 19), 100.0, -50.0]
    estimate = stats.trimmed(values)
    winsorised = np.asarray(reference.mstats.winsorize(np.array(values), limits=(0.1, 0.1)))
    h = 16
    assert estimate.mean == pytest.approx(reference.trim_mean(values, 0.1))
    assert estimate.se == pytest.approx(math.sqrt(19 * winsorised.var(ddof=1) / (h * (h - 1))))
    assert estimate.df == h - 1


def test_one_wild_pair_does_not_move_a_trimmed_estimate() -> None:
    calm = [0.01 + 0.001 * (i % 3) for i in range(20)]
    wild = [*calm[:-1], 5.0]
    assert stats.trimmed(wild).mean == pytest.approx(stats.trimmed(calm).mean, abs=5e-4)


def test_one_value_has_no_interval() -> None:
    assert stats.trimmed([0.1]).interval(0.95) is None


def test_the_interval_of_equal_values_is_a_point() -> None:
    interval = stats.trimmed([0.02] * 4).interval(0.95)
    assert interval is not None
    assert interval.low == interval.high == pytest.approx(0.02)


def test_borrowed_spread_is_the_pooled_variance_around_each_groups_own_mean() -> None:
    estimate = stats.borrowing([1.0, 3.0], [[1.0, 3.0], [10.0, 10.0, 16.0]])
    assert estimate.df == 3
    assert estimate.se == pytest.approx(math.sqrt((2.0 + 24.0) / 3 / 2))


@pytest.mark.parametrize(
    ("effects", "p"), [([1.0, 2.0, 3.0], 0.25), ([1.0], 1.0), ([1.0, -1.0], 1.0), ([3.0] * 6, 2 / 64)]
)
def test_sign_flip_probability_is_exact(effects: list[float], p: float) -> None:
    assert stats.sign_flip_p(effects) == pytest.approx(p)


def test_one_stall_does_not_outvote_the_other_quads() -> None:
    p = stats.sign_flip_p([0.03] * 11 + [-0.25])
    assert p is not None
    assert p < 0.05
    assert stats.sign_flip_p([0.03] * 8 + [-0.25] * 4) == pytest.approx(
        stats.sign_flip_p([0.03] * 8 + [-0.045] * 4)
    )


def test_sign_flip_of_nothing_is_not_measured() -> None:
    assert stats.sign_flip_p([]) is None


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(2000):
        interval = stats.trimmed(rng.normal(0.03, 0.01, 12)).interval(0.95)
        assert interval is not None
        covered += interval.low <= 0.03 <= interval.high
    assert 0.93 <= covered / 2000 <= 0.97


@pytest.mark.parametrize(("tail", "pairs"), [(0.025, 4), (0.025, 16), (0.01, 32)])
def test_the_detectable_effect_is_that_of_a_paired_t_test(tail: float, pairs: int) -> None:
    solved = TTestPower().solve_power(nobs=pairs, alpha=2 * tail, power=0.8, alternative="two-sided")
    assert stats.detectable(tail, pairs - 1) == pytest.approx(solved * math.sqrt(pairs), rel=1e-3)


def test_a_bootstrap_over_prompts_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(11)
    covered = 0
    for _ in range(300):
        values = rng.normal(1.0, 0.2, 8)
        found = stats.bootstrap(8, lambda weights, v=values: weights @ v / 8, 0.025)
        assert found is not None
        covered += found.low <= 1.0 <= found.high
    assert 0.91 <= covered / 300 <= 0.985


def test_a_bootstrap_of_few_or_of_undefined_values_is_no_interval() -> None:
    assert stats.bootstrap(3, lambda weights: weights.sum(1), 0.025) is None
    assert stats.bootstrap(5, lambda weights: weights[:, 0] / (weights[:, 0] > 99), 0.025) is None


def test_equal_prompts_give_a_point() -> None:
    found = stats.bootstrap(6, lambda weights: weights.sum(1) / 6, 0.05)
    assert found is not None
    assert (found.low, found.high) == (1.0, 1.0)
