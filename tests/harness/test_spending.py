"""Group-sequential boundaries against published values, and against the processes they are made for."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from harness import spending
from harness.spending import Sides, tails

PLANNED = (8, 12, 16, 24, 32)


@pytest.mark.parametrize(
    ("looks", "published"),
    [
        # Pocock-type spending at five equal looks, as tabulated by Reboussin et al. (2000), two-sided 5 %.
        ((1, 2, 3, 4, 5), (2.438, 2.427, 2.410, 2.397, 2.386)),
        # The looks of DESIGN.
        (PLANNED, (2.37, 2.49, 2.49, 2.37, 2.35)),
        ((7,), (1.960,)),
    ],
)
def test_boundaries_are_the_published_ones(looks: tuple[int, ...], published: tuple[float, ...]) -> None:
    assert stats.norm.isf(tails(looks, 0.05, 2)) == pytest.approx(published, abs=0.007)


@pytest.mark.parametrize("sides", [1, 2])
def test_all_looks_together_err_as_often_as_one_look_may(sides: Sides) -> None:
    boundaries = stats.norm.isf(tails(PLANNED, 0.05, sides))
    sums = np.random.default_rng(1).normal(size=(200_000, PLANNED[-1])).cumsum(axis=1)
    z = np.stack([sums[:, n - 1] / np.sqrt(n) for n in PLANNED], axis=1)
    crossed = (z if sides == 1 else np.abs(z)) >= boundaries
    assert crossed.any(axis=1).mean() == pytest.approx(0.05, abs=0.002)


def test_all_of_the_error_is_spent_at_the_end() -> None:
    assert spending.spent(0.0, 0.05) == 0.0
    assert spending.spent(1.0, 0.05) == pytest.approx(0.05)


@pytest.mark.parametrize("looks", [(), (0, 4), (4, 4), (8, 4)])
def test_looks_must_grow(looks: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="positive and growing"):
        tails(looks, 0.05, 2)
