"""How many draft tokens a round proposes: the one place where that is decided.

Each proposal is one more row for the target to verify, and it pays only while the extra time stays
below the extra tokens it brings. Row cost grows with context, so the served policy is a table of
bands over the prompt length. The depth is fixed once per generation: every round then verifies the
same number of rows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from engine.config import OverrideError

PROPOSALS_VARIABLE = "DSPARK_PROPOSALS"
NARROW_VARIABLE = "DSPARK_NARROW_MIN_SEQ"


@dataclass(frozen=True)
class Band:
    min_context: int
    """Prompt tokens from which this band holds."""
    proposals: int


SERVED = (
    Band(min_context=0, proposals=5),
    Band(min_context=512, proposals=3),
)
"""Four rows, the anchor and three proposals, fill one tile of the CPU's attention over the cache. A
fifth row pays for a second tile, whose cost is the context's length: it earns that back only on short
prompts."""


@dataclass(frozen=True)
class DepthPolicy:
    """Bands by rising ``min_context``, the first at 0, plus the overrides that shaped them."""

    bands: tuple[Band, ...] = SERVED
    overrides: tuple[tuple[str, str], ...] = ()

    def proposals(self, prompt_tokens: int) -> int:
        """Draft tokens per round for a prompt of ``prompt_tokens``; 0 means that the draft stays idle."""
        return max(
            (band for band in self.bands if band.min_context <= prompt_tokens),
            key=lambda band: band.min_context,
        ).proposals

    def describe(self) -> str:
        """The bands in words, such as ``5 proposals from 0 tokens, 3 from 512``."""
        first, *rest = self.bands
        words = [f"{first.proposals} proposals from {first.min_context} tokens"]
        return ", ".join(words + [f"{band.proposals} from {band.min_context}" for band in rest])


def load_policy(block_size: int, environment: Mapping[str, str] | None = None) -> DepthPolicy:
    """The served bands with the environment's overrides applied.

    ``DSPARK_PROPOSALS`` pins the depth at every context; ``DSPARK_NARROW_MIN_SEQ`` moves the context
    from which the last, narrowest band holds. A depth beyond what the draft was trained for collapses
    acceptance, so served bands are capped at ``block_size`` and a pinned one is refused with OverrideError.
    """
    variables = os.environ if environment is None else environment
    bands = tuple(Band(band.min_context, min(band.proposals, block_size)) for band in SERVED)
    overrides = {}
    if NARROW_VARIABLE in variables:
        boundary = _whole(NARROW_VARIABLE, variables[NARROW_VARIABLE], "a context length in tokens")
        overrides[NARROW_VARIABLE] = variables[NARROW_VARIABLE]
        narrow = bands[-1].proposals
        bands = (
            *(band for band in bands[:-1] if band.min_context < boundary),
            Band(boundary, narrow),
        )
    if PROPOSALS_VARIABLE in variables:
        pinned = _whole(PROPOSALS_VARIABLE, variables[PROPOSALS_VARIABLE], "a number of draft tokens")
        overrides[PROPOSALS_VARIABLE] = variables[PROPOSALS_VARIABLE]
        if pinned > block_size:
            raise OverrideError(
                f"{PROPOSALS_VARIABLE} is {pinned}, but this draft was trained for blocks of {block_size}: "
                f"set it to 0..{block_size} or unset it"
            )
        bands = (Band(0, pinned),)
    return DepthPolicy(bands=bands, overrides=tuple(overrides.items()))


def _whole(name: str, text: str, meaning: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise OverrideError(f"{name} is {text!r}: expected {meaning}, digits only; correct it or unset it")
    return int(text)
