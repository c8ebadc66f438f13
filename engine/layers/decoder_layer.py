"""One pre-norm transformer block, shared by targets and drafts."""

from __future__ import annotations

from torch import Tensor, nn

from engine.layers.attention import Attend, Attention
from engine.layers.mlp import MLP
from engine.layers.norm import RMSNorm
from engine.layers.rotary import Rope


class DecoderLayer(nn.Module):
    """x += attention(norm(x)); x += mlp(norm(x))."""

    def __init__(
        self,
        *,
        hidden_size: int,
        intermediate_size: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        rms_norm_eps: float,
        qk_norm: bool,
    ) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(hidden_size, rms_norm_eps)
        self.self_attn = Attention(
            hidden_size, num_heads, num_kv_heads, head_dim, rms_norm_eps if qk_norm else None
        )
        self.post_attention_layernorm = RMSNorm(hidden_size, rms_norm_eps)
        self.mlp = MLP(hidden_size, intermediate_size)

    def forward(self, x: Tensor, rope: Rope, attend: Attend, layer: int) -> Tensor:
        """x: [..., n, d]; ``layer`` is this block's index, handed to ``attend``. Returns [..., n, d]."""
        x = x + self.self_attn(self.input_layernorm(x), rope, attend, layer)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out
