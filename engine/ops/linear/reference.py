"""y = x W^T in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x: [..., in]; weight: [out, in]; returns [..., out] in x's dtype."""
    return torch.nn.functional.linear(x, weight)
