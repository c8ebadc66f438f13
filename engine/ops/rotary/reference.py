"""Rotary position embedding, half-split form, in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """[a, b] -> [a cos - b sin, b cos + a sin], a and b the halves of the last dimension.

    x: [..., n, H, hd]; cos, sin: [..., n, 1, hd / 2] in x's dtype. Source: RoFormer (Su et al. 2021),
    with dimension i paired with i + hd / 2.
    """
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
