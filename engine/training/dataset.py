"""Training data: the target's own continuations, with its features cached on the device.

Generating, and running the target over the result, happens once; every training step then costs only
the draft. A bucket holds sequences of one length, so no step sees padding.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.models.decoder import CausalLM
from engine.training import teacher
from engine.training.prompts import ChatTokenizer, PromptBuilder, Text, document_request

NATURAL_ANCHORS = 128
"""Prompt positions before the continuation that may serve as anchors as well."""

LOOP_RATIO = 0.5
"""Distinct 4-gram ratio below which a continuation counts as a loop."""

_LEAST_CONTINUATION = 16
_CACHE_DTYPE = torch.float8_e4m3fn
_CACHE_LIMIT = 448.0


@dataclass(frozen=True)
class BucketPlan:
    """``sequences`` prompts of ``prompt_tokens`` each, continued greedily by ``new_tokens``.

    ``share`` is the bucket's share of training steps; ``raw`` leaves template and instruction out.
    """

    prompt_tokens: int
    sequences: int
    new_tokens: int
    share: float
    decode_batch: int
    raw: bool = False


@dataclass
class Bucket:
    """ids [N, T]; features [N, T, L*d]; hidden [N, T - hidden_from, d]; valid_end [N] (exclusive).

    Compact features are float8 (e4m3) bytes: scaled to unit size they lose about 3 % an element, and twice
    as many sequences fit.
    """

    plan: BucketPlan
    ids: Tensor
    features: Tensor
    hidden: Tensor
    hidden_from: int
    valid_end: Tensor

    def rows(self, index: Tensor) -> Bucket:
        """The sequences at ``index`` [M], their features widened to the dtype of ``hidden``."""
        features = self.features[index]
        if features.dtype == torch.uint8:
            features = features.view(_CACHE_DTYPE).to(self.hidden.dtype)
        return Bucket(
            self.plan,
            self.ids[index],
            features,
            self.hidden[index],
            self.hidden_from,
            self.valid_end[index],
        )


def valid_ends(prompts_length: int, continuation: Tensor, stop_ids: Sequence[int]) -> Tensor:
    """Position after the last token worth learning: through the first stop token. Returns [N]."""
    stop = torch.isin(continuation, torch.tensor(list(stop_ids), device=continuation.device))
    length = continuation.shape[1]
    first = torch.where(stop.any(1), stop.int().argmax(1) + 1, length)
    return prompts_length + first


def distinct_4gram_ratio(ids: Sequence[int]) -> float:
    """Share of 4-grams that are new where they stand; 1.0 for fewer than four tokens. Loops score low."""
    grams = [tuple(ids[i : i + 4]) for i in range(len(ids) - 3)]
    return len(set(grams)) / len(grams) if grams else 1.0


def write_documents(
    model: CausalLM, tokenizer: ChatTokenizer, count: int, new_tokens: int, batch: int, rng: random.Random
) -> list[Text]:
    """Documents that the target writes itself, sampled at temperature 0.8: dialogue, mathematics, stories."""
    texts: list[Text] = []
    requests = [document_request(rng) for _ in range(count)]
    prompts = [tokenizer.chat([{"role": "user", "content": message}]) for _, message in requests]
    by_length: dict[int, list[int]] = {}
    for index, prompt in enumerate(prompts):
        by_length.setdefault(len(prompt), []).append(index)
    device = model.device
    width = max(by_length)
    # Left-filling with the template's own newline keeps one length for the whole batch.
    filler = tokenizer.encode("\n")[:1]
    order = list(range(count))
    for start in range(0, count, batch):
        chosen = order[start : start + batch]
        rows = torch.tensor([filler * (width - len(prompts[i])) + prompts[i] for i in chosen], device=device)
        written = teacher.continuations(model, rows, new_tokens, temperature=0.8)
        ends = valid_ends(0, written, model.config.eos_ids).tolist()
        for i, row, end in zip(chosen, written.tolist(), ends, strict=True):
            if end > 200 and distinct_4gram_ratio(row[:end]) > 0.7:
                texts.append(Text(requests[i][0], tuple(row[: end - 1])))
    return texts


@dataclass(frozen=True)
class Sequences:
    """Prompts with their continuations, before any feature is computed: what a resumed run reads back.

    ids [N, T]; valid_end [N], the position after the last token worth learning.
    """

    plan: BucketPlan
    ids: Tensor
    valid_end: Tensor


def generate(
    model: CausalLM,
    builder: PromptBuilder,
    plan: BucketPlan,
    *,
    loops_kept: float,
    rng: random.Random,
    report: Callable[[str], None] = lambda line: None,
) -> Sequences:
    """Greedy continuations for one bucket.

    Answers under 16 tokens are dropped; of those that loop (distinct 4-gram ratio below 0.5) the share
    ``loops_kept`` stays.
    """
    device, length = model.device, plan.prompt_tokens
    kept: list[Tensor] = []
    ends: list[Tensor] = []
    for start in range(0, plan.sequences, plan.decode_batch):
        size = min(plan.decode_batch, plan.sequences - start)
        cut = builder.raw if plan.raw else builder.prompt
        prompts = torch.tensor([cut(length) for _ in range(size)], device=device)
        written = teacher.continuations(model, prompts, plan.new_tokens)
        end = valid_ends(length, written, model.config.eos_ids)
        keep = [
            stop - length >= _LEAST_CONTINUATION
            and (distinct_4gram_ratio(row[: stop - length]) >= LOOP_RATIO or rng.random() < loops_kept)
            for row, stop in zip(written.tolist(), end.tolist(), strict=True)
        ]
        mask = torch.tensor(keep, device=device)
        kept.append(torch.cat([prompts, written], dim=1)[mask])
        ends.append(end[mask])
    found = Sequences(plan, torch.cat(kept), torch.cat(ends))
    anchors = int((found.valid_end - length).sum())
    name = f"{length}{' raw' if plan.raw else ''}"
    report(f"bucket {name}: {len(found.ids)} of {plan.sequences} kept, {anchors} anchors")
    return found


def cache_features(
    model: CausalLM,
    sequences: Sequences,
    taps: Sequence[int],
    scales: Tensor,
    compact: bool,
    batch_tokens: int = 65_536,
) -> Bucket:
    """Runs the target once over every sequence and keeps what the draft reads of it."""
    plan, ids = sequences.plan, sequences.ids
    count, total = ids.shape
    hidden_from = max(0, plan.prompt_tokens - NATURAL_ANCHORS)
    size = model.config.hidden_size
    if ids.is_cuda:
        # The decode caches are gone; without this their segments would crowd out the features.
        torch.cuda.empty_cache()
    stored = torch.uint8 if compact else model.dtype
    features = torch.empty(count, total, len(taps) * size, dtype=stored, device=ids.device)
    hidden = torch.empty(count, total - hidden_from, size, dtype=model.dtype, device=ids.device)
    step = max(1, batch_tokens // total)
    for start in range(0, count, step):
        part = slice(start, start + step)
        wide, hidden[part] = teacher.features(model, ids[part], taps, hidden_from, scales)
        if compact:
            wide = wide.clamp(-_CACHE_LIMIT, _CACHE_LIMIT).to(_CACHE_DTYPE).view(torch.uint8)
        features[part] = wide
    return Bucket(plan, ids, features, hidden, hidden_from, sequences.valid_end)
