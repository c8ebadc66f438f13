"""Token embedding."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Embedding(nn.Module):
    """Rows of ``weight`` [vocab, hidden]; a tied output projection holds the same parameter."""

    def __init__(self, vocab_size: int, hidden_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, hidden_size))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        """ids: [..., n] int64; returns [..., n, hidden]."""
        return nn.functional.embedding(ids, self.weight)
