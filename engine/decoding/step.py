"""What decoding yields: one burst of committed tokens."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["length", "stop"]


@dataclass(frozen=True)
class Step:
    """Tokens committed together: by prefill, by one decode step, or by one DSpark round."""

    token_ids: tuple[int, ...]
    """Already cut at the token budget and after a stop token (which is kept)."""
    proposed: int = 0
    """Draft tokens that were verified; after an accepted stop token, those up to and including it."""
    accepted: int = 0
    """Draft tokens that verification accepted. In a last round cut by the budget it may exceed
    ``len(token_ids)``: the block is not shortened near the limit."""
    finish_reason: FinishReason | None = None


def finish_reason(
    token_ids: tuple[int, ...], remaining: int, stop_ids: Collection[int]
) -> FinishReason | None:
    """Why decoding ends after a burst, ``remaining`` tokens being left in the budget before it."""
    if token_ids[-1] in stop_ids:
        return "stop"
    return "length" if len(token_ids) >= remaining else None
