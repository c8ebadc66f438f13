"""Keys and values of one sequence, in memory allocated once."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.config import CapacityError


class KVCache:
    """Static K and V of every layer, [KV, capacity, hd] each.

    ``length`` positions are valid. A pass appends its rows to every layer and then commits them
    with :meth:`advance`; :meth:`truncate` rolls back. Rows beyond ``length`` hold zeros or leftovers
    of rejected tokens: always finite, never visible.
    """

    def __init__(
        self,
        *,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        shape = (num_layers, num_kv_heads, capacity, head_dim)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.capacity = capacity
        self.length = 0
        self._written = 0

    def append(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Write k, v [n, KV, hd] at positions length..length+n-1 of one layer."""
        end = self.length + k.shape[0]
        self.require(end)
        self._written = max(self._written, end)
        self.keys[layer, :, self.length : end] = k.transpose(0, 1)
        self.values[layer, :, self.length : end] = v.transpose(0, 1)

    def read(self, layer: int, span: int) -> tuple[Tensor, Tensor]:
        """K and V of one layer at positions 0..span-1, [KV, span, hd] each, without a copy."""
        return self.keys[layer, :, :span], self.values[layer, :, :span]

    def advance(self, rows: int) -> None:
        """Make the ``rows`` just appended to every layer valid."""
        self.require(self.length + rows)
        self.length += rows

    def truncate(self, length: int) -> None:
        """Keep the first ``length`` positions."""
        if not 0 <= length <= self.length:
            raise CapacityError(f"The KV cache holds {self.length} positions and cannot be cut to {length}.")
        self.length = length

    def reset(self) -> None:
        """Forget everything, leftovers of an earlier sequence included."""
        # Rows never written are zero already; leaving them alone leaves their memory unclaimed.
        self.keys[:, :, : self._written].zero_()
        self.values[:, :, : self._written].zero_()
        self.length = self._written = 0

    def require(self, positions: int) -> None:
        """Raise CapacityError unless ``positions`` fit."""
        if positions > self.capacity:
            raise CapacityError(
                f"The KV cache was built for {self.capacity} positions and {positions} are needed; "
                "shorten the prompt, ask for fewer new tokens, or load with a larger max_tokens."
            )

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes
