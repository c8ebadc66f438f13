"""What the confidence head is used for, and how well it is calibrated.

The head gives, for each draft token, the logit z of the probability that it survives verification
given that all before it did. The product of these probabilities predicts the accept-prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

ECE_BINS = 20
AUC_BINS = 1000
CLAMP = 1e-8


def truncated_length(confidence: Sequence[float], threshold: float) -> int:
    """Draft tokens kept: those before the first whose confidence lies below ``threshold`` (0 keeps all).

    The rule looks at c_0..c_j, which depend on earlier draft tokens only, never on token j itself;
    that makes it non-anticipating, hence lossless.
    """
    if threshold > 0:
        for index, value in enumerate(confidence):
            if value < threshold:
                return index
    return len(confidence)


@dataclass(frozen=True)
class Calibration:
    """Quality of one position's predictions. None where the data cannot define a value."""

    weight: int
    """Rounds that count."""
    ece: float | None
    """Expected calibration error over 20 equal-width bins."""
    auc: float | None
    """Area under the ROC curve from 1000-bin histograms; None when only one class was seen."""
    brier: float | None
    pred_mean: float | None
    target_mean: float | None


def survival(z: Tensor) -> Tensor:
    """Predicted accept-prefix probability, float64 ``[N, k]``, from confidence logits ``z`` ``[N, k]``."""
    return torch.sigmoid(z).double().cumprod(dim=-1).clamp(CLAMP, 1 - CLAMP)


def calibration(z: Tensor, accepted: Tensor, lengths: Tensor) -> list[Calibration]:
    """Calibration per position over N rounds.

    ``z`` ``[N, k]`` confidence logits, ``accepted`` ``[N, k]`` 0/1 accept-prefix labels, ``lengths``
    ``[N]``: only the first ``lengths[n]`` slots of round n count.
    """
    predicted = survival(z)
    positions = range(z.shape[1])
    return [_at_position(predicted[lengths > k, k], accepted[lengths > k, k].double()) for k in positions]


def pooled(rows: Sequence[Calibration]) -> Calibration:
    """Means over positions weighted by the rounds that count; positions without a value are skipped."""

    def mean(name: str) -> float | None:
        pairs = [(getattr(row, name), row.weight) for row in rows if getattr(row, name) is not None]
        weight = sum(w for _, w in pairs)
        return sum(value * w for value, w in pairs) / weight if weight else None

    return Calibration(
        weight=sum(row.weight for row in rows),
        ece=mean("ece"),
        auc=mean("auc"),
        brier=mean("brier"),
        pred_mean=mean("pred_mean"),
        target_mean=mean("target_mean"),
    )


def _at_position(predicted: Tensor, label: Tensor) -> Calibration:
    count = predicted.numel()
    if count == 0:
        return Calibration(weight=0, ece=None, auc=None, brier=None, pred_mean=None, target_mean=None)
    bins = _bins(predicted, ECE_BINS)
    gap = torch.zeros(ECE_BINS, dtype=torch.float64).index_add_(0, bins, predicted - label)
    return Calibration(
        weight=count,
        ece=float(gap.abs().sum() / count),
        auc=_auc(_bins(predicted, AUC_BINS), label),
        brier=float((predicted - label).square().mean()),
        pred_mean=float(predicted.mean()),
        target_mean=float(label.mean()),
    )


def _bins(predicted: Tensor, count: int) -> Tensor:
    return (predicted * count).long().clamp_max(count - 1)


def _auc(bins: Tensor, label: Tensor) -> float | None:
    positive = torch.zeros(AUC_BINS, dtype=torch.float64).index_add_(0, bins, label)
    negative = torch.zeros(AUC_BINS, dtype=torch.float64).index_add_(0, bins, 1 - label)
    pairs = float(positive.sum() * negative.sum())
    if pairs == 0:
        return None
    below = negative.cumsum(0) - negative
    return float((positive * (below + negative / 2)).sum()) / pairs
