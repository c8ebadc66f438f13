"""Paired statistics of log-ratios. Pure numbers in, pure numbers out.

The estimate is a 10 % trimmed mean of pair differences with Yuen's standard error (Yuen 1974,
Biometrika 61) and a Student-t interval; the audit is an exact sign-flip test over quads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy import stats as distributions

from harness.schema import Interval

TRIM = 0.10
MAX_EXACT_QUADS = 16
"""Up to here all 2^n sign patterns are enumerated."""


@dataclass(frozen=True)
class Estimate:
    """A location in log units with its standard error.

    ``se`` is None and ``df`` is 0 when there are too few values for one.
    """

    mean: float
    se: float | None
    df: int
    n: int

    def interval(self, confidence: float) -> Interval | None:
        """Two-sided interval in log units."""
        if self.se is None or self.df < 1:
            return None
        half = float(distributions.t.ppf(0.5 + confidence / 2, self.df)) * self.se
        return Interval(low=self.mean - half, high=self.mean + half)


def trimmed(values: Sequence[float], trim: float = TRIM) -> Estimate:
    """Trimmed mean and Yuen's standard error; an ordinary mean below ten values.

    With g = floor(trim * n) values cut at each end and h = n - 2g, the variance is
    SSD of the winsorised values / (h (h - 1)), on h - 1 degrees of freedom.
    """
    ordered = np.sort(np.asarray(values, dtype=float))
    n = len(ordered)
    if n == 0:
        raise ValueError("an estimate needs at least one value")
    cut = int(trim * n)
    kept = ordered[cut : n - cut]
    h = len(kept)
    if h < 2:
        return Estimate(mean=float(kept.mean()), se=None, df=0, n=n)
    winsorised = np.clip(ordered, kept[0], kept[-1])
    ssd = float(((winsorised - winsorised.mean()) ** 2).sum())
    return Estimate(mean=float(kept.mean()), se=math.sqrt(ssd / (h * (h - 1))), df=h - 1, n=n)


def borrowing(values: Sequence[float], groups: Sequence[Sequence[float]]) -> Estimate:
    """Mean of ``values`` with the standard deviation pooled over ``groups`` of like measurements.

    Two or three pairs say little about their own spread, while launch noise belongs to the machine:
    cases of one run and one metric share it. Each group is centred on its own mean.
    """
    df = sum(len(group) - 1 for group in groups if len(group) > 1)
    ssd = sum(float(((np.asarray(group) - np.mean(group)) ** 2).sum()) for group in groups if len(group) > 1)
    se = math.sqrt(ssd / df / len(values)) if df else None
    return Estimate(mean=float(np.mean(values)), se=se, df=df, n=len(values))


def sign_flip_p(effects: Sequence[float]) -> float | None:
    """Two-sided exact p of "the effects are symmetric about zero"; None without effects.

    The least value that n effects can reach is 2^(1-n): five quads cannot show 5 %.
    """
    if not effects:
        return None
    values = np.asarray(effects[:MAX_EXACT_QUADS], dtype=float)
    observed = abs(values.sum()) - 1e-12
    patterns = np.array(list(product((-1.0, 1.0), repeat=len(values))))
    return float((np.abs(patterns @ values) >= observed).mean())


def ratio(interval: Interval | None) -> Interval | None:
    """An interval in log units as an interval of ratios."""
    if interval is None:
        return None
    return Interval(low=math.exp(interval.low), high=math.exp(interval.high))
