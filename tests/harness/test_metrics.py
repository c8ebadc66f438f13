"""Rates, acceptance, equality and accuracy on small inputs whose right value is known."""

from __future__ import annotations

import numpy as np
import pytest

from harness.metrics import accuracy, losslessness, throughput
from harness.metrics.acceptance import broken_identity, inconsistency, pooled
from harness.schema import Burst
from tests.fakes.results import TEXT, sample


def bursts(*pairs: tuple[float, int]) -> tuple[Burst, ...]:
    return tuple(Burst(elapsed_s=t, tokens=n) for t, n in pairs)


def rate(*pairs: tuple[float, int]) -> float | None:
    window = throughput.decode_window(bursts(*pairs))
    return window.tok_s if window else None


def test_tokens_are_counted_not_messages() -> None:  # B26
    assert rate((0.0, 1), (0.25, 5), (0.5, 5), (0.75, 5), (1.0, 5)) == pytest.approx(20.0)


def test_tokens_of_the_first_burst_are_not_decoded_tokens() -> None:  # B27
    assert rate((1.0, 6), (1.5, 4), (2.0, 4)) == pytest.approx(8.0)


@pytest.mark.parametrize("pairs", [(), ((1.0, 4),), ((1.0, 4), (1.0, 4))])
def test_a_decode_without_duration_has_no_rate(pairs: tuple[tuple[float, int], ...]) -> None:
    assert rate(*pairs) is None


def test_a_rate_over_samples_is_missing_if_one_of_them_is() -> None:
    good = throughput.decode_window(bursts((0.0, 1), (1.0, 5)))
    assert throughput.pooled([good, None]) is None
    assert throughput.pooled([]) is None


def test_tau_counts_the_bonus_token() -> None:  # B01
    rounds = [2] * 7 + [1] * 3
    counts = pooled([sample(rounds=rounds, token_ids=TEXT[:1] + TEXT[:17])])
    assert counts is not None
    assert counts.tau == pytest.approx(1.7)
    assert counts.accepted_per_round == pytest.approx(0.7)


def test_tau_is_pooled_over_rounds_not_averaged_over_requests() -> None:  # B03
    counts = pooled([sample(rounds=[5] * 20), sample(rounds=[1] * 10)])
    assert counts is not None
    assert counts.tau == pytest.approx(110 / 30)


def test_proposed_is_what_was_verified_not_the_configured_depth() -> None:  # B05
    counts = pooled([sample(rounds=[3, 2, 1], proposed=[4, 2, 1], accepted=[2, 1, 0])])
    assert counts is not None
    assert counts.proposed == 7


def test_rounds_without_a_proposal_are_counted() -> None:  # B06
    counts = pooled([sample(rounds=[2] + [1] * 19, proposed=[1] + [0] * 19)])
    assert counts is not None
    assert counts.idle_rounds == 19
    assert counts.tau == pytest.approx(1.05)


def test_a_round_that_is_only_reported_leaves_the_observed_tau_alone() -> None:
    lied = pooled([sample(rounds=[3, 2], proposed=[4, 4, 4], accepted=[2, 1, 1]), sample(rounds=[1])])
    assert lied is not None
    assert (lied.rounds, lied.committed, lied.histogram) == (3, 6, (1, 1, 1))
    assert lied.proposed is lied.idle_rounds is lied.survival is None


def test_survival_counts_only_rounds_that_proposed_so_deep() -> None:
    counts = pooled([sample(rounds=[3, 1], proposed=[2, 1])])
    assert counts is not None
    assert counts.histogram == (1, 0, 1)
    assert counts.survival == (0.5, 1.0)


def test_counters_that_hold_together_pass() -> None:  # B04
    good = {"rounds": 6, "accepted": 4, "proposed": 12, "histogram": (3, 2, 1), "depth": 4}
    assert broken_identity(committed=10, **good) is None
    assert "9 tokens" in str(broken_identity(committed=9, **good))


