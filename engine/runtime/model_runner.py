"""Runs a target over its KV cache: prefill of a prompt, then passes over a few tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.config import CapacityError
from engine.models.decoder import CausalLM
from engine.ops import attention
from engine.ops.linear import LEAST_ROWS
from engine.runtime.kv_cache import KVCache

PREFILL_CHUNK = 512
"""Rows per prefill pass: bounds activation memory, and is the same in every decoding mode."""

PADDED_ROWS = max(LEAST_ROWS.values())
"""Most rows that a decode or verify pass is padded to: the cache needs that many positions to spare."""


class Output(NamedTuple):
    """What one pass yields for its rows."""

    logits: Tensor
    """float32 [n, V]; [V] of the last position after prefill."""
    features: Tensor | None
    """Tapped layer outputs [n, L * d]; None without taps."""


class ModelRunner:
    """One target, one sequence. ``length`` positions are in the cache."""

    def __init__(self, model: CausalLM, cache: KVCache, taps: Sequence[int] = ()) -> None:
        self.model = model
        self.cache = cache
        self.taps = tuple(taps)
        self.prefilled = 0
        """Prompt tokens that the last prefill computed."""
        self._window = cache.capacity

    @classmethod
    def build(cls, model: CausalLM, capacity: int, taps: Sequence[int] = ()) -> ModelRunner:
        """A runner with its own cache of ``capacity`` positions on the model's device."""
        config = model.config
        cache = KVCache(
            num_layers=config.num_layers,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            capacity=_whole_strides(capacity + PADDED_ROWS),
            dtype=model.dtype,
            device=model.device,
        )
        return cls(model, cache, taps)

    @property
    def length(self) -> int:
        return self.cache.length

    @torch.inference_mode()
    def prefill(self, ids: Sequence[int]) -> Output:
        """Run a whole prompt on an empty cache; logits of its last position only, features of all."""
        if self.length:
            raise CapacityError(f"Prefill needs an empty KV cache, but it holds {self.length} positions.")
        chunks = [self._prefill_chunk(chunk) for chunk in _chunks(ids)]
        self.prefilled = sum(hidden.shape[0] for hidden, _ in chunks)
        hidden = chunks[-1][0][-1:]
        return Output(self.model.logits(hidden)[0], _concatenate([features for _, features in chunks]))

    @torch.inference_mode()
    def verify(self, ids: Sequence[int]) -> Output:
        """Append n tokens and score them: row i predicts the token after ids[i]. [n, V], [n, L * d].

        Row for row the same bits as n calls with one token each, for n up to 8.
        """
        start, rows = self.length, len(ids)
        # Padding rows come last: no real row sees them, and the next pass overwrites their keys.
        padded = max(rows, LEAST_ROWS[self.model.device.type])
        self.cache.require(start + padded)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            self.cache.append(layer, k, v)
            span = self._span(start + padded)
            return attention.decode(
                q, self.cache.keys[layer, :, :span], self.cache.values[layer, :, :span], start
            )

        tokens = self._tensor([*ids, *[ids[-1]] * (padded - rows)])
        positions = torch.arange(start, start + padded, device=self.model.device)
        hidden, features = self.model(tokens, positions, attend, self.taps)
        logits = self.model.logits(hidden)[:rows]
        self.cache.advance(rows)
        return Output(logits, None if features is None else features[:rows])

    def step(self, token_id: int) -> Output:
        """Append one token: the decode step of autoregression. [1, V], [1, L * d]."""
        return self.verify([token_id])

    @torch.inference_mode()
    def score(self, ids: Sequence[int], positions: int) -> Tensor:
        """Log-probabilities float32 [positions, V] of the next token after each of the last ids."""
        hidden = torch.cat([self._prefill_chunk(chunk)[0] for chunk in _chunks(ids)])[-positions:]
        return torch.cat([self.model.logits(rows).log_softmax(-1) for rows in hidden.split(64)])

    def truncate(self, length: int) -> None:
        """Roll back to the first ``length`` positions."""
        self.cache.truncate(length)

    def reset(self, positions: int | None = None) -> None:
        """Empty the cache for a sequence that stays within ``positions``; None: all of the capacity.

        On CUDA every decode pass reads that many keys, so two runs of one prompt agree in their bits
        only when they were reset to the same number.
        """
        self.cache.reset()
        if positions is None:
            self._window = self.cache.capacity
        else:
            self._window = _whole_strides(positions + PADDED_ROWS)
            self.cache.require(self._window)

    def _prefill_chunk(self, ids: Sequence[int]) -> tuple[Tensor, Tensor | None]:
        start, end = self.length, self.length + len(ids)
        self.cache.require(end)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            self.cache.append(layer, k, v)
            return attention.prefill(
                q, self.cache.keys[layer, :, :end], self.cache.values[layer, :, :end], start
            )

        positions = torch.arange(start, end, device=self.model.device)
        hidden, features = self.model(self._tensor(ids), positions, attend, self.taps)
        self.cache.advance(len(ids))
        return hidden, features

    def _span(self, end: int) -> int:
        """Keys that a decode pass reads: on CUDA the whole window, so that shapes never change."""
        return self._window if self.model.device.type == "cuda" else _whole_strides(end)

    def _tensor(self, ids: Sequence[int]) -> Tensor:
        return torch.tensor(list(ids), dtype=torch.int64, device=self.model.device)


def _whole_strides(positions: int) -> int:
    return -(-positions // attention.KEY_STRIDE) * attention.KEY_STRIDE


def _chunks(ids: Sequence[int]) -> list[Sequence[int]]:
    return [ids[first : first + PREFILL_CHUNK] for first in range(0, len(ids), PREFILL_CHUNK)]


def _concatenate(parts: list[Tensor | None]) -> Tensor | None:
    present = [part for part in parts if part is not None]
    return torch.cat(present) if present else None
