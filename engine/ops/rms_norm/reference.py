"""Root-mean-square norm in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """y = cast(x / sqrt(mean(x^2) + eps)) * weight, over the last dimension.

    x: [..., d]; weight: [d]. The mean is taken in float32 and the quotient is cast back to x's dtype
    *before* the weight multiplies it, as the published checkpoints were trained (DSPARK.md 1.5).
    """
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    return (wide * scale).to(x.dtype) * weight