@pytest.mark.parametrize(
    "claims",
    [
        {"accepted": [0] * 8},  # B07: counters zero although drafting ran
        {"accepted": [2, 1] * 3},
        {"proposed": [9] * 8},
        {"proposed": [0] * 8},
    ],
)
def test_claims_that_contradict_what_arrived_are_found(claims: dict[str, list[int]]) -> None:
    assert inconsistency(sample(), depth=4) is None
    assert inconsistency(sample(**claims), depth=4) is not None


def test_only_the_last_round_may_accept_more_than_it_delivers() -> None:
    assert inconsistency(sample(accepted=[2, 1, 2, 1, 2, 1, 2, 4]), depth=4) is None
    assert inconsistency(sample(accepted=[2, 1, 4, 1, 2, 1, 2, 1]), depth=4) is not None


def pair(ar: tuple[int, ...], dspark: tuple[int, ...]) -> losslessness.Losslessness | None:
    return losslessness.within_processes(
        [sample(mode="ar", token_ids=ar, rounds=[1] * 20), sample(token_ids=dspark)]
    )


def test_equal_output_in_one_process_is_one_process() -> None:
    found = pair(TEXT, TEXT)
    assert found == losslessness.Losslessness(compared=1, processes=1, fault=None)


@pytest.mark.parametrize(
    ("ar", "dspark", "fault"),
    [
        ((), (), "no tokens"),  # A08: two empty streams are never equal
        (TEXT[:5], TEXT[:5], "without a stop token"),
        (TEXT, TEXT[:20], "20 of 21"),
        (TEXT, (*TEXT[:9], 5, *TEXT[10:]), "token 9 is 5 with DSpark and 109 with AR"),
    ],
)
def test_output_that_is_not_whole_and_equal_is_a_fault(
    ar: tuple[int, ...], dspark: tuple[int, ...], fault: str
) -> None:
    found = pair(ar, dspark)
    assert found is not None
    assert fault in str(found.fault)
    assert found.processes == 0


def test_arms_that_never_meet_diverge_nowhere() -> None:
    assert losslessness.between_arms([sample(mode="ar", arm="candidate")]) == ()


def test_the_first_difference_between_the_arms_is_named_once_for_each_prompt() -> None:
    other = (*TEXT[:4], 0, *TEXT[5:])
    samples = [
        sample(mode="ar", arm="baseline"),
        sample(mode="ar", launch=1, token_ids=other),
        sample(mode="ar", launch=2, token_ids=other),
    ]
    (found,) = losslessness.between_arms(samples)
    assert (found.position, found.baseline_token, found.candidate_token) == (4, 104, 0)


def logs(*rows: list[float]) -> accuracy.Matrix:
    return np.log(np.array(rows, dtype=np.float32))


def test_equal_distributions_agree_and_do_not_diverge() -> None:
    p = logs([0.7, 0.2, 0.1])
    seen = accuracy.compare(p, p, np.array([0]))
    assert seen.top1_agreement == 1.0
    assert seen.kl_nats == pytest.approx(0.0, abs=1e-9)
    assert seen.baseline_nll == pytest.approx(-np.log(0.7), rel=1e-6)


def test_divergence_is_from_the_baseline_to_the_candidate() -> None:
    seen = accuracy.compare(logs([0.5, 0.5]), logs([0.25, 0.75]), np.array([1]))
    assert seen.kl_nats == pytest.approx(0.5 * np.log(2) + 0.5 * np.log(2 / 3), rel=1e-5)
    assert seen.top1_agreement == 0.0


def test_what_is_no_distribution_is_named() -> None:
    assert accuracy.fault_of(logs([0.5, 0.5])) is None
    assert "row 0" in str(accuracy.fault_of(logs([0.5, 0.9])))
    assert "NaN" in str(accuracy.fault_of(np.array([[np.nan, 0.0]], dtype=np.float32)))
    with np.errstate(divide="ignore"):
        assert accuracy.fault_of(logs([1.0, 0.0])) is None
