"""Pairs into a judged axis: bounds, audits, and what makes a result unstable."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness import paired, stats
from harness.paired import Looks, Pair
from harness.schema import Comparison

LOOKS = (4, 6, 8, 12, 16)


def pairs(effects: list[float], slope: float = 0.0) -> list[Pair]:
    """Two pairs a quad, the candidate second in the first; ``slope``: log rate added by going second."""
    found = []
    for index, effect in enumerate(effects):
        first = index % 2 == 1
        found.append(Pair(index // 2, 4.0 + slope * first, 4.0 + effect + slope * (not first), first))
    return found


def judge(given: list[Pair], quads: int | None = None, looks: tuple[int, ...] = LOOKS) -> Comparison:
    reached = Looks.reached(looks, len(given) // 2 if quads is None else quads)
    return paired.judge("main:dspark", "tok/s", given, [given], reached, 0.95).comparison


def test_bounds_over_all_looks_are_wider_than_the_interval_of_one() -> None:
    found = judge(pairs([0.01, 0.03, 0.02, 0.025, 0.015, 0.02, 0.03, 0.01]))
    assert found.interval is not None
    assert found.bounds is not None
    assert found.floor_bounds is not None
    assert found.bounds.low < found.interval.low < found.ratio < found.interval.high < found.bounds.high
    assert found.bounds.low < found.floor_bounds.low
    assert (found.look, found.looks) == (1, 5)


def test_with_one_look_the_bounds_are_the_interval() -> None:
    found = judge(pairs([0.01, 0.03, 0.02, 0.025]), looks=(2,))
    assert found.bounds == found.interval


def test_the_look_is_the_last_that_was_reached() -> None:
    assert [Looks.reached(LOOKS, quads).at for quads in (0, 4, 5, 6, 11, 12, 16)] == [0, 0, 0, 1, 2, 3, 4]
    assert Looks.reached(LOOKS, 16).last
    assert not Looks.reached(LOOKS, 12).last


def test_the_shown_values_have_the_ratio_of_the_estimate_also_where_pairs_are_trimmed() -> None:
    rng = np.random.default_rng(3)
    given = [Pair(i // 2, 4 + rng.normal(0, 0.1), 4.1 + rng.normal(0, 0.1), i % 2 == 1) for i in range(12)]
    found = judge(given)
    assert found.candidate / found.baseline == pytest.approx(found.ratio, rel=1e-12)


def test_going_second_is_an_order_effect_and_not_a_gain() -> None:
    found = judge(pairs([0.0] * 8, slope=-0.02))
    assert found.ratio == pytest.approx(1.0)
    assert found.order_effect == pytest.approx(math.expm1(-0.02))


CALM = [0.02 + 0.002 * (i % 5) for i in range(32)]


@pytest.mark.parametrize("stalls", [[-0.4], [-0.4, -0.3], [-0.4, 0.4, -0.4]])
def test_stalls_that_either_arm_may_meet_do_not_make_a_result_unstable(stalls: list[float]) -> None:
    assert not judge(pairs([*CALM[: -len(stalls)], *stalls])).unstable


def test_a_result_that_hides_the_stalls_of_one_arm_is_unstable() -> None:
    found = judge(pairs([*CALM[:-3], -0.4, -0.4, -0.4]))
    assert found.unstable
    assert found.mean_ratio is not None
    assert found.mean_ratio < 1 < found.ratio


def test_variance_between_builds_widens_every_bound() -> None:
    effects = [0.01, 0.03, 0.02, 0.025, 0.015, 0.02, 0.03, 0.01]
    given, reached = pairs(effects), Looks.reached(LOOKS, 4)
    found = paired.judge("main:dspark", "tok/s", given, [given], reached, 0.95, between_builds=0.0004)
    plain = judge(given)
    assert found.comparison.ratio == plain.ratio
    assert found.estimate is not None
    alone = float(np.std(effects, ddof=1)) / math.sqrt(8)
    assert found.estimate.se == pytest.approx(math.hypot(alone, 0.02))
    assert found.comparison.bounds is not None
    assert plain.bounds is not None
    assert found.comparison.bounds.low < plain.bounds.low


def test_the_smallest_effect_is_seen_with_the_power_that_is_named() -> None:
    rng = np.random.default_rng(5)
    effect = stats.detectable(0.025, 7) * 0.01 / math.sqrt(8)
    seen = 0
    for _ in range(1500):
        found = judge(pairs(list(rng.normal(effect, 0.01, 8))), looks=(4,))
        assert found.bounds is not None
        seen += found.bounds.low > 1
    assert seen / 1500 == pytest.approx(0.80, abs=0.03)
