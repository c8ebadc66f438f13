"""Root-mean-square norm."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from engine.ops.rms_norm import rms_norm


class RMSNorm(nn.Module):
    """Norm over the last dimension with a learned ``weight`` [size]."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., size]; returns the same shape and dtype."""
        return rms_norm(x, self.weight, self.eps)
