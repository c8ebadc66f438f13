"""Verdict -> the name of its GitHub label."""

from __future__ import annotations

from evalbot.errors import Cause
from evalbot.types import Outcome
from harness.sequential import Tier

NEEDS_REBASE = "dspark-needs-rebase"


def label_for(outcome: Outcome, tier: Tier | None, cause: Cause | None, prefix: str) -> str:
    """GitHub spelling of a judgement, for example ``eval-dspark:M``.

    Raises ValueError for a tier on an outcome that earns none, and for a gain without one.
    """
    if (outcome == "improved") != (tier is not None):
        raise ValueError(f"outcome {outcome} and tier {tier} do not belong together")
    if cause == "needs-rebase":
        return NEEDS_REBASE
    if tier is not None:
        return f"{prefix}:{tier}"
    return f"{prefix}:{'REJECT' if outcome == 'reject' else outcome}"
