"""oneDNN's packed float32 matmul for CPU inference.

The weight is reordered once into oneDNN's blocked layout. With it, a call over a few rows reads the
weight once at memory speed, and each row's sum runs in the same order for any number of rows from
``LEAST_ROWS`` to ``MOST_ROWS``. A single row is another kernel: it splits a long sum (from 1,536 terms
on) in another order, and is no faster.
"""

from __future__ import annotations

import torch
from torch import Tensor

LEAST_ROWS = 4
MOST_ROWS = 8
"""Row counts between which a row's bits do not depend on the count. Four are as fast as two."""

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
