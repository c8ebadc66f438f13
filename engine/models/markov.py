"""Markov heads: what makes a block that was computed in parallel depend on its own earlier tokens.

The backbone gives base logits U_j for every slot at once. A head adds a bias B(x_{j-1}, h_j), where
x_{j-1} is the token just chosen for the slot before (the anchor for slot 0). All low rank: the token
enters through an embedding W1 of rank r and the bias leaves through W2 [V, r]. DSPARK.md 1.6.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from engine.layers.embedding import Embedding
from engine.layers.linear import Linear


class MarkovHead(nn.Module):
    """The vanilla head, B = W2 e with e = W1[prev], and the frame of the others."""

    def __init__(self, vocab_size: int, rank: int, hidden_size: int) -> None:
        super().__init__()
        self.rank = rank
        self.hidden_size = hidden_size
        self.markov_w1 = Embedding(vocab_size, rank)
        self.markov_w2 = Linear(rank, vocab_size)

    def embed(self, prev: Tensor) -> Tensor:
        """prev: [..., n] ids; returns e [..., n, r], which the confidence head reads too."""
        out: Tensor = self.markov_w1(prev)
        return out

    def start(self, rows: Tensor) -> Tensor:
        """State before slot 0, for blocks whose hidden rows are [..., d]. Heads without one ignore it."""
        return rows.new_zeros(*rows.shape[:-1], self.rank)

    def step(self, e: Tensor, h: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Bias of one slot. e: [..., r]; h: [..., d]; returns (bias [..., V], next state [..., r])."""
        bias: Tensor = self.markov_w2(e)
        return bias, state

    def block(self, prev: Tensor, h: Tensor) -> Tensor:
        """Biases of whole blocks whose tokens are known. prev: [..., n]; h: [..., n, d]; [..., n, V]."""
        return self.step(self.embed(prev), h, self.start(h))[0]


class GatedMarkovHead(MarkovHead):
    """B = W2 (g * e) with g = sigmoid(Wgate [h; e] + b)."""

    def __init__(self, vocab_size: int, rank: int, hidden_size: int) -> None:
        super().__init__(vocab_size, rank, hidden_size)
        self.gate_proj = nn.Linear(hidden_size + rank, rank)

    def step(self, e: Tensor, h: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        gate = torch.sigmoid(self.gate_proj(torch.cat((h, e), dim=-1)))
        bias: Tensor = self.markov_w2(gate * e)
        return bias, state


class RNNHead(MarkovHead):
    """A gated recurrence along the block.

    [gate; candidate; output] = Wjoint [state; e; h] + b, g = sigmoid(gate),
    state' = g * state + (1 - g) * tanh(candidate), and B = W2 tanh(output) of this same step.
    """

    def __init__(self, vocab_size: int, rank: int, hidden_size: int) -> None:
        super().__init__(vocab_size, rank, hidden_size)
        self.joint_proj = nn.Linear(2 * rank + hidden_size, 3 * rank)

    def step(self, e: Tensor, h: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        gate, candidate, output = self.joint_proj(torch.cat((state, e, h), dim=-1)).chunk(3, dim=-1)
        gate = torch.sigmoid(gate)
        bias: Tensor = self.markov_w2(torch.tanh(output))
        return bias, gate * state + (1 - gate) * torch.tanh(candidate)

    def block(self, prev: Tensor, h: Tensor) -> Tensor:
        embedded, state, biases = self.embed(prev), self.start(h[..., 0, :]), []
        for slot in range(h.shape[-2]):
            bias, state = self.step(embedded[..., slot, :], h[..., slot, :], state)
            biases.append(bias)
        return torch.stack(biases, dim=-2)


MARKOV_HEADS: dict[str, type[MarkovHead]] = {
    "vanilla": MarkovHead,
    "gated": GatedMarkovHead,
    "rnn": RNNHead,
}
"""By the name a checkpoint's ``markov_head_type`` carries."""
