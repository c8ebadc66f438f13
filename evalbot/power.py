"""How many pairs an effect needs. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

from harness import spending, stats

_MOST_PAIRS = 4096


@dataclass(frozen=True)
class Planned:
    """``pairs``: the least even number that sees the effect; ``looks``: sizes at which it would be judged."""

    pairs: int
    looks: tuple[int, ...]


def pairs_needed(effect_pct: float, power: float, sd: float, confidence: float) -> Planned | None:
    """Pairs with which a true effect is told from zero with probability ``power``, all looks counted.

    ``sd``: standard deviation of a pair difference, in log units. The looks keep the proportions of the usual
    8, 12, 16, 24 and 32 pairs. None beyond 4,096 pairs.
    """
    effect = math.log1p(effect_pct / 100)

    def enough(quads: int) -> bool:
        tail = spending.tails(looks_of(2 * quads), 1 - confidence, 2)[-1]
        return stats.detectable(tail, 2 * quads - 1, power) * sd / math.sqrt(2 * quads) <= effect

    quads = range(2, _MOST_PAIRS // 2 + 1)
    found = bisect_left(quads, True, key=enough)
    return None if found == len(quads) else Planned(2 * quads[found], looks_of(2 * quads[found]))


def looks_of(pairs: int) -> tuple[int, ...]:
    """A quarter, three eighths, a half, three quarters and all of the pairs; none below 8."""
    sizes = {2 * math.ceil(pairs * share / 2) for share in (0.25, 0.375, 0.5, 0.75)}
    return (*sorted(size for size in sizes if 8 <= size < pairs), pairs)
