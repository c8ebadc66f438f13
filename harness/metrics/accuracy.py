"""Next-token distributions of two arms on one text: agreement, divergence, likelihood."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]

NORMALISATION_TOLERANCE = 1e-2
"""Total probability of a row may miss 1 by this: float32 sums over a large vocabulary."""


@dataclass(frozen=True)
class Accuracy:
    top1_agreement: float
    kl_nats: float
    """Mean KL(baseline || candidate)."""
    baseline_nll: float
    candidate_nll: float


def fault_of(logprobs: Matrix) -> str | None:
    """Why a [positions, vocab] matrix is no set of log-probabilities; None when it is."""
    if np.isnan(logprobs).any() or np.isposinf(logprobs).any():
        row = int(np.argwhere(np.isnan(logprobs) | np.isposinf(logprobs))[0][0])
        return f"row {row} of the log-probabilities holds NaN or infinity"
    totals = np.exp(logprobs.astype(np.float64)).sum(axis=1)
    worst = int(np.argmax(np.abs(totals - 1.0)))
    if abs(totals[worst] - 1.0) > NORMALISATION_TOLERANCE:
        return f"row {worst} of the log-probabilities sums to {totals[worst]:.4f}, not to 1"
    return None


def compare(baseline: Matrix, candidate: Matrix, targets: NDArray[np.int64]) -> Accuracy:
    """Compare two [positions, vocab] log-probability matrices of one text; ``targets`` is [positions].

    Ties of the most probable token go to the lowest id on both sides. Raises ValueError on a shape mismatch.
    """
    if baseline.shape != candidate.shape or targets.shape != baseline.shape[:1]:
        raise ValueError(
            f"shapes differ: baseline {baseline.shape}, candidate {candidate.shape}, targets {targets.shape}"
        )
    p, q = baseline.astype(np.float64), candidate.astype(np.float64)
    floor = np.finfo(np.float32).min
    kl = (np.exp(p) * (np.maximum(p, floor) - np.maximum(q, floor))).sum(axis=1)
    rows = np.arange(len(targets))
    return Accuracy(
        top1_agreement=float((p.argmax(axis=1) == q.argmax(axis=1)).mean()),
        kl_nats=float(max(kl.mean(), 0.0)),
        baseline_nll=float(-np.maximum(p[rows, targets], floor).mean()),
        candidate_nll=float(-np.maximum(q[rows, targets], floor).mean()),
    )
