"""Linear projection without bias."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from engine.ops import linear as linear_op


class Linear(nn.Module):
    """y = x W^T with ``weight`` [out, in]."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self._packed: Tensor | None = None
        nn.init.normal_(self.weight, std=0.02)

    def prepack(self) -> None:
        """Fix the weight for inference, in the layout its device computes fastest with."""
        self.weight.requires_grad_(False)
        self._packed = linear_op.pack(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., in]; returns [..., out]."""
        return linear_op.linear(x, self.weight, self._packed)


def prepack(module: nn.Module) -> None:
    """Prepack every :class:`Linear` below ``module``."""
    for child in module.modules():
        if isinstance(child, Linear):
            child.prepack()
