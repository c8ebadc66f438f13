"""The decode loop: lossless at every depth, exact bookkeeping, and blind to how good the draft is."""

from __future__ import annotations

import random
from functools import cache

import pytest
import torch

from engine.config import CapacityError, ConfigError, NumericsError
from engine.decoding import speculative
from engine.runtime.model_runner import Output
from tests.engine import tiny
from tests.engine.parity import prompts

DEPTHS = range(1, 8)
LOOKAHEAD = 112
PROMPTS = ("code_ledger", "code_main", "prose_harbour")


@cache
def reference(prompt, max_new_tokens=LOOKAHEAD):
    return tiny.tokens(tiny.ar(prompts()[prompt]["ids"], max_new_tokens=max_new_tokens))


def run_scripted(prompt, proposals, script, **options):
    """Steps of a run whose proposals are ``script(generated index of the anchor, count)``."""
    ids = prompts()[prompt]["ids"]
    proposer = tiny.ScriptedProposer(lambda length, count: script(length - len(ids), count))
    return list(speculative.generate(tiny.target_runner(), proposer, ids, proposals=proposals, **options))


def oracle(prompt, shift=0):
    expected = reference(prompt)
    return lambda index, count: expected[index + 1 + shift : index + 1 + shift + count]


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("depth", DEPTHS)
def test_output_equals_autoregression_at_every_depth(prompt, depth):  # B21
    steps = tiny.dspark(prompts()[prompt]["ids"], proposals=depth, max_new_tokens=96)
    assert tiny.tokens(steps) == reference(prompt)[:96]
    assert all(step.proposed == depth for step in steps[1:])


@pytest.mark.parametrize("prompt", PROMPTS)
def test_verified_rows_have_the_bits_of_one_row_steps(prompt):  # B12
    """Row for row, whatever the width: this is what makes greedy DSpark equal AR."""
    ids, following = prompts()[prompt]["ids"], reference(prompt)[:8]
    runner = tiny.target_runner()
    runner.prefill(ids)
    single = [runner.step(token) for token in following]
    for width in range(1, 9):
        runner.truncate(len(ids))
        rows = runner.verify(following[:width])
        for row in range(width):
            assert torch.equal(rows.logits[row], single[row].logits[0])
            assert torch.equal(rows.features[row], single[row].features[0])


@pytest.mark.parametrize("depth", DEPTHS)
def test_oracle_draft_is_accepted_whole_in_every_round(depth):  # B19
    steps = run_scripted("code_main", depth, oracle("code_main"), max_new_tokens=97)
    assert tiny.tokens(steps) == reference("code_main")[:97]
    assert all(step.accepted == step.proposed == depth for step in steps[1:])
    assert all(len(step.token_ids) == depth + 1 for step in steps[1:-1])


def test_oracle_shifted_by_one_is_lossless_but_useless():  # B19
    """A draft row read one position late leaves the text right; only tau shows it."""
    shifted = run_scripted("code_main", 4, oracle("code_main", shift=1), max_new_tokens=96)
    assert tiny.tokens(shifted) == reference("code_main")[:96]
    tau = 95 / len(shifted[1:])
    assert tau < 1.2


