"""Gated feed-forward layer (SwiGLU)."""

from __future__ import annotations

from torch import Tensor, nn

from engine.layers.linear import Linear
from engine.ops.swiglu import swiglu


class MLP(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, hidden_size: int, intermediate_size: int) -> None:
        super().__init__()
        self.gate_proj = Linear(hidden_size, intermediate_size)
        self.up_proj = Linear(hidden_size, intermediate_size)
        self.down_proj = Linear(intermediate_size, hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., hidden]; returns the same shape."""
        y: Tensor = self.down_proj(swiglu(self.gate_proj(x), self.up_proj(x)))
        return y
