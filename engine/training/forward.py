"""The draft over many anchors of many sequences at once, as inference would see each of them alone.

An anchor at position a sees the context strictly before a and its own block, never another block
(DSPARK.md 1.4), so one masked pass gives the same hidden states as separate rounds would.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from engine.models.dspark import DSparkDraft
from engine.training.dataset import Bucket
from engine.training.teacher import attend_block


class Anchors(NamedTuple):
    """positions [S, A] of anchors and valid [S, A, g]: slots whose label lies inside the continuation."""

    positions: Tensor
    valid: Tensor


def choose_anchors(
    rows: Bucket, count: int, block: int, natural_share: float, generator: torch.Generator
) -> Anchors:
    """Random anchors: ``natural_share`` of them in the prompt's tail, the others in the continuation."""
    device = rows.ids.device
    first = rows.plan.prompt_tokens
    sequences = len(rows.ids)
    natural = int(count * natural_share) if rows.hidden_from < first else 0
    before = torch.randint(rows.hidden_from, first, (sequences, natural), generator=generator, device=device)
    span = (rows.valid_end - 1 - first).clamp_min(1).unsqueeze(1)
    uniform = torch.rand(sequences, count - natural, generator=generator, device=device)
    positions = torch.cat([before, first + (uniform * span).long()], dim=1)
    labels = positions.unsqueeze(-1) + 1 + torch.arange(block, device=device)
    return Anchors(positions, labels < rows.valid_end[:, None, None])


def block_hidden(draft: DSparkDraft, rows: Bucket, anchors: Tensor) -> Tensor:
    """anchors: [S, A]; returns the block's final-normed hidden states [S, A, g, d]."""
    sequences, count = anchors.shape
    total, block = rows.ids.shape[1], draft.config.block_size
    device = rows.ids.device
    positions = torch.arange(total, device=device)
    context = draft.context(rows.features)
    injected = [draft.context_key_value(layer, context, positions) for layer in range(len(draft.layers))]
    tokens = draft.block_ids(rows.ids.gather(1, anchors)).flatten(1)
    slots = (anchors.unsqueeze(-1) + torch.arange(block, device=device)).flatten(1)
    # Keys are padded to a multiple of 8, which the memory-efficient attention kernel asks for.
    padding = -(total + slots.shape[1]) % 8
    injected = [
        (pad(keys, (0, 0, 0, 0, 0, padding)), pad(values, (0, 0, 0, 0, 0, padding)))
        for keys, values in injected
    ]
    owner = torch.arange(count, device=device).repeat_interleave(block)
    past = torch.arange(total + padding, device=device) < anchors.repeat_interleave(block, dim=1).unsqueeze(
        -1
    )
    own = (owner.unsqueeze(1) == owner).expand(sequences, -1, -1)
    visible = torch.cat([past, own], dim=-1).unsqueeze(1)
    hidden: Tensor = draft(tokens, slots, attend_block(injected, visible))
    return hidden.unflatten(1, (count, block))


@torch.no_grad()
def accepted_lengths(draft: DSparkDraft, head: Tensor, rows: Bucket, anchors: Tensor) -> Tensor:
    """Greedy proposals from every anchor against the continuation that follows it. Returns [S, A] in 0..g."""
    block = draft.config.block_size
    hidden = block_hidden(draft, rows, anchors)
    previous = rows.ids.gather(1, anchors)
    alive = torch.ones_like(previous, dtype=torch.bool)
    accepted = torch.zeros_like(previous)
    for slot in range(block):
        logits = hidden[:, :, slot].to(head.dtype) @ head.t()
        if draft.markov_head is not None:
            embedded = draft.markov_head.markov_w1(previous)
            logits = logits + embedded.to(head.dtype) @ draft.markov_head.markov_w2.weight.to(head.dtype).t()
        proposal = logits.argmax(-1)
        label = anchors + 1 + slot
        inside = label < rows.valid_end.unsqueeze(1)
        truth = rows.ids.gather(1, label.clamp_max(rows.ids.shape[1] - 1))
        alive = alive & inside & (proposal == truth)
        accepted += alive
        previous = proposal
    return accepted
