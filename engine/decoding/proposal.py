"""Propose: draft tokens for one round, drawn left to right from a block computed in parallel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.config import ConfigError
from engine.decoding.confidence import truncated_length
from engine.decoding.sampling import argmax, draw, is_greedy, probabilities
from engine.models.dspark import DSparkDraft
from engine.runtime.draft_runner import DraftRunner


@dataclass(frozen=True)
class Proposal:
    """Draft tokens for positions s+1, s+2, ... and what verification needs to judge them."""

    tokens: Tensor
    """[k] int64."""
    laws: Tensor | None
    """[k, n] float32, the very laws the tokens were drawn from; None when they are argmaxes.
    n may fall short of the target's vocabulary: ids beyond it had no chance."""


class Proposer(Protocol):
    """What the decode loop needs of a draft."""

    @property
    def length(self) -> int:
        """Committed positions seen so far."""

    def observe(self, features: Tensor) -> None:
        """Take the target features [m, L * d] of the next m committed positions."""

    def propose(
        self, anchor: int, count: int, temperature: float, generator: torch.Generator | None
    ) -> Proposal:
        """At most ``count`` tokens to follow ``anchor``, the newest committed token."""


class DSparkProposer:
    """Proposals of a DSpark draft."""

    def __init__(self, runner: DraftRunner, confidence_threshold: float = 0.0) -> None:
        """``confidence_threshold``: a proposal ends before the first token less certain than this."""
        if confidence_threshold > 0 and runner.draft.confidence_head is None:
            raise ConfigError(
                f"The confidence threshold is {confidence_threshold}, but this draft has no confidence head: "
                "set it to 0."
            )
        self.runner = runner
        self.confidence_threshold = confidence_threshold

    @property
    def length(self) -> int:
        return self.runner.length

    def observe(self, features: Tensor) -> None:
        self.runner.observe(features)

    @torch.inference_mode()
    def propose(
        self, anchor: int, count: int, temperature: float, generator: torch.Generator | None = None
    ) -> Proposal:
        draft = self.runner.draft
        if count > self.runner.block_size:
            raise ConfigError(
                f"{count} proposals were asked for, but this draft was trained for blocks of "
                f"{self.runner.block_size}: ask for 0..{self.runner.block_size}."
            )
        if anchor >= draft.vocabulary.size:
            # An id from the target's padding: the draft has no row for it, so it sits this round out.
            return Proposal(torch.empty(0, dtype=torch.int64), None)
        hidden = self.runner.block(anchor)[:count]
        block = decode_block(draft, hidden, anchor, temperature, generator)
        keep = count
        if self.confidence_threshold > 0:
            certainty = confidence(draft, hidden, block).sigmoid()
            keep = truncated_length(certainty.tolist(), self.confidence_threshold)
        laws = None if block.laws is None else block.laws[:keep]
        return Proposal(block.tokens[:keep], laws)


@dataclass(frozen=True)
class DecodedBlock:
    """All slots of one block, before truncation."""

    tokens: Tensor
    """[k] int64."""
    logits: Tensor
    """[k, n] float32, the Markov bias included."""
    laws: Tensor | None
    """[k, n] float32 at the temperature of the block; None when it is greedy."""
    embedded: Tensor | None
    """[k, r] Markov embedding of the token before each slot; None without a Markov head."""


def decode_block(
    draft: DSparkDraft, hidden: Tensor, anchor: int, temperature: float, generator: torch.Generator | None
) -> DecodedBlock:
    """Choose a token for each of the k slots of ``hidden`` [k, d], each conditioned on the one before."""
    base = draft.base_logits(hidden)
    head = draft.markov_head
    greedy = is_greedy(temperature)
    prev = torch.tensor([anchor], device=base.device)
    state = None if head is None else head.start(hidden[:1])
    tokens, logits, laws, embedded = [], [], [], []
    for slot in range(hidden.shape[0]):
        row = base[slot : slot + 1]
        if head is not None and state is not None:
            e = head.embed(prev)
            bias, state = head.step(e, hidden[slot : slot + 1], state)
            row = row + bias[:, : row.shape[1]].float()
            embedded.append(e)
        if greedy:
            prev = argmax(row)
        else:
            laws.append(probabilities(row, temperature))
            prev = draw(laws[-1], generator)
        tokens.append(prev)
        logits.append(row)
    return DecodedBlock(
        tokens=torch.cat(tokens),
        logits=torch.cat(logits),
        laws=torch.cat(laws) if laws else None,
        embedded=torch.cat(embedded) if embedded else None,
    )


def confidence(draft: DSparkDraft, hidden: Tensor, block: DecodedBlock) -> Tensor:
    """Confidence logits z float32 [k] of a block's proposals, from the prefix they were drawn after."""
    if draft.confidence_head is None:
        raise ConfigError("This draft has no confidence head: it cannot say how certain its proposals are.")
    z: Tensor = draft.confidence_head(hidden, block.embedded)
    return z
