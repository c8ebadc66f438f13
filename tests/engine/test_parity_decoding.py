"""Whole greedy runs against the reference: outputs, and what every round proposed and accepted."""

from __future__ import annotations

from functools import cache

import pytest

from tests.engine import tiny
from tests.engine.parity import prompts, read_json

GREEDY = read_json("greedy")


@cache
def run_recorded(prompt, threshold):
    return tiny.dspark(prompts()[prompt]["ids"], threshold=threshold, max_new_tokens=96, stop_ids=[98])


def check_lists(steps, recorded, rounds):
    """``rounds``: the recorded ones that a loop without the reference's extra round runs."""
    assert [step.proposed for step in steps[1:]] == recorded["proposed"][:rounds]
    assert [step.accepted for step in steps[1:]] == recorded["drafted"][:rounds]


@pytest.mark.parametrize("prompt", prompts().values(), ids=prompts())
def test_autoregressive_output_equals_the_recorded_one(prompt):
    assert tiny.tokens(tiny.ar(prompt["ids"], max_new_tokens=96, stop_ids=[98])) == prompt["ar_ids"]


@pytest.mark.parametrize(
    "run", GREEDY["runs"], ids=lambda run: f"{run['prompt']}-{run['confidence_threshold']}"
)
def test_speculative_run_equals_the_recorded_one(run):
    steps = run_recorded(run["prompt"], run["confidence_threshold"])
    rounds = run["rounds"] - run["extra_round"]
    assert tiny.tokens(steps) == run["output_ids"]
    check_lists(steps, run, rounds)
    assert [step.token_ids[-1] for step in steps[:-1]] == run["anchors"][:rounds]


@pytest.mark.parametrize(
    "case",
    read_json("stop_tokens")["cases"],
    ids=lambda case: f"{case['prompt']}-{case['stop_token_ids']}-{case['confidence_threshold']}",
)
def test_stop_token_ends_the_run_wherever_it_stands(case):
    steps = tiny.dspark(
        prompts()[case["prompt"]]["ids"],
        threshold=case["confidence_threshold"],
        max_new_tokens=96,
        stop_ids=case["stop_token_ids"],
    )
    assert tiny.tokens(steps) == case["output_ids"]
    assert steps[-1].finish_reason == "stop"
    check_lists(steps, case, case["rounds"])
    committed = sum(len(step.token_ids) for step in steps[1:])
    assert committed == sum(case["acc_len"])


@pytest.mark.parametrize(
    "case",
    read_json("max_new_tokens")["cases"],
    ids=lambda case: f"{case['prompt']}-{case['max_new_tokens']}-{case['confidence_threshold']}",
)
def test_run_stops_at_the_budget_without_the_references_extra_round(case):
    steps = tiny.dspark(
        prompts()[case["prompt"]]["ids"],
        threshold=case["confidence_threshold"],
        max_new_tokens=case["max_new_tokens"],
        stop_ids=[98],
    )
    assert tiny.tokens(steps) == case["output_ids"]
    assert steps[-1].finish_reason == "length"
    check_lists(steps, case, case["rounds"] - case["extra_round"])


@pytest.mark.parametrize("pooled", GREEDY["pooled"], ids=lambda pooled: str(pooled["confidence_threshold"]))
def test_pooled_rates_equal_the_recorded_ones(pooled):
    """Rebuilt from the loop's own lists, with the entries the reference adds by its extra round."""
    accepted, proposed = [], []
    for run in GREEDY["runs"]:
        if run["confidence_threshold"] != pooled["confidence_threshold"]:
            continue
        steps = run_recorded(run["prompt"], run["confidence_threshold"])[1:]
        extra = run["rounds"] - len(steps)
        accepted += [step.accepted for step in steps] + run["drafted"][len(steps) :]
        proposed += [step.proposed for step in steps] + run["proposed"][len(steps) :]
        assert extra == run["extra_round"]
    rounds = len(accepted)
    assert rounds == pooled["rounds"]
    assert (sum(accepted) + rounds) / rounds == pytest.approx(pooled["tau"], rel=1e-8)
    assert sum(proposed) / rounds == pytest.approx(pooled["proposed_per_round"], rel=1e-8)
    verify_rate = (sum(accepted) + rounds) / (sum(proposed) + rounds)
    assert verify_rate == pytest.approx(pooled["verify_rate"], rel=1e-8)
    for k, rate in enumerate(pooled["accept_rate_at"]):
        survived = sum(a > k for a in accepted) / sum(p > k for p in proposed)
        assert survived == pytest.approx(rate, rel=1e-8)
