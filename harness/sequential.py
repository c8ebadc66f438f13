"""When a run has seen enough: which cases need another look, and whether the scored axis is decided. Pure.

A run ends early only where no further measurement can change its outcome: a gate has failed, or every gate
has passed and the speed is decided. Everything else takes the looks that the plan allows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from harness import compare
from harness.paired import ENOUGH_PAIRS, Axis
from harness.schema import Case, Comparison, GateResult, Policy, RunPlan

Tier = Literal["XS", "S", "M", "L", "XL"]
TIERS: tuple[Tier, ...] = ("XS", "S", "M", "L", "XL")


def tier_of(gain_pct: float, policy: Policy) -> Tier | None:
    """The highest tier whose bar a gain reaches. Digits that floating point invents do not count."""
    reached = [tier for tier in TIERS if round(gain_pct, 9) >= getattr(policy.tiers_pct, tier)]
    return reached[-1] if reached else None


def earned_tier(headline: Comparison, policy: Policy) -> Tier | None:
    """The tier that is proven: by the lower bound over all looks, and by the audit over quads."""
    few = headline.pairs < ENOUGH_PAIRS
    if few or headline.bounds is None or headline.unstable or not audit_agrees(headline, policy):
        return None
    return tier_of(100 * (headline.bounds.low - 1), policy)


def audit_agrees(headline: Comparison, policy: Policy) -> bool:
    """Whether the exact sign-flip test rejects "no effect", as far as this many quads can.

    n quads cannot give a p below 2^(1-n); where that is not under the level, all must agree in sign. One quad
    agrees with nothing.
    """
    if headline.sign_flip_p is None:
        return False
    if headline.quads < 2:
        return False
    return headline.sign_flip_p <= max(1 - policy.confidence, 2.0 ** (1 - headline.quads))


def below_tiers(headline: Comparison, policy: Policy) -> bool:
    """Whether even the upper bound over all looks stays under the lowest tier."""
    return (
        headline.bounds is not None
        and not headline.unstable
        and 100 * (headline.bounds.high - 1) < policy.tiers_pct.XS
    )


def decided(headline: Comparison, policy: Policy, budget_pairs: int) -> bool:
    """Whether more pairs up to ``budget_pairs`` could hardly change what the scored axis says."""
    if below_tiers(headline, policy):
        return True
    tier = earned_tier(headline, policy)
    return tier is not None and not _could_rise(headline, tier, policy, budget_pairs)


def _could_rise(headline: Comparison, tier: Tier, policy: Policy, budget_pairs: int) -> bool:
    """Whether the estimate clears the next tier by what the bound would still leave at the full budget."""
    above = TIERS[TIERS.index(tier) + 1 :]
    if not above or headline.bounds is None or headline.pairs >= budget_pairs:
        return False
    half = (math.log(headline.bounds.high) - math.log(headline.bounds.low)) / 2
    expected = math.log(headline.ratio) - half * math.sqrt(headline.pairs / budget_pairs)
    return expected >= math.log1p(getattr(policy.tiers_pct, above[0]) / 100)


def failed(gates: Iterable[GateResult]) -> GateResult | None:
    """The first failed gate: what follows cannot undo it."""
    return next((gate for gate in gates if gate.state == "FAIL"), None)


def due(
    plan: RunPlan, axes: Mapping[str, Axis], gates: Sequence[GateResult], policy: Policy
) -> tuple[str, ...]:
    """Cases that need another look, those that decide most first; empty where the run has seen enough."""
    if failed(gates) is not None:
        return ()
    undecided = {gate.name for gate in gates if gate.undecided}
    cases = sorted(plan.cases, key=lambda case: case.role != "scored")
    return tuple(case.name for case in cases if _due(case, axes, undecided, policy))


def _due(case: Case, axes: Mapping[str, Axis], undecided: set[str], policy: Policy) -> bool:
    headline = axes.get(compare.axis(case.name, "dspark" if "dspark" in case.modes else "ar"))
    if headline is None or headline.looks.last:
        return False
    if case.role == "guard":
        return any(f"guard:{case.name}:{metric}" in undecided for metric in case.metrics)
    floors = any(name.endswith("-floor") for name in undecided)
    return floors or not decided(headline.comparison, policy, 2 * case.looks[-1])
