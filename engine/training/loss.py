"""The training loss over the full vocabulary, in row chunks whose logits never outlive a chunk.

Per supervised slot, with teacher p, draft q and w = exp(-slot / 4) (DSPARK.md 7):

    kl * KL(p || q) + ce * CE(argmax p, q) + BCE(confidence, 1 - |p - q|_1 / 2)

Logits of 14,000 rows by 49,152 entries would need gigabytes in each of several copies. The gradient with
respect to a row's logits is known in closed form, so the forward pass makes it chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

DECAY = 4.0


class RowStats(NamedTuple):
    """Per row: divergence, cross-entropy, overlap 1 - |p - q|_1 / 2, and whether both argmaxes agree."""

    kl: Tensor
    ce: Tensor
    overlap: Tensor
    agree: Tensor


def slot_weights(valid: Tensor, decay: float = DECAY) -> Tensor:
    """valid: bool [N, g]; returns float weights of the same shape, exp(-slot / decay) where valid."""
    slots = torch.arange(valid.shape[-1], device=valid.device)
    return valid * torch.exp(-slots / decay)


def rows_statistics(
    teacher: Tensor, student: Tensor, scale: Tensor, kl_share: Tensor, ce_share: Tensor
) -> tuple[Tensor, ...]:
    """Statistics and the gradient of a chunk. teacher, student: logits [R, V]; scale: [R]."""
    log_p = teacher.float().log_softmax(-1)
    log_q = student.float().log_softmax(-1)
    p, q = log_p.exp(), log_q.exp()
    best = teacher.argmax(-1)
    kl = (p * (log_p - log_q)).sum(-1)
    ce = -log_q.gather(-1, best.unsqueeze(-1)).squeeze(-1)
    overlap = torch.minimum(p, q).sum(-1)
    is_best = torch.arange(teacher.shape[-1], device=teacher.device) == best.unsqueeze(-1)
    gradient = (kl_share + ce_share) * q - kl_share * p - ce_share * is_best
    return kl, ce, overlap, student.argmax(-1) == best, (gradient * scale.unsqueeze(-1)).to(student.dtype)


class _HeadLoss(torch.autograd.Function):
    """Mixed divergence of draft rows from teacher rows through one joint projection [V, d + r]."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        markov_out: Tensor,
        head: Tensor,
        teacher_hidden: Tensor,
        scale: Tensor,
        shares: tuple[float, float],
        chunk: int,
        kernel: Callable[..., tuple[Tensor, ...]],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        width = head.shape[1]
        joint = torch.cat([head, markov_out.to(head.dtype)], dim=1)
        kl_share, ce_share = (torch.tensor(share, device=rows.device) for share in shares)
        grad_rows = torch.empty_like(rows, dtype=head.dtype)
        grad_markov = torch.zeros_like(markov_out, dtype=torch.float32)
        stats = []
        for start in range(0, rows.shape[0], chunk):
            part = slice(start, start + chunk)
            teacher = teacher_hidden[part] @ head.t()
            student = rows[part].to(head.dtype) @ joint.t()
            *chunk_stats, gradient = kernel(teacher, student, scale[part], kl_share, ce_share)
            stats.append(chunk_stats)
            grad_rows[part] = gradient @ joint
            grad_markov += gradient.t() @ rows[part, width:].to(head.dtype)
        kl, ce, overlap, agree = (torch.cat(column) for column in zip(*stats, strict=True))
        ctx.save_for_backward(grad_rows, grad_markov)
        ctx.mark_non_differentiable(kl, ce, overlap, agree)
        total = (scale * (shares[0] * kl + shares[1] * ce)).sum()
        return total, kl, ce, overlap, agree

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        grad_rows, grad_markov = ctx.saved_tensors
        upstream = grads[0]
        return upstream * grad_rows, upstream * grad_markov, None, None, None, None, None, None


def head_loss(
    hidden: Tensor,
    markov_in: Tensor,
    markov_out: Tensor,
    head: Tensor,
    teacher_hidden: Tensor,
    weights: Tensor,
    *,
    shares: tuple[float, float] = (0.5, 0.5),
    chunk: int = 3584,
    kernel: Callable[..., tuple[Tensor, ...]] = rows_statistics,
) -> tuple[Tensor, RowStats]:
    """Weighted mean of the mixed divergence.

    hidden: [R, d] draft rows; markov_in: [R, r] embedding of the previous token; markov_out: [V, r];
    head: [V, d], frozen; teacher_hidden: [R, d] final-normed rows of the target at the same positions;
    weights: [R]; shares: weights of KL and CE. Returns the scalar loss and per-row statistics.
    """
    scale = weights / (weights.sum() + 1e-6)
    rows = torch.cat([hidden, markov_in.to(hidden.dtype)], dim=1)
    total, *stats = _HeadLoss.apply(rows, markov_out, head, teacher_hidden, scale, shares, chunk, kernel)
    return total, RowStats(*stats)


def compiled_rows() -> Callable[..., tuple[Tensor, ...]]:
    """The chunk kernel fused by ``torch.compile``: one read of the logits instead of eight."""
    return torch.compile(rows_statistics, dynamic=False)
