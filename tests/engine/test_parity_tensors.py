"""Tensors inside the first three rounds against the reference, with its suggested tolerances."""

from __future__ import annotations

import pytest
import torch

from engine.decoding.proposal import confidence, decode_block
from tests.engine import tiny
from tests.engine.parity import prompts, read_tensors

RECORDED = read_tensors("intermediates")
NAMES = ("code_main", "code_walk")
ROUNDS = range(3)


def close(actual, expected, tolerance):
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


def of(prompt, key):
    return RECORDED[f"draft.{prompt}.{key}"]


@pytest.mark.parametrize("prompt", NAMES)
def test_prefill_logits_and_features(prompt):
    output = tiny.target_runner().prefill(prompts()[prompt]["ids"])
    close(output.logits, RECORDED[f"{prompt}.prefill_logits"], 5e-5)
    close(output.features[:8], RECORDED[f"{prompt}.features"], 5e-5)
    close(tiny.draft().context(output.features[:8]), of(prompt, "context"), 5e-5)


@pytest.mark.parametrize("prompt", NAMES)
def test_features_of_prefill_and_of_every_verification(prompt):
    runner = tiny.target_runner()
    rows = [runner.prefill(prompts()[prompt]["ids"]).features]
    for round_ in range(2):
        anchor, accepted = int(of(prompt, "anchor")[round_]), int(of(prompt, "accepted")[round_])
        start = runner.length
        features = runner.verify([anchor, *of(prompt, "proposals")[round_].tolist()]).features
        runner.truncate(start + accepted + 1)
        rows.append(features[: accepted + 1])
    close(torch.cat(rows), read_tensors("features_all")[f"draft.{prompt}.features_all"], 1e-4)


@pytest.mark.parametrize("prompt", NAMES)
def test_draft_blocks_from_recorded_features_without_the_target(prompt):
    features = read_tensors("features_all")[f"draft.{prompt}.features_all"]
    starts = of(prompt, "start").tolist()
    runner = tiny.proposer().runner
    for round_ in ROUNDS:
        runner.observe(features[runner.length : starts[round_]])
        anchor = int(of(prompt, "anchor")[round_])
        hidden = runner.block(anchor)
        close(hidden, of(prompt, "H")[round_], 5e-5)
        close(tiny.draft().base_logits(hidden), of(prompt, "U")[round_], 5e-5)
        block = decode_block(tiny.draft(), hidden, anchor, 0.0, None)
        close(block.logits, of(prompt, "logits")[round_], 5e-5)
        assert block.tokens.tolist() == of(prompt, "proposals")[round_].tolist()
        close(confidence(tiny.draft(), hidden, block), of(prompt, "z")[round_], 2e-5)


@pytest.mark.parametrize("prompt", NAMES)
def test_context_injected_at_once_row_by_row_or_late_gives_the_same_block(prompt):
    features = read_tensors("features_all")[f"draft.{prompt}.features_all"]
    start, anchor = int(of(prompt, "start")[2]), int(of(prompt, "anchor")[2])
    late, eager = tiny.proposer().runner, tiny.proposer().runner
    for row in features.split(1):
        late.observe(row)
        eager.observe(row)
        eager.block(anchor)
    assert late.length == eager.length == start
    close(late.block(anchor), of(prompt, "H")[2], 5e-5)
    close(eager.block(anchor), of(prompt, "H")[2], 5e-5)
