"""The acceptance rule: which draft tokens stand, and what law the target's own token follows.

Pure functions on tensors, so the rule can be tested without a model. With p the target's law and
q the law a draft token x was drawn from, x stands iff u < min(1, p(x) / q(x)) for u ~ U[0, 1);
the first token that falls is replaced by a draw from max(p - q, 0), normalised. The committed
tokens then follow p exactly (Leviathan et al. 2023; Chen et al. 2023). At temperature 0 both laws
are one-hot and the rule reads "x stands while it is the target's argmax".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from engine.decoding.sampling import residual

Q_FLOOR = 1e-8
"""Least q(x) that divides, against a draft token whose probability rounded to zero."""

RESIDUAL_FLOOR = 1e-8

NextKind = Literal["residual", "bonus"]


@dataclass(frozen=True)
class Judgement:
    """What became of the k draft tokens of one round."""

    accepted: int
    """Draft tokens that stand; when one of them is a stop token, none after it."""
    proposed: int
    """Draft tokens that count as proposed: k, or ``accepted`` when stopped."""
    stopped: bool
    """An accepted draft token is a stop token: the target adds no token of its own."""

    @property
    def next_kind(self) -> NextKind | None:
        """Where the target's own token comes from; None when stopped."""
        if self.stopped:
            return None
        return "residual" if self.accepted < self.proposed else "bonus"


def _cut_at_stop(draft: Sequence[int], prefix: int, stop_ids: Collection[int]) -> Judgement:
    for index, token in enumerate(draft[:prefix]):
        if token in stop_ids:
            return Judgement(accepted=index + 1, proposed=index + 1, stopped=True)
    return Judgement(accepted=prefix, proposed=len(draft), stopped=False)


def judge_greedy(draft: Sequence[int], target_argmax: Sequence[int], stop_ids: Collection[int]) -> Judgement:
    """Judge ``k`` draft tokens against the target's argmax at the same ``k`` (or more) positions."""
    prefix = 0
    while prefix < len(draft) and draft[prefix] == target_argmax[prefix]:
        prefix += 1
    return _cut_at_stop(draft, prefix, stop_ids)


def acceptance_probability(p: Tensor, q: Tensor, draft: Tensor) -> Tensor:
    """min(1, p(x) / q(x)) as ``[k]``, for ``p`` ``[>= k, V]``, ``q`` ``[k, V]``, ``draft`` ``[k]`` ids."""
    column = draft.unsqueeze(-1)
    p_x = p[: draft.shape[0]].gather(-1, column).squeeze(-1)
    q_x = q.gather(-1, column).squeeze(-1)
    return (p_x / q_x.clamp_min(Q_FLOOR)).clamp_max(1.0)


def judge_sampled(
    draft: Tensor, p: Tensor, q: Tensor, uniforms: Tensor, stop_ids: Collection[int]
) -> Judgement:
    """Judge ``draft`` ``[k]``, drawn from ``q`` ``[k, V]``, by ``p`` ``[k + 1, V]``.

    ``uniforms`` ``[k]`` are the draws that decide, one per draft token.
    """
    passes = uniforms < acceptance_probability(p, q, draft)
    prefix = int(passes.to(torch.int64).cumprod(dim=0).sum())
    return _cut_at_stop(draft.tolist(), prefix, stop_ids)


def next_law(judgement: Judgement, p: Tensor, q: Tensor) -> Tensor:
    """Law ``[V]`` of the target's own token after ``judgement``. Raises ValueError when it is stopped."""
    if judgement.next_kind == "bonus":
        return p[judgement.accepted]
    if judgement.next_kind == "residual":
        return residual(p[judgement.accepted], q[judgement.accepted], RESIDUAL_FLOOR)
    raise ValueError("the sequence ended on an accepted stop token: no token follows it")
