"""The acceptance rule against 37 recorded cases of the reference."""

from __future__ import annotations

import pytest
import torch

from engine.decoding.sampling import probabilities
from engine.decoding.verify import (
    Q_FLOOR,
    RESIDUAL_FLOOR,
    acceptance_probability,
    judge_greedy,
    judge_sampled,
    next_law,
)
from tests.engine.parity import read_json

VERIFY = read_json("verify")


def laws(case):
    if case["source"] == "tables":
        p = torch.tensor(case["p"])
        return p, torch.tensor(case["q"]).reshape(-1, p.shape[-1])
    target = torch.tensor(case["target_logits"])
    draft = torch.tensor(case["draft_logits"]).reshape(-1, target.shape[-1])
    return probabilities(target, case["temperature"]), probabilities(draft, case["temperature"])


def test_floors_are_those_of_the_reference():
    assert (VERIFY["q_floor"], VERIFY["residual_floor"]) == (Q_FLOOR, RESIDUAL_FLOOR)


@pytest.mark.parametrize("case", VERIFY["cases"], ids=lambda case: case["id"])
def test_judgement_equals_the_recorded_one(case):
    p, q = laws(case)
    draft = torch.tensor(case["draft_tokens"], dtype=torch.int64)
    expected = case["expected"]
    if "p" in expected:
        torch.testing.assert_close(p, torch.tensor(expected["p"]), rtol=0, atol=1e-6)
        torch.testing.assert_close(q, torch.tensor(expected["q"]).reshape(q.shape), rtol=0, atol=1e-6)
    probability = acceptance_probability(p, q, draft)
    torch.testing.assert_close(probability, torch.tensor(expected["accept_prob"]), rtol=0, atol=1e-6)

    judgement = judge_sampled(draft, p, q, torch.tensor(case["uniforms"]), case["stop_token_ids"])
    assert judgement.accepted == expected["accepted"]
    assert judgement.proposed == expected["effective_length"]
    assert judgement.stopped == expected["stopped"]
    if expected["next_kind"] is None:
        assert judgement.next_kind is None
        with pytest.raises(ValueError, match="no token follows"):
            next_law(judgement, p, q)
        return
    # Falling back to p is how the residual law is computed, not another kind of law.
    assert judgement.next_kind == expected["next_kind"].replace("fallback_to_p", "residual")
    torch.testing.assert_close(
        next_law(judgement, p, q), torch.tensor(expected["next_probs"]), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize(
    "case", [c for c in VERIFY["cases"] if c.get("temperature") == 0.0], ids=lambda case: case["id"]
)
def test_greedy_rule_is_the_sampled_rule_at_temperature_zero(case):
    tops = torch.tensor(case["target_logits"]).argmax(-1).tolist()
    judgement = judge_greedy(case["draft_tokens"], tops, case["stop_token_ids"])
    expected = case["expected"]
    assert (judgement.accepted, judgement.proposed, judgement.stopped) == (
        expected["accepted"],
        expected["effective_length"],
        expected["stopped"],
    )
