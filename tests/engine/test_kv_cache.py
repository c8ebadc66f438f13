from __future__ import annotations

import pytest
import torch

from engine.config import CapacityError
from engine.runtime.kv_cache import KVCache
from engine.runtime.model_runner import ModelRunner
from tests.engine import checkpoints


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("llama")
    return checkpoints.load(checkpoints.save(checkpoints.random_model("llama"), directory))


def small_cache(capacity: int = 4) -> KVCache:
    return KVCache(
        num_layers=2,
        num_kv_heads=1,
        head_dim=2,
        capacity=capacity,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )


def test_after_truncation_the_rejected_tokens_leave_no_trace(model):
    runner = ModelRunner.build(model, 64)
    runner.prefill(checkpoints.random_ids(10))
    straight = [runner.step(token).logits for token in (3, 4, 5)]
    runner.truncate(10)
    runner.verify(checkpoints.random_ids(8, seed=9))
    runner.truncate(10)
    again = [runner.step(token).logits for token in (3, 4, 5)]
    assert all(torch.equal(a, b) for a, b in zip(straight, again, strict=True))


def test_a_runner_that_was_reset_gives_the_bits_of_a_new_one(model):
    prompt = checkpoints.random_ids(20)
    fresh = ModelRunner.build(model, 64).prefill(prompt).logits
    used = ModelRunner.build(model, 64)
    used.prefill(checkpoints.random_ids(50, seed=3))
    used.reset()
    assert torch.equal(used.prefill(prompt).logits, fresh)


def test_reset_wipes_what_was_written_past_the_valid_length():
    cache = small_cache()
    cache.append(0, torch.full((3, 1, 2), float("nan")), torch.full((3, 1, 2), float("nan")))
    cache.reset()
    assert cache.keys.eq(0).all()
    assert cache.values.eq(0).all()


def test_more_positions_than_capacity_are_refused_with_both_numbers():
    cache = small_cache(capacity=4)
    with pytest.raises(CapacityError, match="built for 4 positions and 5 are needed"):
        cache.append(0, torch.zeros(5, 1, 2), torch.zeros(5, 1, 2))


def test_a_cache_cannot_be_cut_to_more_than_it_holds():
    cache = small_cache()
    cache.advance(2)
    with pytest.raises(CapacityError, match="holds 2 positions and cannot be cut to 3"):
        cache.truncate(3)


def test_prefill_refuses_a_cache_that_is_not_empty(model):
    runner = ModelRunner.build(model, 64)
    runner.prefill([1, 2, 3])
    with pytest.raises(CapacityError, match="empty KV cache, but it holds 3"):
        runner.prefill([1])
