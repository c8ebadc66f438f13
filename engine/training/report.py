"""Acceptance of a finished draft on given prompts, as the tables of its README show it.

Greedy continuations of the target, one prompt at a time, admitted as scored runs admit them: a continuation
that loops (distinct 4-gram ratio below 0.5) or ends before three quarters of its budget is counted apart.
Loops are easy to predict and would flatter the draft; a handful of tokens says little.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from engine.models import draft_checkpoint
from engine.models.decoder import CausalLM
from engine.tokenizer import Tokenizer
from engine.training import teacher
from engine.training.dataset import LOOP_RATIO, Bucket, BucketPlan, distinct_4gram_ratio, valid_ends
from engine.training.evaluate import Acceptance, held_out

LEAST_CONTINUATION = 0.75


def evaluate_prompts(
    model: CausalLM,
    tokenizer: Tokenizer,
    checkpoint: Path,
    prompts: Sequence[Mapping[str, Any]],
    new_tokens: int,
) -> dict[str, Any]:
    """prompts: ``{"domain": str, "context": int, "ids": [int, ...]}`` each.

    Returns groups keyed by "domain@context" and "pooled", each with prompts, rounds, tau per verify depth
    and prefix survival per position; and the number of prompts not admitted.
    """
    draft = draft_checkpoint.load(checkpoint, model, tokenizer_sha256=tokenizer.sha256)
    depths = range(1, draft.config.block_size + 1)
    groups: dict[str, dict[int, Acceptance]] = {}
    counts: dict[str, int] = {}
    left_out: dict[str, int] = {}
    ones = torch.ones(len(draft.config.target_layer_ids), device=model.device)
    for prompt in prompts:
        ids = torch.tensor([prompt["ids"]], device=model.device)
        written = teacher.continuations(model, ids, new_tokens)
        end = valid_ends(ids.shape[1], written, model.config.eos_ids)
        length = int(end) - ids.shape[1]
        key = f"{prompt['domain']}@{prompt['context']}"
        short = length < LEAST_CONTINUATION * new_tokens
        if short or distinct_4gram_ratio(written[0, :length].tolist()) < LOOP_RATIO:
            left_out[key] = left_out.get(key, 0) + 1
            continue
        whole = torch.cat([ids, written], dim=1)
        features, hidden = teacher.features(model, whole, draft.config.target_layer_ids, ids.shape[1], ones)
        plan = BucketPlan(ids.shape[1], 1, new_tokens, 1.0, 1)
        found = held_out(
            draft, model.lm_head.weight, Bucket(plan, whole, features, hidden, ids.shape[1], end), depths
        )
        for name in (key, "pooled"):
            counts[name] = counts.get(name, 0) + 1
            group = groups.setdefault(name, {depth: Acceptance(depth) for depth in depths})
            for depth in depths:
                group[depth].merge(found[depth])
    deepest = draft.config.block_size
    return {
        "new_tokens": new_tokens,
        "dtype": str(model.dtype).removeprefix("torch."),
        "groups": {
            name: {
                "prompts": counts[name],
                "rounds": group[deepest].rounds,
                "tau": {str(depth): group[depth].tau for depth in depths},
                "survival": group[deepest].survival,
            }
            for name, group in sorted(groups.items())
        },
        "left_out": dict(sorted(left_out.items())),
    }


def table(result: Mapping[str, Any]) -> str:
    """The result as a Markdown table, one row a group."""
    groups: Mapping[str, Any] = result["groups"]
    depths = list(next(iter(groups.values()))["tau"]) if groups else []
    head = ["set", "prompts", "rounds", *(f"tau{depth}" for depth in depths), "prefix survival 1.."]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for name, group in groups.items():
        taus = ["-" if group["tau"][depth] is None else f"{group['tau'][depth]:.2f}" for depth in depths]
        survival = " ".join(f"{share:.2f}" for share in group["survival"])
        lines.append(
            f"| {' | '.join([name, str(group['prompts']), str(group['rounds']), *taus, survival])} |"
        )
    left_out = ", ".join(f"{name} {count}" for name, count in result["left_out"].items()) or "none"
    return "\n".join([*lines, "", f"Left out as loops or as too short: {left_out}."])
