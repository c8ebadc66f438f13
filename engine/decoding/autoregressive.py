"""Autoregressive decoding: one token per pass of the target. The reference that DSpark must equal."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import torch

from engine.decoding.sampling import sample
from engine.decoding.step import Step, finish_reason
from engine.runtime.model_runner import ModelRunner


def positions_needed(prompt_tokens: int, max_new_tokens: int) -> int:
    """Cache positions that a generation may touch; the newest token never enters the cache."""
    return prompt_tokens + max_new_tokens


def generate(
    runner: ModelRunner,
    prompt_ids: Sequence[int],
    *,
    max_new_tokens: int,
    temperature: float = 0.0,
    stop_ids: Collection[int] = (),
    generator: torch.Generator | None = None,
) -> Iterator[Step]:
    """Yield the prefill's token, then one token per step, until the budget or a stop token.

    ``runner`` must be empty. Raises CapacityError before the first token if its cache cannot hold the
    generation, and NumericsError when the target's logits are not finite.
    """
    runner.cache.require(positions_needed(len(prompt_ids), max_new_tokens))
    token = sample(runner.prefill(prompt_ids).logits, temperature, generator)
    for remaining in range(max_new_tokens, 0, -1):
        reason = finish_reason((token,), remaining, stop_ids)
        yield Step((token,), finish_reason=reason)
        if reason is not None:
            return
        token = sample(runner.step(token).logits[0], temperature, generator)
