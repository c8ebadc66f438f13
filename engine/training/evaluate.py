"""Free-running greedy acceptance of a draft on held-out continuations, simulated from proposals everywhere.

A greedy round that starts at an anchor commits the accepted prefix and one bonus token, and the next round
starts behind them. With the proposals of every position at hand, the loop needs no model: it walks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from engine.models.dspark import DSparkDraft
from engine.training.dataset import Bucket
from engine.training.forward import accepted_lengths


@dataclass
class Acceptance:
    """Pooled counts over rounds. ``survived[j]``: rounds whose first j + 1 proposals were accepted."""

    depth: int
    rounds: int = 0
    committed: int = 0
    survived: list[int] = field(default_factory=list)

    def add(self, accepted: int, committed: int) -> None:
        self.survived = self.survived or [0] * self.depth
        self.rounds += 1
        self.committed += committed
        for slot in range(accepted):
            self.survived[slot] += 1

    def merge(self, other: Acceptance) -> None:
        self.survived = [
            a + b
            for a, b in zip(
                self.survived or [0] * self.depth, other.survived or [0] * self.depth, strict=True
            )
        ]
        self.rounds += other.rounds
        self.committed += other.committed

    @property
    def tau(self) -> float | None:
        """Committed tokens per round, bonus included; None when no round ran."""
        return self.committed / self.rounds if self.rounds else None

    @property
    def survival(self) -> list[float]:
        return [count / self.rounds for count in self.survived] if self.rounds else []


def walk(accepted: Sequence[int], depth: int) -> Acceptance:
    """accepted[i]: proposals accepted by a round whose anchor is the i-th generated token.

    The last token has nothing left to propose for, so rounds run while an anchor has a successor.
    """
    out = Acceptance(depth)
    at, last = 0, len(accepted) - 1
    while at < last:
        taken = min(accepted[at], depth, last - at)
        committed = min(taken + 1, last - at)
        out.add(taken, committed)
        at += committed
    return out


@torch.no_grad()
def held_out(
    draft: DSparkDraft, head: torch.Tensor, bucket: Bucket, depths: Sequence[int], rows_per_pass: int = 8
) -> dict[int, Acceptance]:
    """Acceptance per verify depth over every sequence of a bucket."""
    first, total = bucket.plan.prompt_tokens, bucket.ids.shape[1]
    pooled = {depth: Acceptance(depth) for depth in depths}
    positions = torch.arange(first, total, device=bucket.ids.device)
    for start in range(0, len(bucket.ids), rows_per_pass):
        rows = bucket.rows(
            torch.arange(start, min(start + rows_per_pass, len(bucket.ids)), device=bucket.ids.device)
        )
        accepted = accepted_lengths(draft, head, rows, positions.expand(len(rows.ids), -1))
        for counts, end in zip(accepted.tolist(), rows.valid_end.tolist(), strict=True):
            for depth in depths:
                pooled[depth].merge(walk(counts[: end - first], depth))
    return pooled
