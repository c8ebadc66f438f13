"""Linear projection without bias: y = x W^T.

Losslessness rests on this op. The verify pass over N rows must give, row for row, the bits of the
one-row decode step:

- CPU float32: a weight packed by :func:`pack` is multiplied by oneDNN with one reduction order for
  1 to 8 rows.
- CUDA: the runner pads every decode and verify pass to the same number of rows
  (``runtime.model_runner``), so both launch the same cuBLAS kernels on the same shapes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.ops.linear import onednn, reference

__all__ = ["linear", "pack"]


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
