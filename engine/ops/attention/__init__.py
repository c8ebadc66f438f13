"""Grouped-query attention: causal over a cache (decode, verify), over a chunk (prefill), dense (training)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from engine.ops.attention import tiled
from engine.ops.attention.tiled import KEY_STRIDE

__all__ = ["KEY_STRIDE", "causal", "decode", "prefill"]

_TILE_ROWS = {"cpu": 4, "cuda": 8}


def decode(q: Tensor, k: Tensor, v: Tensor, start: int) -> Tensor:
    """A few rows over the cache, row-invariant. Shapes as :func:`tiled.attention`."""
    return tiled.attention(q, k, v, start, _TILE_ROWS.get(q.device.type, 8))


def prefill(q: Tensor, k: Tensor, v: Tensor, start: int) -> Tensor:
    """A chunk of the prompt over all keys so far.

    q: [n, H, hd] at positions start..start+n-1; k, v: [KV, start + n, hd]. Returns [n, H, hd].
    """
    n, keys = q.shape[0], k.shape[1]
    positions = torch.arange(start, start + n, device=q.device)
    visible = torch.arange(keys, device=q.device) <= positions.unsqueeze(-1)
    groups = q.shape[1] // k.shape[0]
    out = scaled_dot_product_attention(
        q.transpose(0, 1).unsqueeze(0),
        k.repeat_interleave(groups, dim=0).unsqueeze(0),
        v.repeat_interleave(groups, dim=0).unsqueeze(0),
        attn_mask=visible,
    )
    return out.squeeze(0).transpose(0, 1)


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Whole sequences without a cache, differentiable.

    q: [..., n, H, hd]; k, v: [..., n, KV, hd]. Returns [..., n, H, hd].
    """
    out = scaled_dot_product_attention(
        q.transpose(-2, -3), k.transpose(-2, -3), v.transpose(-2, -3), is_causal=True, enable_gqa=True
    )
    return out.transpose(-2, -3)
