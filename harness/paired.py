"""Pairs of one axis into a judgement of it: estimate, interval, bounds that hold at every look, audits. Pure.

The estimate is the trimmed mean; the ordinary paired mean and the mean of quads are its sensitivity check.
Where either lies further from it than half its interval, and further than stalls that hit both arms alike
would bring it, the axis is ``unstable``: a few launches of one arm carry the result.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean

from harness import spending, stats
from harness.schema import Comparison
from harness.stats import Estimate

ENOUGH_PAIRS = 4
"""With fewer pairs than this a case borrows the spread of the same axis kind in the run's other cases."""
ONE_SIDED = 1.7
"""A single stall parts the means by 1 of the units of ``_apart``, n equal ones of one arm by sqrt(n)."""


@dataclass(frozen=True)
class Pair:
    """Two neighbouring launches of one quad, one of each arm on the same prompts."""

    quad: int
    baseline: float
    """Log rate."""
    candidate: float
    candidate_first: bool

    @property
    def difference(self) -> float:
        return self.candidate - self.baseline


@dataclass(frozen=True)
class Looks:
    """When an axis may be judged: ``sizes`` are pairs, ``at`` is the index of the look reached."""

    sizes: tuple[int, ...]
    at: int

    @classmethod
    def reached(cls, quads: Sequence[int], done: int) -> Looks:
        """``quads``: planned looks in quads; ``done``: quads run; none counts as the first look."""
        at = sum(done >= size for size in quads) - 1
        return cls(tuple(2 * size for size in quads), max(0, at))

    @property
    def last(self) -> bool:
        return self.at == len(self.sizes) - 1

    def tail(self, alpha: float, sides: spending.Sides) -> float:
        """Tail probability on each tested side at this look."""
        return spending.tails(self.sizes, alpha, sides)[self.at]


@dataclass(frozen=True)
class Axis:
    """One axis, judged. ``estimate`` is in log units; None for counts, which are not judged by pairs."""

    comparison: Comparison
    estimate: Estimate | None
    looks: Looks


@dataclass(frozen=True)
class Acceptance:
    """The part of a DSpark rate that differs from prompt to prompt: rate = tau / time per round.

    ``effect``: log-ratio of pooled tau with its error over prompts; ``rest``: pairs of time per round of this
    case, ``rest_groups`` those of all cases.
    """

    effect: Estimate
    rest: Sequence[Pair]
    rest_groups: Sequence[Sequence[Pair]]


def judge(
    name: str,
    unit: str,
    pairs: Sequence[Pair],
    groups: Iterable[Sequence[Pair]],
    looks: Looks,
    confidence: float,
    between_builds: float = 0.0,
    acceptance: Acceptance | None = None,
) -> Axis:
    """``groups``: the pairs of this kind in all cases.

    ``between_builds``: variance, in squared log units, by which builds of one source differ. ``acceptance``:
    of a DSpark rate, whose effect may depend on the prompt. The pairs of a quad share their prompts, so such
    an effect repeats in both of them, and its error must be taken over prompts.
    """
    differences = [pair.difference for pair in pairs]
    plain = located(pairs, groups)
    spread = plain
    if acceptance is not None:
        spread = plain.spread_by(located(acceptance.rest, acceptance.rest_groups), acceptance.effect)
    estimate = spread.widened(between_builds)
    alpha = 1 - confidence
    two_sided = looks.tail(alpha, 2)
    mean, quads = stats.ordinary(differences), _by_quad(pairs)
    smallest = estimate.smallest_effect(two_sided)
    order = order_effect(pairs)
    comparison = Comparison(
        name=name,
        unit=unit,
        baseline=math.exp(fmean(pairs[i].baseline for i in plain.kept)),
        candidate=math.exp(fmean(pairs[i].candidate for i in plain.kept)),
        ratio=math.exp(estimate.mean),
        interval=stats.ratio(estimate.interval(confidence)),
        bounds=stats.ratio(estimate.bounds(two_sided)),
        floor_bounds=stats.ratio(estimate.bounds(looks.tail(alpha, 1))),
        pairs=len(pairs),
        quads=len(quad_effects(pairs)),
        look=looks.at + 1,
        looks=len(looks.sizes),
        sign_flip_p=stats.sign_flip_p(quad_effects(pairs)),
        mean_ratio=math.exp(mean.mean),
        quad_ratio=math.exp(quads.mean),
        unstable=any(_apart(plain, other, differences, confidence) for other in (mean, quads)),
        order_effect=None if order is None else math.expm1(order),
        smallest_effect=None if smallest is None else math.expm1(smallest),
    )
    return Axis(comparison, estimate, looks)


def located(pairs: Sequence[Pair], groups: Iterable[Sequence[Pair]]) -> Estimate:
    """The estimate of the pair differences. ``kept`` are the pairs it is taken over, and with them the rates
    of both arms that are shown beside it: so their ratio is the estimate.
    """
    differences = [pair.difference for pair in pairs]
    if len(pairs) >= ENOUGH_PAIRS:
        return stats.trimmed(differences)
    return stats.borrowing(differences, [[pair.difference for pair in group] for group in groups])


def quad_effects(pairs: Sequence[Pair]) -> list[float]:
    """Mean difference of each quad: linear drift within a quad cancels in it."""
    ordered = sorted(pairs, key=lambda pair: pair.quad)
    return [
        fmean(pair.difference for pair in quad) for _, quad in groupby(ordered, key=lambda pair: pair.quad)
    ]


def order_effect(pairs: Sequence[Pair]) -> float | None:
    """What running second does to a rate, in log units, whichever arm it is; None without both orders."""
    first = [pair.difference for pair in pairs if pair.candidate_first]
    second = [pair.difference for pair in pairs if not pair.candidate_first]
    return (fmean(second) - fmean(first)) / 2 if first and second else None


def _by_quad(pairs: Sequence[Pair]) -> Estimate:
    return stats.ordinary(quad_effects(pairs))


def _apart(estimate: Estimate, other: Estimate, differences: Sequence[float], confidence: float) -> bool:
    bounds = estimate.interval(confidence)
    apart = abs(estimate.mean - other.mean)
    if bounds is None or apart <= (bounds.high - bounds.low) / 2:
        return False
    # Were the signs of the residuals fair coins, this would be the standard deviation of ``apart``.
    fair = math.sqrt(sum((value - estimate.mean) ** 2 for value in differences)) / len(differences)
    return apart > ONE_SIDED * fair
