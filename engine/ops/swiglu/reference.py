"""The gate of a SwiGLU feed-forward layer in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up, silu(x) = x / (1 + exp(-x)). gate, up: [..., m]; returns [..., m].

    Source: GLU Variants Improve Transformer (Shazeer 2020).
    """
    return torch.nn.functional.silu(gate) * up
