"""Attention projections. Caching and masking belong to the ``attend`` strategy that is passed in."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from engine.layers.linear import Linear
from engine.layers.norm import RMSNorm
from engine.layers.rotary import Rope
from engine.ops import attention as attention_op

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q [..., n, H, hd], k [..., n, KV, hd], v [..., n, KV, hd]) -> [..., n, H, hd].

Inference appends k and v to a cache, training masks a batch, a draft adds its context: the layers
below are the same for all of them.
"""


def attend_causal(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The strategy of whole sequences without a cache, batched and differentiable."""
    return attention_op.causal(q, k, v)


class Attention(nn.Module):
    """q, k, v, o projections, optional per-head norm of q and k (Qwen3), rotary embedding."""

    def __init__(
        self, hidden_size: int, num_heads: int, num_kv_heads: int, head_dim: int, qk_norm_eps: float | None
    ) -> None:
        """``qk_norm_eps``: epsilon of the q and k norms; None for a model without them."""
        super().__init__()
        self.head_dim = head_dim
        self.q_proj = Linear(hidden_size, num_heads * head_dim)
        self.k_proj = Linear(hidden_size, num_kv_heads * head_dim)
        self.v_proj = Linear(hidden_size, num_kv_heads * head_dim)
        self.o_proj = Linear(num_heads * head_dim, hidden_size)
        self.q_norm = None if qk_norm_eps is None else RMSNorm(head_dim, qk_norm_eps)
        self.k_norm = None if qk_norm_eps is None else RMSNorm(head_dim, qk_norm_eps)

    def query(self, x: Tensor, rope: Rope) -> Tensor:
        """x: [..., n, d]; returns rotated queries [..., n, H, hd]."""
        q = self._heads(self.q_proj(x))
        return rope.rotate(q if self.q_norm is None else self.q_norm(q))

    def key_value(self, x: Tensor, rope: Rope) -> tuple[Tensor, Tensor]:
        """x: [..., n, d]; returns rotated keys and plain values, [..., n, KV, hd] each."""
        k = self._heads(self.k_proj(x))
        return rope.rotate(k if self.k_norm is None else self.k_norm(k)), self._heads(self.v_proj(x))

    def forward(self, x: Tensor, rope: Rope, attend: Attend, layer: int) -> Tensor:
        """x: [..., n, d]; returns [..., n, d]."""
        k, v = self.key_value(x, rope)
        mixed = attend(layer, self.query(x, rope), k, v)
        out: Tensor = self.o_proj(mixed.flatten(-2))
        return out

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_dim))
