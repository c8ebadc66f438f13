"""Decoder-only language model: Llama and Qwen3 differ only in their config."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from engine.layers.attention import Attend
from engine.layers.decoder_layer import DecoderLayer
from engine.layers.embedding import Embedding
from engine.layers.linear import Linear, prepack
from engine.layers.norm import RMSNorm
from engine.layers.rotary import Rotary
from engine.models.config import ModelConfig

EMBEDDING_TAP = -1


class CausalLM(nn.Module):
    """Parameters carry the checkpoint's names without the ``model.`` prefix."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.rotary = Rotary(config.head_dim, config.rope_theta, config.max_position)
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            DecoderLayer(
                hidden_size=config.hidden_size,
                intermediate_size=config.intermediate_size,
                num_heads=config.num_heads,
                num_kv_heads=config.num_kv_heads,
                head_dim=config.head_dim,
                rms_norm_eps=config.rms_norm_eps,
                qk_norm=config.qk_norm,
            )
            for _ in range(config.num_layers)
        )
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = Linear(config.hidden_size, config.vocab_size)
        self.tie()

    def tie(self) -> None:
        """Let the output projection share the embedding, where the config says so."""
        if self.config.tie_embeddings:
            self.lm_head.weight = self.embed_tokens.weight

    def prepare_inference(self) -> None:
        """Freeze the weights and pack them for this device."""
        self.requires_grad_(False)
        prepack(self)

    @property
    def device(self) -> torch.device:
        return self.embed_tokens.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embed_tokens.weight.dtype

    def forward(
        self, ids: Tensor, positions: Tensor, attend: Attend, taps: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor | None]:
        """Hidden states after the final norm, and the tapped features.

        ids: [..., n]; positions: [n]. Returns ([..., n, d], [..., n, len(taps) * d] or None).
        ``taps`` are indices of decoder layers whose raw outputs are concatenated in list order;
        -1 is the embedding's output (DSPARK.md 1.3).
        """
        x = self.embed_tokens(ids)
        rope = self.rotary.at(positions, x.dtype)
        tapped = {EMBEDDING_TAP: x} if EMBEDDING_TAP in taps else {}
        for index, layer in enumerate(self.layers):
            x = layer(x, rope, attend, index)
            if index in taps:
                tapped[index] = x
        features = torch.cat([tapped[index] for index in taps], dim=-1) if taps else None
        return self.norm(x), features

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden: [..., n, d]; returns float32 [..., n, V]."""
        out: Tensor = self.lm_head(hidden)
        return out.float()
