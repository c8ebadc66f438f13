"""Grouped-query attention in plain PyTorch, the definition the other paths are tested against."""

from __future__ import annotations

import torch
from torch import Tensor


def attention(q: Tensor, k: Tensor, v: Tensor, query_positions: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(hd)) v, each query seeing keys at positions up to its own.

    q: [n, H, hd]; k, v: [KV, S, hd], key i at position i, H a multiple of KV; query_positions: [n].
    Returns [n, H, hd] in q's dtype. Softmax runs in float32.
    """
    n, heads, head_dim = q.shape
    groups = heads // k.shape[0]
    grouped = q.reshape(n, -1, groups, head_dim).permute(1, 2, 0, 3).float()
    scores = grouped @ k.float().unsqueeze(1).transpose(-1, -2) * head_dim**-0.5
    hidden = torch.arange(k.shape[1], device=k.device) > query_positions.unsqueeze(-1)
    weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
    out = weights @ v.float().unsqueeze(1)
    return out.permute(2, 0, 1, 3).reshape(n, heads, head_dim).to(q.dtype)
