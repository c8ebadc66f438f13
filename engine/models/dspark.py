"""The DSpark draft: a few layers that turn the target's own features into a block of proposals.

The target's tapped layer outputs f_t become one context row c_t = norm(fc f_t). Every draft layer
projects the same c_t to a key and a value at position t; these depend on f_t alone, so they can be
appended as tokens are committed and never need to be rolled back. One pass over
[anchor, mask, ..., mask] then sees all context and the whole block at once, without a mask, and slot
j, at position s + j, predicts the token at s + j + 1. DSPARK.md 1.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from engine.layers.attention import Attend
from engine.layers.decoder_layer import DecoderLayer
from engine.layers.embedding import Embedding
from engine.layers.linear import Linear, prepack
from engine.layers.norm import RMSNorm
from engine.layers.rotary import Rotary
from engine.models.dspark_config import DraftConfig
from engine.models.markov import MARKOV_HEADS, MarkovHead


class ConfidenceHead(nn.Module):
    """z_j = w [h_j; e_j] + b: logit of the probability that proposal j survives if those before it do."""

    def __init__(self, hidden_size: int, markov_rank: int) -> None:
        """``markov_rank``: 0 for a head that reads the hidden state alone."""
        super().__init__()
        self.with_markov = markov_rank > 0
        self.proj = nn.Linear(hidden_size + markov_rank, 1)

    def forward(self, h: Tensor, e: Tensor | None) -> Tensor:
        """h: [..., d]; e: Markov embedding [..., r] of the token before; returns float32 [...]."""
        joint = torch.cat((h, e), dim=-1) if self.with_markov and e is not None else h
        out: Tensor = self.proj(joint).float().squeeze(-1)
        return out


class Vocabulary(NamedTuple):
    """Where tokens enter and leave a draft. Frozen, and nearly always the target's own modules."""

    embed_tokens: Embedding
    lm_head: Linear
    size: int
    """Ids 0..size-1 are known to target and draft alike; wider rows on either side are padding."""


class DSparkDraft(nn.Module):
    """Parameters carry DeepSpec's names.

    The vocabulary modules are held and not registered: ``parameters()`` are those that training moves
    and ``state_dict()`` is what a checkpoint of ours stores.
    """

    def __init__(self, config: DraftConfig, vocabulary: Vocabulary) -> None:
        super().__init__()
        body = config.body
        self.config = config
        self.vocabulary = vocabulary
        self.rotary = Rotary(body.head_dim, body.rope_theta, body.max_position)
        self.fc = Linear(config.feature_size, body.hidden_size)
        self.hidden_norm = RMSNorm(body.hidden_size, body.rms_norm_eps)
        self.layers = nn.ModuleList(
            DecoderLayer(
                hidden_size=body.hidden_size,
                intermediate_size=body.intermediate_size,
                num_heads=body.num_heads,
                num_kv_heads=body.num_kv_heads,
                head_dim=body.head_dim,
                rms_norm_eps=body.rms_norm_eps,
                qk_norm=True,
            )
            for _ in range(body.num_layers)
        )
        self.norm = RMSNorm(body.hidden_size, body.rms_norm_eps)
        self.markov_head: MarkovHead | None = None
        if config.markov_head_type is not None:
            head = MARKOV_HEADS[config.markov_head_type]
            self.markov_head = head(body.vocab_size, config.markov_rank, body.hidden_size)
        self.confidence_head: ConfidenceHead | None = None
        if config.confidence_head:
            rank = config.markov_rank if config.confidence_with_markov else 0
            self.confidence_head = ConfidenceHead(body.hidden_size, rank)

    def prepare_inference(self) -> None:
        """Freeze the weights and pack them for this device; the vocabulary is its owner's to pack."""
        self.requires_grad_(False)
        prepack(self)

    @property
    def device(self) -> torch.device:
        return self.fc.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.fc.weight.dtype

    def context(self, features: Tensor) -> Tensor:
        """Context rows c of target features. [..., m, L * d] -> [..., m, d]."""
        out: Tensor = self.hidden_norm(self.fc(features))
        return out

    def context_key_value(self, layer: int, context: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of context rows in one layer: [..., m, d] -> [..., m, KV, hd] each."""
        rope = self.rotary.at(positions, context.dtype)
        key_value: tuple[Tensor, Tensor] = self.layers[layer].self_attn.key_value(context, rope)
        return key_value

    def block_ids(self, anchors: Tensor) -> Tensor:
        """Block inputs [..., γ] of ``anchors`` [...]: the anchor, then masks."""
        masks = anchors.new_full((*anchors.shape, self.config.block_size - 1), self.config.mask_token_id)
        return torch.cat((anchors.unsqueeze(-1), masks), dim=-1)

    def forward(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Hidden states H after the final norm. ids, positions: [..., n]; returns [..., n, d].

        ``attend`` owns what a block slot sees: in inference all context and the whole block, in
        training a mask that gives each block the same view.
        """
        x = self.vocabulary.embed_tokens(ids)
        rope = self.rotary.at(positions, x.dtype)
        for index, layer in enumerate(self.layers):
            x = layer(x, rope, attend, index)
        out: Tensor = self.norm(x)
        return out

    def base_logits(self, hidden: Tensor) -> Tensor:
        """U, float32 [..., n, vocabulary.size], of hidden states [..., n, d]."""
        out: Tensor = self.vocabulary.lm_head(hidden)
        return out[..., : self.vocabulary.size].float()
