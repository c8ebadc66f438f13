"""Group-sequential boundaries: how strict each look must be so that all looks together keep one error rate.

Pocock-type spending after Lan and DeMets (1983, Biometrika 70): by information fraction t the error spent is
alpha * ln(1 + (e - 1) t). The crossing probabilities come from the recursion of Armitage, McPherson and Rowe
(1969, JRSS A 132) over the Brownian scale, where increments are independent.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy import optimize
from scipy import stats as distributions

Sides = Literal[1, 2]
_POINTS = 1601
_FAR = 8.0
"""Standard deviations beyond which a one-sided process is not followed."""


def spent(fraction: float, alpha: float) -> float:
    """Error spent at an information fraction of 0..1."""
    return alpha * math.log1p((math.e - 1) * fraction)


@lru_cache(maxsize=256)
def tails(looks: tuple[int, ...], alpha: float, sides: Sides) -> tuple[float, ...]:
    """Tail probability on each tested side at each look; ``looks`` are growing sample sizes.

    With one look this is alpha / sides. Raises ValueError for looks that do not grow.
    """
    if not looks or any(late <= early for early, late in zip((0, *looks), looks, strict=False)):
        raise ValueError(f"looks must be positive and growing, not {looks}")
    if len(looks) == 1:
        return (alpha / sides,)
    fractions = [look / looks[-1] for look in looks]
    found: list[float] = []
    grid = density = None
    before = 0.0
    for fraction in fractions:
        due = spent(fraction, alpha) - spent(before, alpha)
        boundary = _boundary(grid, density, before, fraction, due, sides)
        found.append(float(distributions.norm.sf(boundary)))
        grid, density = _continued(grid, density, before, fraction, boundary, sides)
        before = fraction
    return tuple(found)


def _boundary(
    grid: np.ndarray | None, density: np.ndarray | None, before: float, now: float, due: float, sides: Sides
) -> float:
    """The z value that is first crossed at this look with probability ``due``."""

    def crossing(z: float) -> float:
        edge = z * math.sqrt(now)
        if grid is None or density is None:
            return sides * float(distributions.norm.sf(z))
        scale = math.sqrt(now - before)
        beyond = distributions.norm.sf((edge - grid) / scale)
        if sides == 2:
            beyond = beyond + distributions.norm.cdf((-edge - grid) / scale)
        return float(np.trapezoid(density * beyond, grid))

    return float(optimize.brentq(lambda z: crossing(z) - due, 0.1, _FAR, xtol=1e-8))


def _continued(
    grid: np.ndarray | None, density: np.ndarray | None, before: float, now: float, z: float, sides: Sides
) -> tuple[np.ndarray, np.ndarray]:
    """Density of the process where no look has crossed yet, on a grid over its continuation region."""
    edge = z * math.sqrt(now)
    ours = np.linspace(-edge if sides == 2 else -_FAR * math.sqrt(now), edge, _POINTS)
    if grid is None or density is None:
        return ours, distributions.norm.pdf(ours, scale=math.sqrt(now))
    steps = distributions.norm.pdf(ours[:, None] - grid[None, :], scale=math.sqrt(now - before))
    return ours, np.trapezoid(steps * density[None, :], grid, axis=1)
