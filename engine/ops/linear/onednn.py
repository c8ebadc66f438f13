"""oneDNN's packed float32 matmul for CPU inference.

The weight is reordered once into oneDNN's blocked layout. With it, a call over a few rows reads the
weight once at memory speed, and each row's sum runs in the same order whatever the number of rows
(1 to ``INVARIANT_ROWS``), which ``F.linear`` does not do: it switches from a GEMV to a GEMM.
"""

from __future__ import annotations

import torch
from torch import Tensor

INVARIANT_ROWS = 8
"""Largest row count up to which every row has the bits of a one-row call."""

_LAYOUT_ROWS = 4
"""Row count the blocked layout is chosen for: between one decode row and a full verify block."""


def available() -> bool:
    """Whether this build of PyTorch carries oneDNN and its packed linear."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def pack(weight: Tensor) -> Tensor:
    """weight: [out, in] float32 on CPU; returns an opaque tensor for :func:`linear`."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), _LAYOUT_ROWS)
    return packed


def linear(x: Tensor, packed: Tensor) -> Tensor:
    """x: [..., in] float32; returns [..., out]."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")
    return y