@pytest.mark.parametrize("depth", [1, 4, 7])
@pytest.mark.parametrize("max_new_tokens", range(1, 10))
def test_budget_is_never_exceeded_by_a_block_that_is_accepted_whole(depth, max_new_tokens):  # B09
    steps = run_scripted("code_walk", depth, oracle("code_walk"), max_new_tokens=max_new_tokens)
    assert tiny.tokens(steps) == reference("code_walk")[:max_new_tokens]
    assert [step.finish_reason for step in steps] == [None] * (len(steps) - 1) + ["length"]
    assert len(steps) == 1 + -(-(max_new_tokens - 1) // (depth + 1))


@pytest.mark.parametrize("depth", [1, 4])
def test_stop_token_at_any_place_of_a_block_ends_the_run_there(depth):  # B08
    expected = reference("code_matrix")
    for index in range(2 * depth + 3):
        stop = expected[index]
        end = expected.index(stop) + 1
        steps = run_scripted("code_matrix", depth, oracle("code_matrix"), max_new_tokens=64, stop_ids=[stop])
        assert tiny.tokens(steps) == expected[:end]
        assert steps[-1].finish_reason == "stop"
        assert all(stop not in step.token_ids for step in steps[:-1])


def test_stop_token_past_the_budget_does_not_count():
    expected = reference("code_main")
    stop = next(token for token in expected[3:8] if token not in expected[:3])
    steps = run_scripted("code_main", 7, oracle("code_main"), max_new_tokens=3, stop_ids=[stop])
    assert tiny.tokens(steps) == expected[:3]
    assert steps[-1].finish_reason == "length"


class CountingTarget:
    """A target that counts positions; after token t at position i always comes (31 t + i) mod 97."""

    VOCABULARY = 97

    def __init__(self):
        self.length = 0
        self.cache = self

    def require(self, positions):
        pass

    def prefill(self, ids):
        output = self.verify(ids)
        return Output(output.logits[-1], output.features)

    def verify(self, ids):
        following = torch.tensor([self.after(self.length + i, token) for i, token in enumerate(ids)])
        self.length += len(ids)
        logits = torch.nn.functional.one_hot(following, self.VOCABULARY).float()
        return Output(logits, torch.zeros(len(ids), 1))

    def truncate(self, length):
        assert 0 <= length <= self.length
        self.length = length

    @classmethod
    def after(cls, position, token):
        return (31 * token + position) % cls.VOCABULARY


def test_target_draft_and_output_agree_on_the_length_after_each_of_1000_rounds():  # B18
    rng, committed = random.Random(5), [3, 1, 4]
    target = CountingTarget()

    def propose(length, count):
        assert length == len(committed) - 1
        right, token = rng.randrange(count + 1), committed[-1]
        proposal = []
        for i in range(count):
            token = CountingTarget.after(length + i, token)
            proposal.append(token if i < right else (token + 1) % CountingTarget.VOCABULARY)
        return proposal

    proposer = tiny.ScriptedProposer(propose)
    rounds = 0
    for step in speculative.generate(target, proposer, [3, 1, 4], proposals=5, max_new_tokens=10_000):
        committed += step.token_ids
        assert proposer.length == target.length == len(committed) - 1
        rounds += step.proposed > 0
        if rounds == 1000:
            break
    assert rounds == 1000
    assert all(
        committed[i + 1] == CountingTarget.after(i, committed[i]) for i in range(2, len(committed) - 1)
    )


@pytest.mark.parametrize("prompt_tokens", [*range(1, 26), *range(231, 256)])
def test_first_token_does_not_depend_on_the_mode(prompt_tokens):  # B13
    ids = prompts()["code_ledger"]["ids"][:prompt_tokens]
    assert tiny.tokens(tiny.dspark(ids, max_new_tokens=1)) == tiny.tokens(tiny.ar(ids, max_new_tokens=1))


def test_draft_context_does_not_drift_along_a_generation():  # B18
    """A context that drifts keeps the text and loses the acceptance, so it is compared with a fresh one."""
    ids = prompts()["code_main"]["ids"]
    proposer = tiny.proposer()
    steps = list(
        speculative.generate(tiny.target_runner(), proposer, ids, proposals=7, max_new_tokens=LOOKAHEAD)
    )
    emitted = tiny.tokens(steps)
    fresh = tiny.proposer()
    fresh.observe(tiny.target_runner().prefill([*ids, *emitted[:-1]]).features)
    assert proposer.length == fresh.length
    blocks = (drafted.runner.block(emitted[-1]) for drafted in (proposer, fresh))
    torch.testing.assert_close(*blocks, rtol=0, atol=1e-4)


def test_depth_zero_is_autoregression_with_the_draft_idle():
    ids = prompts()["code_main"]["ids"]
    runner, proposer = tiny.target_runner(), tiny.proposer()
    proposer.propose = None
    steps = list(speculative.generate(runner, proposer, ids, proposals=0, max_new_tokens=24))
    assert tiny.tokens(steps) == reference("code_main")[:24]
    assert all((len(s.token_ids), s.proposed, s.accepted) == (1, 0, 0) for s in steps)
    assert proposer.length == runner.length == len(ids) + 23


def test_draft_that_idled_through_a_generation_wakes_with_the_same_context():
    ids = prompts()["code_main"]["ids"]
    idle, busy = tiny.proposer(), tiny.proposer()
    for proposer, proposals in ((idle, 0), (busy, 7)):
        runner = tiny.target_runner()
        for step in speculative.generate(runner, proposer, ids, proposals=proposals, max_new_tokens=25):
            anchor = step.token_ids[-1]
    assert idle.length == busy.length
    torch.testing.assert_close(idle.runner.block(anchor), busy.runner.block(anchor), rtol=0, atol=1e-4)


def test_threshold_of_one_proposes_nothing_and_loses_nothing():
    steps = tiny.dspark(prompts()["code_main"]["ids"], threshold=1.0, max_new_tokens=24)
    assert tiny.tokens(steps) == reference("code_main")[:24]
    assert all(step.proposed == 0 for step in steps)


def test_generation_that_cannot_fit_is_refused_before_the_first_token():
    ids = prompts()["code_main"]["ids"]
    steps = speculative.generate(
        tiny.target_runner(len(ids)), tiny.proposer(), ids, proposals=7, max_new_tokens=64
    )
    with pytest.raises(CapacityError, match="shorten the prompt"):
        next(steps)


def test_cache_of_exactly_the_needed_positions_holds_a_generation_accepted_whole():
    ids = prompts()["code_main"]["ids"]
    capacity = speculative.positions_needed(len(ids), 40, 7)
    proposer = tiny.ScriptedProposer(lambda length, count: oracle("code_main")(length - len(ids), count))
    runner = tiny.target_runner(capacity)
    runner.cache.capacity = capacity
    steps = list(speculative.generate(runner, proposer, ids, proposals=7, max_new_tokens=40))
    assert tiny.tokens(steps) == reference("code_main")[:40]


def test_logits_that_are_not_numbers_end_the_run_with_a_sentence():
    class Broken(CountingTarget):
        def verify(self, ids):
            output = super().verify(ids)
            if self.length > 3:
                output.logits[-1, 5] = float("nan")
            return output

    for temperature in (0.0, 1.0):
        steps = speculative.generate(
            Broken(),
            tiny.ScriptedProposer(lambda length, count: [0] * count),
            [3, 1, 4],
            proposals=2,
            max_new_tokens=9,
            temperature=temperature,
        )
        next(steps)
        with pytest.raises(NumericsError, match="not finite"):
            next(steps)


def test_more_proposals_than_the_trained_block_are_refused():
    with pytest.raises(ConfigError, match=r"8 proposals were asked for.*blocks of 7"):
        tiny.dspark(prompts()["code_main"]["ids"], proposals=8, max_new_tokens=9)


def test_target_without_taps_is_refused():
    runner = tiny.target_runner()
    runner.taps = ()
    with pytest.raises(ConfigError, match="without taps"):
        next(speculative.generate(runner, tiny.proposer(), [1, 2], proposals=7, max_new_tokens=4))
