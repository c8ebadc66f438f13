"""Acceptance from observed bursts: tau, its histogram, and the identities that bind them.

tau = committed tokens / verify rounds, the bonus token included, pooled over rounds (AR = 1.0).
Every burst after the first is one round; a burst of n tokens is n - 1 accepted drafts and one bonus.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.schema import Sample

TAU = (
    "tau = committed tokens / verify rounds, pooled over rounds, the bonus token of each round included, the "
    "prefill's token not (AR = 1.0)."
)
"""The definition, as records and reports quote it."""


@dataclass(frozen=True)
class Acceptance:
    """Pooled counts of many rounds.

    What was proposed is known from the workers' reports alone: None where one of them counts other rounds
    than arrived. All else follows from what arrived.
    """

    rounds: int
    committed: int
    accepted: int
    proposed: int | None
    idle_rounds: int | None
    """Rounds that verified no draft token."""
    histogram: tuple[int, ...]
    """``histogram[i]`` rounds accepted ``i`` drafts."""
    survival: tuple[float, ...] | None
    """``survival[i]``: share of the rounds proposing more than ``i`` drafts that accepted more than ``i``."""

    @property
    def tau(self) -> float:
        return self.committed / self.rounds

    @property
    def accepted_per_round(self) -> float:
        return self.accepted / self.rounds


def pooled(samples: Iterable[Sample]) -> Acceptance | None:
    """Acceptance of DSpark samples; None where no round was seen."""
    spoken = [sample for sample in samples if sample.mode == "dspark"]
    rounds = [[burst.tokens for burst in sample.bursts[1:]] for sample in spoken]
    sizes = [tokens for each in rounds for tokens in each]
    if not sizes:
        return None
    agree = all(len(s.reported.proposed) == len(each) for s, each in zip(spoken, rounds, strict=True))
    widths = [width for sample in spoken for width in sample.reported.proposed] if agree else None
    counts = Counter(tokens - 1 for tokens in sizes)
    return Acceptance(
        rounds=len(sizes),
        committed=sum(sizes),
        accepted=sum(tokens - 1 for tokens in sizes),
        proposed=None if widths is None else sum(widths),
        idle_rounds=None if widths is None else sum(width == 0 for width in widths),
        histogram=tuple(counts.get(i, 0) for i in range(max(counts) + 1)),
        survival=None if widths is None else _survival(sizes, widths),
    )


def _survival(sizes: Sequence[int], widths: Sequence[int]) -> tuple[float, ...]:
    survival = []
    for depth in range(max(*widths, max(sizes) - 1)):
        reached = [size for size, width in zip(sizes, widths, strict=True) if width > depth]
        survival.append(sum(size - 1 > depth for size in reached) / len(reached) if reached else 0.0)
    return tuple(survival)


def broken_identity(
    *, rounds: int, accepted: int, committed: int, proposed: int, histogram: tuple[int, ...], depth: int
) -> str | None:
    """The first identity that the counts break, as a sentence; None when all hold."""
    if sum(histogram) != rounds:
        return f"the histogram holds {sum(histogram)} rounds, {rounds} were counted"
    drafts = sum(i * n for i, n in enumerate(histogram))
    if drafts != accepted:
        return f"the histogram holds {drafts} accepted drafts, not {accepted}"
    if accepted + rounds != committed:
        return f"{accepted} accepted drafts and {rounds} bonus tokens do not make {committed} tokens"
    if not accepted <= proposed <= rounds * depth:
        return f"{proposed} proposed drafts lie outside {accepted} accepted to {rounds} rounds of {depth}"
    return None


def inconsistency(sample: Sample, depth: int) -> str | None:
    """Where the worker's claims about one DSpark generation contradict what was seen of it.

    The last round may have accepted more than it could commit: a stop token or the token budget
    cuts it, so only there may the claim exceed what arrived. ``depth`` is the most a round may propose.
    """
    seen = [burst.tokens for burst in sample.bursts[1:]]
    claim = sample.reported
    if len(claim.proposed) != len(seen) or len(claim.accepted) != len(seen):
        return f"{len(seen)} rounds arrived but {len(claim.proposed)} were reported"
    for index, (tokens, accepted, proposed) in enumerate(
        zip(seen, claim.accepted, claim.proposed, strict=True)
    ):
        last = index == len(seen) - 1
        if tokens - 1 != accepted and not (last and tokens - 1 < accepted):
            return f"round {index} delivered {tokens} tokens but reports {accepted} accepted drafts"
        if accepted > proposed or proposed > depth:
            return f"round {index} reports {accepted} of {proposed} drafts accepted at depth {depth}"
    counts = Counter(tokens - 1 for tokens in seen)
    return broken_identity(
        rounds=len(seen),
        accepted=sum(tokens - 1 for tokens in seen),
        committed=len(sample.token_ids) - sum(burst.tokens for burst in sample.bursts[:1]),
        proposed=sum(claim.proposed),
        histogram=tuple(counts.get(i, 0) for i in range(max(counts, default=-1) + 1)),
        depth=depth,
    )
