"""Runs a DSpark draft over its context cache."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from engine.models.dspark import DSparkDraft
from engine.runtime.kv_cache import KVCache


class DraftRunner:
    """One draft, one sequence.

    The context holds a row per committed position that the target has processed, and never one of a
    rejected token, so it grows and is never rolled back. Features wait in a queue until a block is
    asked for: a draft that stays idle costs nothing and misses nothing when it wakes.
    """

    def __init__(self, draft: DSparkDraft, cache: KVCache) -> None:
        self.draft = draft
        self.cache = cache
        self._pending: list[Tensor] = []

    @classmethod
    def build(cls, draft: DSparkDraft, capacity: int) -> DraftRunner:
        """A runner for sequences of ``capacity`` positions; the block's scratch rows come on top."""
        body = draft.config.body
        cache = KVCache(
            num_layers=body.num_layers,
            num_kv_heads=body.num_kv_heads,
            head_dim=body.head_dim,
            capacity=capacity + draft.config.block_size,
            dtype=draft.dtype,
            device=draft.device,
        )
        return cls(draft, cache)

    @property
    def block_size(self) -> int:
        return self.draft.config.block_size

    @property
    def length(self) -> int:
        """Positions seen, those still in the queue included."""
        return self.cache.length + sum(rows.shape[0] for rows in self._pending)

    def observe(self, features: Tensor) -> None:
        """Queue the features [m, L * d] of the next m committed positions."""
        self._pending.append(features)

    @torch.inference_mode()
    def block(self, anchor: int) -> Tensor:
        """Hidden states [γ, d] of the block that starts with ``anchor``, at position ``length``."""
        self._inject()
        start = self.cache.length
        self.cache.require(start + self.block_size)
        ids = self.draft.block_ids(torch.tensor(anchor, device=self.draft.device))
        positions = torch.arange(start, start + self.block_size, device=self.draft.device)
        hidden: Tensor = self.draft(ids, positions, self._attend)
        return hidden

    def reset(self) -> None:
        self._pending.clear()
        self.cache.reset()

    def _inject(self) -> None:
        if not self._pending:
            return
        context = self.draft.context(torch.cat(self._pending))
        rows, start = context.shape[0], self.cache.length
        positions = torch.arange(start, start + rows, device=self.draft.device)
        for layer in range(self.draft.config.body.num_layers):
            self.cache.append(layer, *self.draft.context_key_value(layer, context, positions))
        self.cache.advance(rows)
        self._pending.clear()

    def _attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Every slot sees all context and the whole block. The block's own rows stay scratch."""
        self.cache.append(layer, k, v)
        end = self.cache.length + k.shape[0]
        slots, heads, head_dim = q.shape
        kv_heads = k.shape[1]
        # Without a mask, the query heads that share a KV head are just more rows.
        grouped = q.view(slots, kv_heads, -1, head_dim).transpose(0, 1).reshape(kv_heads, -1, head_dim)
        out = scaled_dot_product_attention(
            grouped.unsqueeze(0),
            self.cache.keys[layer, :, :end].unsqueeze(0),
            self.cache.values[layer, :, :end].unsqueeze(0),
        )
        return out.view(kv_heads, slots, -1, head_dim).transpose(0, 1).reshape(slots, heads, head_dim)
