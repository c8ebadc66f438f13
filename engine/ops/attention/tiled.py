"""Attention of a few query rows over a KV cache, in tiles of a fixed number of rows.

A one-row step and an eight-row verify run the same matrix products on the same shapes, so a row's
bits do not depend on how many rows travel with it: the last tile is padded with zero rows, and the
keys are padded to a whole number of ``KEY_STRIDE`` (masked with -inf, whose exponent is exactly 0).
"""

from __future__ import annotations

import torch
from torch import Tensor

KEY_STRIDE = 64
"""Keys are read in whole strides; growing the padded length by strides leaves every row's bits alone."""


def attention(q: Tensor, k: Tensor, v: Tensor, start: int, tile: int) -> Tensor:
    """q: [n, H, hd] at positions start..start+n-1; k, v: [KV, S, hd], finite everywhere.

    S covers start + n; what lies beyond a query's position is masked, and must be finite because a
    weight of zero does not silence a NaN. Returns [n, H, hd].
    """
    n, heads, head_dim = q.shape
    kv_heads, keys, _ = k.shape
    groups = heads // kv_heads
    tiles = -(-n // tile)
    grouped = q.new_zeros(tiles * tile, kv_heads, groups, head_dim)
    grouped[:n] = q.reshape(n, kv_heads, groups, head_dim) * head_dim**-0.5
    positions = torch.arange(start, start + tiles * tile, device=q.device)
    hidden = torch.arange(keys, device=q.device) > positions.unsqueeze(-1)
    k_t = k.transpose(1, 2)
    out = torch.empty_like(grouped)
    for first in range(0, tiles * tile, tile):
        rows = slice(first, first + tile)
        block = grouped[rows].transpose(0, 1).reshape(kv_heads, tile * groups, head_dim)
        scores = torch.bmm(block, k_t).view(kv_heads, tile, groups, keys)
        scores.masked_fill_(hidden[rows].view(1, tile, 1, keys), float("-inf"))
        weights = scores.softmax(dim=-1, dtype=torch.float32).to(v.dtype)
        mixed = torch.bmm(weights.view(kv_heads, tile * groups, keys), v)
        out[rows] = mixed.view(kv_heads, tile, groups, head_dim).transpose(0, 1)
    return out[:n].reshape(n, heads, head_dim)
