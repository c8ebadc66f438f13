"""Logits of this engine equal those of ``transformers`` on tiny random models."""

from __future__ import annotations

import pytest
import torch
from transformers import Qwen3ForCausalLM

from engine.runtime.model_runner import ModelRunner
from tests.engine import checkpoints

TOLERANCE = 1e-4


def reference_logits(model, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0]


@pytest.mark.parametrize("sharded", [False, True], ids=["one-file", "sharded"])
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_prefill_and_decode_logits_equal_transformers(tmp_path, architecture, tied, sharded):
    theirs = checkpoints.random_model(architecture, tied=tied)
    directory = checkpoints.save(theirs, tmp_path, sharded=sharded)
    assert (directory / "model.safetensors.index.json").exists() == sharded
    ids = checkpoints.random_ids(40)
    expected = reference_logits(theirs, ids)

    runner = ModelRunner.build(checkpoints.load(directory), 64)
    logits = [runner.prefill(ids[:30]).logits.unsqueeze(0), runner.verify(ids[30:35]).logits]
    logits += [runner.step(token).logits for token in ids[35:]]

    torch.testing.assert_close(torch.cat(logits), expected[29:], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_a_prompt_longer_than_one_prefill_chunk_equals_transformers(tmp_path, architecture):
    theirs = checkpoints.random_model(architecture)
    ids = checkpoints.random_ids(700)

    runner = ModelRunner.build(checkpoints.load(checkpoints.save(theirs, tmp_path)), 704)

    expected = reference_logits(theirs, ids)[-1]
    torch.testing.assert_close(runner.prefill(ids).logits, expected, atol=TOLERANCE, rtol=0)


def test_score_gives_the_log_probabilities_of_transformers(tmp_path):
    theirs = checkpoints.random_model("qwen3")
    ids = checkpoints.random_ids(90)

    runner = ModelRunner.build(checkpoints.load(checkpoints.save(theirs, tmp_path)), 128)

    expected = reference_logits(theirs, ids).log_softmax(-1)[-20:]
    torch.testing.assert_close(runner.score(ids, 20), expected, atol=TOLERANCE, rtol=0)


def test_taps_are_raw_layer_outputs_in_the_order_asked(tmp_path):
    theirs = checkpoints.random_model("llama")
    ids = checkpoints.random_ids(12)
    with torch.no_grad():
        states = theirs(torch.tensor([ids]), output_hidden_states=True).hidden_states

    runner = ModelRunner.build(checkpoints.load(checkpoints.save(theirs, tmp_path)), 16, taps=(1, -1, 0))
    features = runner.prefill(ids).features

    # Hugging Face counts the embedding as state 0, so a layer's output is one further on.
    expected = torch.cat([states[2][0], states[0][0], states[1][0]], dim=-1)
    torch.testing.assert_close(features, expected, atol=TOLERANCE, rtol=0)


def test_weights_stored_in_bfloat16_are_widened_on_the_cpu(tmp_path):
    directory = checkpoints.save(checkpoints.random_model("qwen3").bfloat16(), tmp_path)
    theirs = Qwen3ForCausalLM.from_pretrained(directory, dtype=torch.float32)
    ids = checkpoints.random_ids(20)

    ours = checkpoints.load(directory)

    assert ours.dtype == torch.float32
    expected = reference_logits(theirs, ids)[-1]
    runner = ModelRunner.build(ours, 32)
    torch.testing.assert_close(runner.prefill(ids).logits, expected, atol=TOLERANCE, rtol=0)
