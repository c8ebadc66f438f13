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

    Cached features are float8 (e4m3) bytes: scaled to unit size they lose about 3 % an element, which
    ``fc`` averages away, and twice as many sequences fit.
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


def build_bucket(
    model: CausalLM,
    builder: PromptBuilder,
    plan: BucketPlan,
    taps: Sequence[int],
    scales: Tensor,
    *,
    loops_kept: float = 0.25,
    rng: random.Random,
    feature_batch_tokens: int = 65_536,
    report: Callable[[str], None] = lambda line: None,
) -> Bucket:
    """Generates one bucket. Of continuations that loop (ratio below 0.5), ``loops_kept`` stay."""
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
            stop - length >= 16
            and (distinct_4gram_ratio(row[: stop - length]) >= 0.5 or rng.random() < loops_kept)
            for row, stop in zip(written.tolist(), end.tolist(), strict=True)
        ]
        mask = torch.tensor(keep, device=device)
        kept.append(torch.cat([prompts, written], dim=1)[mask])
        ends.append(end[mask])
    ids, valid_end = torch.cat(kept), torch.cat(ends)
    if ids.is_cuda:
        # The decode caches are gone; without this their segments would crowd out the features.
        torch.cuda.empty_cache()
    hidden_from = max(0, length - NATURAL_ANCHORS)
    width = len(taps) * model.config.hidden_size
    total = ids.shape[1]
    features = torch.empty(len(ids), total, width, dtype=torch.uint8, device=device)
    hidden = torch.empty(
        len(ids), total - hidden_from, model.config.hidden_size, dtype=model.dtype, device=device
    )
    step = max(1, feature_batch_tokens // total)
    for start in range(0, len(ids), step):
        part = slice(start, start + step)
        wide, hidden[part] = teacher.features(model, ids[part], taps, hidden_from, scales)
        features[part] = wide.clamp(-_CACHE_LIMIT, _CACHE_LIMIT).to(_CACHE_DTYPE).view(torch.uint8)
    anchors = int((valid_end - length).sum())
    report(
        f"bucket {length}{' raw' if plan.raw else ''}: {len(ids)} of {plan.sequences} kept, {anchors} anchors"
    )
    return Bucket(plan, ids, features, hidden, hidden_from, valid_end)
