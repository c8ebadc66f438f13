"""The gate of a SwiGLU feed-forward layer: silu(gate) * up."""

from __future__ import annotations

from torch import Tensor

from engine.ops.swiglu import reference, rowwise

__all__ = ["swiglu"]


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """gate, up: [..., m]; returns [..., m]. Rows of an [n, m] decode or verify pass are independent."""
    if gate.device.type == "cpu" and gate.dim() == 2 and gate.shape[0] <= rowwise.ROWS:
        return rowwise.swiglu(gate, up)
    return reference.swiglu(gate, up)
