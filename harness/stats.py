"""Paired statistics of log-ratios. Pure numbers in, pure numbers out.

The estimate is a 10 % trimmed mean of pair differences with Yuen's standard error (Yuen 1974,
Biometrika 61) and a Student-t interval; the audit is an exact sign-flip test over quads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy import optimize
from scipy import stats as distributions

from harness.schema import Interval

TRIM = 0.10
MAX_EXACT_QUADS = 16
"""Up to here all 2^n sign patterns are enumerated."""
CLIP = 1.5
POWER = 0.80
"""Probability with which the smallest effect of a run would have been seen."""
_RESAMPLES = 2000


@lru_cache(maxsize=4096)
def t_beyond(tail: float, df: int) -> float:
    """What a Student-t variable with ``df`` degrees of freedom exceeds with probability ``tail``."""
    return float(distributions.t.isf(tail, df))


@lru_cache(maxsize=4096)
def detectable(tail: float, df: int, power: float = POWER) -> float:
    """Effect, in standard errors, that a one-tailed t-test at ``tail`` finds with probability ``power``."""
    critical = t_beyond(tail, df)

    def surplus(effect: float) -> float:
        return float(distributions.nct.sf(critical, df, effect)) - power

    return float(optimize.brentq(surplus, 0.0, 2 * critical + 10.0, xtol=1e-6))


@dataclass(frozen=True)
class Estimate:
    """A location in log units with its standard error.

    ``se`` is None and ``df`` is 0 when there are too few values for one.
    """

    mean: float
    se: float | None
    df: int
    n: int
    kept: tuple[int, ...] = ()
    """Indices of the values that the mean is taken over."""

    def bounds(self, tail: float) -> Interval | None:
        """Bounds in log units, each missed with probability ``tail``."""
        if self.se is None or self.df < 1:
            return None
        half = t_beyond(tail, self.df) * self.se
        return Interval(low=self.mean - half, high=self.mean + half)

    def interval(self, confidence: float) -> Interval | None:
        """Two-sided interval in log units."""
        return self.bounds((1 - confidence) / 2)

    def p_below(self, margin: float) -> float | None:
        """One-sided p of "the truth is at least ``margin``" (log units): small where it lies below."""
        if self.se is None or self.df < 1:
            return None
        if self.se == 0:
            return 0.0 if self.mean < margin else 1.0
        return float(distributions.t.cdf((self.mean - margin) / self.se, self.df))

    def smallest_effect(self, tail: float) -> float | None:
        """The true effect, in log units, for which bounds with this tail exclude zero 80 times in 100."""
        if self.se is None or self.df < 1:
            return None
        return detectable(tail, self.df) * self.se

    def widened(self, variance: float) -> Estimate:
        """With a further variance (squared log units) of the mean: what builds of one source differ by."""
        return self if self.se is None else replace(self, se=math.hypot(self.se, math.sqrt(variance)))

    def spread_by(self, noise: Estimate, prompts: Estimate) -> Estimate:
        """This mean with two independent errors, on Welch's and Satterthwaite's degrees of freedom."""
        if noise.se is None or prompts.se is None:
            return replace(self, se=None, df=0)
        parts = [(part.se**2, part.df) for part in (noise, prompts) if part.se]
        total = sum(variance for variance, _ in parts)
        if not parts:
            return replace(self, se=0.0, df=noise.df)
        df = int(total**2 / sum(variance**2 / df for variance, df in parts))
        return replace(self, se=math.sqrt(total), df=max(1, df))


def trimmed(values: Sequence[float], trim: float = TRIM) -> Estimate:
    """Trimmed mean and Yuen's standard error; an ordinary mean below ten values.

    With g = floor(trim * n) values cut at each end and h = n - 2g, the variance is
    SSD of the winsorised values / (h (h - 1)), on h - 1 degrees of freedom.
    """
    array = np.asarray(values, dtype=float)
    n = len(array)
    if n == 0:
        raise ValueError("an estimate needs at least one value")
    order = np.argsort(array, kind="stable")
    cut = int(trim * n)
    chosen = order[cut : n - cut]
    kept = array[chosen]
    indices, mean, h = tuple(chosen.tolist()), float(kept.mean()), len(kept)
    if h < 2:
        return Estimate(mean=mean, se=None, df=0, n=n, kept=indices)
    winsorised = np.clip(array, kept[0], kept[-1])
    ssd = float(((winsorised - winsorised.mean()) ** 2).sum())
    return Estimate(mean=mean, se=math.sqrt(ssd / (h * (h - 1))), df=h - 1, n=n, kept=indices)


def ordinary(values: Sequence[float]) -> Estimate:
    """Mean with the standard error of the paired t-test."""
    return trimmed(values, 0.0)


def borrowing(values: Sequence[float], groups: Sequence[Sequence[float]]) -> Estimate:
    """Mean of ``values`` with the standard deviation pooled over ``groups`` of like measurements.

    Two or three pairs say little about their own spread, while launch noise belongs to the machine:
    cases of one run and one metric share it. Each group is centred on its own mean. Where the values' own
    spread is larger, it counts: a case may be noisier than the others. One value alone gets no error.
    """
    df = sum(len(group) - 1 for group in groups if len(group) > 1)
    ssd = sum(float(((np.asarray(group) - np.mean(group)) ** 2).sum()) for group in groups if len(group) > 1)
    own = ordinary(values).se
    se = max(own, math.sqrt(ssd / df / len(values))) if df and own is not None else None
    df = df if se is not None else 0
    return Estimate(mean=float(np.mean(values)), se=se, df=df, n=len(values), kept=tuple(range(len(values))))


@lru_cache(maxsize=MAX_EXACT_QUADS)
def _sign_patterns(n: int) -> np.ndarray:
    """[2^(n-1), n] of -1 and 1: every pattern or its mirror image, whose sums have one size."""
    bits = (np.arange(2 ** (n - 1))[:, None] >> np.arange(n)) & 1
    return (2 * bits - 1).astype(np.float64)


def sign_flip_p(effects: Sequence[float]) -> float | None:
    """Two-sided exact p of "the effects are symmetric about zero"; None without effects.

    An effect counts for no more than ``CLIP`` times their median size, so that one stall cannot outvote all
    others; sizes stay when signs flip, so the test stays exact. The least value that n effects can reach is
    2^(1-n): five quads cannot show 5 %.
    """
    if not effects:
        return None
    values = np.asarray(effects[:MAX_EXACT_QUADS], dtype=float)
    most = CLIP * float(np.median(np.abs(values)))
    values = np.clip(values, -most, most)
    observed = abs(values.sum()) - 1e-12
    # Not a matrix product: its threads would wait for each other where every core is busy.
    sums = np.einsum("ij,j->i", _sign_patterns(len(values)), values)
    return float((np.abs(sums) >= observed).mean())


def bootstrap(count: int, statistic: Callable[[np.ndarray], np.ndarray], tail: float) -> Interval | None:
    """Percentile bounds of a statistic over ``count`` items, each missed with probability ``tail``.

    ``statistic`` maps weights [R, count], how often each item was drawn, to values [R]. The percentiles are
    expanded for small counts (Hesterberg 2015, The American Statistician 69). The draws are always the same,
    so that a record is judged alike every time. None below four items, or if a value is not finite.
    """
    if count < 4:
        return None
    draws = np.random.default_rng(count).integers(0, count, (_RESAMPLES, count))
    weights = np.apply_along_axis(np.bincount, 1, draws, minlength=count)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = statistic(weights)
    if not np.isfinite(values).all():
        return None
    expanded = float(distributions.norm.sf(t_beyond(tail, count - 1) * math.sqrt(count / (count - 1))))
    low, high = np.quantile(values, [expanded, 1 - expanded])
    return Interval(low=float(low), high=float(high))


def ratio(interval: Interval | None) -> Interval | None:
    """An interval in log units as an interval of ratios."""
    if interval is None:
        return None
    return Interval(low=math.exp(interval.low), high=math.exp(interval.high))
