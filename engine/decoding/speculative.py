"""DSpark decoding: propose, verify, commit, until the budget is spent or a stop token is committed.

State between rounds: the anchor is the newest committed token, at position s, which neither model
has processed yet; the target's cache and the draft's context both hold positions 0..s-1. A round
verifies [anchor, x_0 .. x_{k-1}] in one pass, commits what stands and one token of the target's own,
and rolls the target back to what was committed. DSPARK.md 2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import torch
from torch import Tensor

from engine.config import ConfigError
from engine.decoding.proposal import Proposal, Proposer
from engine.decoding.sampling import draw, greedy_ids, is_greedy, probabilities, require_finite, sample
from engine.decoding.step import Step, finish_reason
from engine.decoding.verify import Judgement, judge_greedy, judge_sampled, next_law
from engine.runtime.model_runner import PADDED_ROWS, ModelRunner


def positions_needed(prompt_tokens: int, max_new_tokens: int, proposals: int) -> int:
    """Cache positions that a generation may touch: the last block is not shortened near the limit."""
    return prompt_tokens + max_new_tokens + max(proposals + 1, PADDED_ROWS)


def generate(
    runner: ModelRunner,
    proposer: Proposer,
    prompt_ids: Sequence[int],
    *,
    proposals: int,
    max_new_tokens: int,
    temperature: float = 0.0,
    stop_ids: Collection[int] = (),
    generator: torch.Generator | None = None,
) -> Iterator[Step]:
    """Yield the prefill's token, then the committed tokens of each round.

    ``runner`` and ``proposer`` must be empty, the runner built with the draft's taps. ``proposals`` is
    the depth of every round; at 0 the draft stays idle and each round is one autoregressive step.
    Raises CapacityError before the first token if the caches cannot hold the generation, and
    NumericsError when the target's logits are not finite.
    """
    runner.cache.require(positions_needed(len(prompt_ids), max_new_tokens, proposals))
    prefill = runner.prefill(prompt_ids)
    proposer.observe(_features(prefill.features))
    anchor = sample(prefill.logits, temperature, generator)
    reason = finish_reason((anchor,), max_new_tokens, stop_ids)
    yield Step((anchor,), finish_reason=reason)
    remaining = max_new_tokens - 1
    while reason is None:
        proposal = _propose(proposer, anchor, proposals, temperature, generator)
        start = runner.length
        output = runner.verify([anchor, *proposal.tokens.tolist()])
        judgement, own = _judge(proposal, output.logits, temperature, stop_ids, generator)
        accepted = proposal.tokens[: judgement.accepted].tolist()
        committed = tuple([*accepted, *own][:remaining])
        # The newest token has not been processed yet, the anchor has: as many rows as committed tokens.
        runner.truncate(start + len(committed))
        proposer.observe(_features(output.features)[: len(committed)])
        reason = finish_reason(committed, remaining, stop_ids)
        yield Step(committed, judgement.proposed, judgement.accepted, reason)
        anchor = committed[-1]
        remaining -= len(committed)


def _propose(
    proposer: Proposer, anchor: int, proposals: int, temperature: float, generator: torch.Generator | None
) -> Proposal:
    if proposals == 0:
        return Proposal(torch.empty(0, dtype=torch.int64), None)
    return proposer.propose(anchor, proposals, temperature, generator)


def _judge(
    proposal: Proposal,
    logits: Tensor,
    temperature: float,
    stop_ids: Collection[int],
    generator: torch.Generator | None,
) -> tuple[Judgement, list[int]]:
    """The judgement of a round and the target's own token, absent after an accepted stop token.

    ``logits``: [k + 1, V], row i judging token i and the last row giving the bonus token.
    """
    if is_greedy(temperature):
        top = greedy_ids(logits)
        judgement = judge_greedy(proposal.tokens.tolist(), top, stop_ids)
        return judgement, [] if judgement.stopped else [top[judgement.accepted]]
    require_finite(logits.max(dim=-1).values)
    p = probabilities(logits, temperature)
    q = _widened(proposal, p)
    uniforms = torch.rand(len(proposal.tokens), device=p.device, generator=generator)
    judgement = judge_sampled(proposal.tokens.to(p.device), p, q, uniforms, stop_ids)
    if judgement.stopped:
        return judgement, []
    return judgement, [int(draw(next_law(judgement, p, q), generator))]


def _widened(proposal: Proposal, p: Tensor) -> Tensor:
    """The draft's laws [k, V], with probability 0 for ids that it cannot propose."""
    if proposal.laws is None:
        return torch.nn.functional.one_hot(proposal.tokens.to(p.device), p.shape[-1]).to(p.dtype)
    return torch.nn.functional.pad(proposal.laws, (0, p.shape[-1] - proposal.laws.shape[-1]))


def _features(features: Tensor | None) -> Tensor:
    if features is None:
        raise ConfigError("The target was built without taps, so its draft has nothing to read.")
    return features
