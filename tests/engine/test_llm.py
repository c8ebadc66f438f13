"""The facade refuses what it cannot do before it starts, and says what it did."""

from __future__ import annotations

import pytest
import torch

from engine.config import ConfigError, NumericsError, PromptError, WeightsError
from engine.llm import LLM
from engine.models import digest
from tests.engine import checkpoints
from tests.engine.parity import DRAFT, TARGET, prompts


@pytest.fixture(scope="module")
def llm():
    return LLM.load(TARGET, DRAFT, device="cpu", max_tokens=256)


@pytest.fixture
def prompt():
    return prompts()["code_main"]["ids"][:64]


def tokens(steps) -> list[int]:
    return [token for step in steps for token in step.token_ids]


def test_both_modes_give_the_same_tokens_from_the_first_on(llm, prompt):
    ar = tokens(llm.generate(prompt, mode="ar", max_new_tokens=64, stop_ids=()))
    assert len(ar) == 64
    assert tokens(llm.generate(prompt, mode="dspark", max_new_tokens=64, stop_ids=())) == ar


def test_one_step_per_burst_the_first_from_prefill(llm, prompt):
    ar = list(llm.generate(prompt, mode="ar", max_new_tokens=5, stop_ids=()))
    assert [(len(step.token_ids), step.proposed, step.accepted) for step in ar] == [(1, 0, 0)] * 5
    assert [step.finish_reason for step in ar] == [None] * 4 + ["length"]
    first, *rounds = llm.generate(prompt, mode="dspark", max_new_tokens=20, stop_ids=())
    assert (len(first.token_ids), first.proposed, first.accepted) == (1, 0, 0)
    assert sum(len(step.token_ids) for step in rounds) == 19
    assert rounds[-1].finish_reason == "length"


@pytest.mark.parametrize("mode", ["ar", "dspark"])
def test_a_stop_token_is_kept_and_ends_the_generation(llm, prompt, mode):
    free = tokens(llm.generate(prompt, mode="ar", max_new_tokens=40, stop_ids=()))
    stop = free[17]
    *_, last = steps = list(llm.generate(prompt, mode=mode, max_new_tokens=40, stop_ids=[stop]))
    assert tokens(steps) == free[: free.index(stop) + 1]
    assert last.finish_reason == "stop"


def test_the_models_own_stop_ids_hold_unless_others_are_given(llm):
    assert llm.stop_ids == (98,)


@pytest.mark.parametrize("mode", ["ar", "dspark"])
def test_one_new_token_comes_from_prefill_alone(llm, prompt, mode):
    (step,) = llm.generate(prompt, mode=mode, max_new_tokens=1, stop_ids=())
    assert (len(step.token_ids), step.finish_reason) == (1, "length")


@pytest.mark.parametrize("mode", ["ar", "dspark"])
def test_a_generation_may_fill_the_context_to_its_last_token(llm, prompt, mode):
    room = llm.context_tokens - len(prompt)
    assert len(tokens(llm.generate(prompt, mode=mode, max_new_tokens=room, stop_ids=()))) == room


@pytest.mark.parametrize("mode", ["ar", "dspark"])
def test_the_seed_decides_sampled_tokens(llm, prompt, mode):
    def sampled(seed: int) -> list[int]:
        return tokens(
            llm.generate(prompt, mode=mode, max_new_tokens=30, temperature=1.0, stop_ids=(), seed=seed)
        )

    assert sampled(1) == sampled(1)
    assert sampled(1) != sampled(2)


def test_a_prompt_longer_than_the_context_is_refused_with_all_three_numbers(llm):
    with pytest.raises(PromptError, match=r"has 250 tokens and 10 new ones .* 260 together, .* holds 256"):
        llm.generate([1] * 250, mode="ar", max_new_tokens=10)


def test_an_empty_prompt_is_refused(llm):
    with pytest.raises(PromptError, match="prompt is empty"):
        llm.generate([], mode="ar", max_new_tokens=10)


@pytest.mark.parametrize("stray", [-1, 100])
def test_ids_outside_the_vocabulary_are_refused(llm, stray):
    with pytest.raises(PromptError, match=rf"token id {stray}, but this model's ids are 0 to 99"):
        llm.generate([1, stray, 2], mode="ar", max_new_tokens=10)


