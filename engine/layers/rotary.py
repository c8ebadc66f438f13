"""Cosine and sine tables of rotary position embedding."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from engine.ops.rotary import rotate

SLACK_POSITIONS = 64
"""Rows past the context: a speculative block looks beyond the last position that is kept."""


class Rope(NamedTuple):
    """Rotation of some positions: cos and sin, [..., n, 1, hd / 2], in the activation dtype."""

    cos: Tensor
    sin: Tensor

    def rotate(self, x: Tensor) -> Tensor:
        """x: [..., n, H, hd]; returns the same shape, rotated."""
        return rotate(x, self.cos, self.sin)


class Rotary:
    """Table of angles position * theta^(-2i / hd), computed once per device in float32.

    Rows are looked up rather than computed per step, so a position has one set of bits wherever it
    stands in a block. Not a module: the table is a function of the config, not a parameter.
    """

    def __init__(self, head_dim: int, theta: float, max_position: int) -> None:
        self.head_dim = head_dim
        self.theta = theta
        self.max_position = max_position
        self._tables: dict[tuple[torch.device, torch.dtype], Rope] = {}

    def at(self, positions: Tensor, dtype: torch.dtype) -> Rope:
        """positions: [..., n] int64, each below max_position + SLACK_POSITIONS."""
        key = (positions.device, dtype)
        if key not in self._tables:
            self._tables[key] = self._table(positions.device, dtype)
        table = self._tables[key]
        return Rope(table.cos[positions], table.sin[positions])

    def _table(self, device: torch.device, dtype: torch.dtype) -> Rope:
        even = torch.arange(0, self.head_dim, 2, dtype=torch.float32)
        frequency = 1.0 / self.theta ** (even / self.head_dim)
        positions = torch.arange(self.max_position + SLACK_POSITIONS, dtype=torch.float32)
        angles = torch.outer(positions, frequency).unsqueeze(1)
        return Rope(angles.cos().to(device, dtype), angles.sin().to(device, dtype))
