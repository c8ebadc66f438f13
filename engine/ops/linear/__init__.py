"""Linear projection without bias: y = x W^T.

Losslessness rests on this op. The verify pass over N rows must give, row for row, the bits of the
one-row decode step, so a decode or verify pass is padded to at least ``LEAST_ROWS`` of its device:

- CPU float32: a weight packed by :func:`pack` is multiplied by oneDNN, which sums in one order for
  4 to 8 rows, and takes no longer for 4 than for 1.
- CUDA, and a CPU without oneDNN: 8 rows for every pass, so that decode and verify launch the same
  kernels on the same shapes. Decoding waits for the weights, not for the rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.ops.linear import onednn, reference

__all__ = ["LEAST_ROWS", "linear", "pack"]

LEAST_ROWS = {"cpu": onednn.LEAST_ROWS if onednn.available() else 8, "cuda": 8}
"""By device type: rows to pad a decode or verify pass to."""


def pack(weight: Tensor) -> Tensor | None:
    """Packed form of ``weight`` [out, in] for inference, or None where the plain weight is used."""
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or not onednn.available():
        return None
    return onednn.pack(weight)


def linear(x: Tensor, weight: Tensor, packed: Tensor | None = None) -> Tensor:
    """x: [..., in]; weight: [out, in]; packed: result of :func:`pack`. Returns [..., out]."""
    if packed is None:
        return reference.linear(x, weight)
    return onednn.linear(x, packed)