def test_no_new_tokens_is_not_a_generation(llm):
    with pytest.raises(PromptError, match="max_new_tokens is 0"):
        llm.generate([1], mode="ar", max_new_tokens=0)


@pytest.mark.parametrize("temperature", [-0.5, float("nan"), float("inf")])
def test_a_temperature_that_is_none_is_refused(llm, temperature):
    with pytest.raises(ConfigError, match=rf"temperature is {temperature}; it should be a finite number"):
        llm.generate([1], mode="ar", max_new_tokens=4, temperature=temperature)


def test_dspark_without_a_draft_is_refused():
    llm = LLM.load(TARGET, device="cpu", max_tokens=64)
    assert llm.describe().depth_policy == "no draft"
    with pytest.raises(ConfigError, match="needs a draft and none was loaded"):
        llm.generate([1], mode="dspark", max_new_tokens=4)


def test_a_context_beyond_the_models_is_refused():
    with pytest.raises(ConfigError, match=r"max_tokens is 5000; .* supports 1 to 1024"):
        LLM.load(TARGET, max_tokens=5000, device="cpu")


def test_an_unknown_device_is_refused():
    with pytest.raises(ConfigError, match="Device 'abacus' is not supported"):
        LLM.load(TARGET, device="abacus")


def test_weights_with_nan_do_not_load(tmp_path):
    model = checkpoints.random_model("llama")
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[3, 4] = float("nan")
    with pytest.raises(WeightsError, match=r"up_proj\.weight holds NaN or infinity"):
        LLM.load(checkpoints.save(model, tmp_path), device="cpu")


@pytest.mark.parametrize("mode", ["ar", "dspark"])
def test_logits_that_overflow_stop_the_generation(mode, prompt):
    llm = LLM.load(TARGET, DRAFT, device="cpu", max_tokens=128)
    llm.model.norm.weight.data.fill_(float("inf"))
    with pytest.raises(NumericsError, match="not finite"):
        list(llm.generate(prompt, mode=mode, max_new_tokens=8, stop_ids=()))


def test_a_faulty_generation_leaves_no_trace_in_the_next(llm, prompt):
    before = tokens(llm.generate(prompt, mode="dspark", max_new_tokens=20, stop_ids=()))
    abandoned = llm.generate(prompt[::-1], mode="dspark", max_new_tokens=60, stop_ids=())
    next(abandoned), next(abandoned)
    llm._runner.cache.values[:, :, : len(prompt)] = float("nan")
    assert tokens(llm.generate(prompt, mode="dspark", max_new_tokens=20, stop_ids=())) == before


def test_score_gives_the_law_of_each_of_the_last_ids(llm, prompt):
    scores = llm.score(prompt, 10)
    assert scores.shape == (10, llm.vocab_size)
    torch.testing.assert_close(scores.exp().sum(-1), torch.ones(10))
    greedy = tokens(llm.generate(prompt, mode="ar", max_new_tokens=6, stop_ids=()))
    assert llm.score([*prompt, *greedy], 6).argmax(-1).tolist() == greedy


@pytest.mark.parametrize("positions", [0, 64, 65])
def test_positions_that_have_nothing_before_them_cannot_be_scored(llm, prompt, positions):
    with pytest.raises(PromptError, match=rf"{positions} positions of 64 ids .* ask for 1 to 63"):
        llm.score(prompt, positions)


def test_the_description_names_what_was_loaded(llm):
    description = llm.describe()
    assert (description.device, description.dtype) == ("cpu", "float32")
    assert description.block_size == 7
    assert description.overrides == {}
    assert description.target_sha256 == digest.model_sha256(TARGET)
    assert description.draft_sha256 == digest.model_sha256(DRAFT)
    assert description.weights_bytes == 1_194_496 * 4
    assert llm.peak_memory_bytes() > description.weights_bytes


def test_an_override_is_reported(monkeypatch):
    monkeypatch.setenv("DSPARK_PROPOSALS", "3")
    description = LLM.load(TARGET, DRAFT, device="cpu", max_tokens=64).describe()
    assert description.proposals == 3
    assert description.overrides == {"DSPARK_PROPOSALS": "3"}
