"""When a run has seen enough."""

from __future__ import annotations

import msgspec
import pytest

from harness import compare, gates, sequential
from harness.schema import Comparison, GateResult, HarnessResult, Interval, Policy
from tests.fakes.results import GUARD, PLAN, SCORED, result

POLICY = Policy()
LONG = msgspec.structs.replace(
    PLAN,
    cases=(
        msgspec.structs.replace(SCORED, quads=4, more=(6, 8, 12, 16)),
        msgspec.structs.replace(GUARD, quads=2, more=(4,)),
    ),
)


def headline(ratio: float, half: float, pairs: int = 8, p: float = 0.01) -> Comparison:
    return Comparison(
        name="main:dspark", unit="tok/s", baseline=50.0, candidate=50.0 * ratio, ratio=ratio,
        interval=None, bounds=Interval(low=ratio - half, high=ratio + half), pairs=pairs,
        quads=pairs // 2, sign_flip_p=p,
    )  # fmt: skip


def due(run: HarnessResult) -> tuple[str, ...]:
    judged = gates.judge(run, POLICY)
    return sequential.due(run.plan, compare.judged(run, POLICY), judged, POLICY)


@pytest.mark.parametrize(
    ("ratio", "half", "decided"),
    [
        (1.0, 0.015, True),
        (1.0, 0.025, False),
        (1.03, 0.005, True),
        (1.03, 0.02, False),
        (1.06, 0.01, True),
        (1.065, 0.02, True),
        (1.09, 0.035, False),
        (1.115, 0.02, False),
        (1.125, 0.04, False),
        (1.30, 0.02, True),
    ],
)
def test_a_speed_is_decided_below_xs_or_in_a_tier_that_more_pairs_would_not_raise(
    ratio: float, half: float, decided: bool
) -> None:
    assert sequential.decided(headline(ratio, half), POLICY, 32) is decided


def test_at_the_budget_nothing_could_rise() -> None:
    assert not sequential.decided(headline(1.125, 0.04), POLICY, 32)
    assert sequential.decided(headline(1.125, 0.04, pairs=32), POLICY, 32)


def test_a_tier_needs_the_audit_over_quads() -> None:
    assert sequential.earned_tier(headline(1.03, 0.005, pairs=16, p=0.04), POLICY) == "XS"
    assert sequential.earned_tier(headline(1.03, 0.005, pairs=16, p=0.06), POLICY) is None


def test_few_quads_must_all_agree_in_sign() -> None:
    assert sequential.audit_agrees(headline(1.03, 0.005, pairs=8, p=0.125), POLICY)
    assert not sequential.audit_agrees(headline(1.03, 0.005, pairs=8, p=0.25), POLICY)


def test_a_void_pair_does_not_weaken_the_audit() -> None:
    contradicting = msgspec.structs.replace(headline(1.05, 0.005, pairs=3, p=1.0), quads=2)
    assert not sequential.audit_agrees(contradicting, POLICY)
    seven = msgspec.structs.replace(headline(1.03, 0.005, pairs=7, p=0.25), quads=4)
    assert not sequential.audit_agrees(seven, POLICY)


def test_one_quad_or_three_pairs_earn_no_tier() -> None:
    assert sequential.earned_tier(headline(1.3, 0.001, pairs=2, p=0.001), POLICY) is None
    three = msgspec.structs.replace(headline(1.3, 0.001, pairs=3, p=0.001), quads=2)
    assert sequential.earned_tier(three, POLICY) is None


def test_an_unstable_result_earns_nothing_and_proves_nothing() -> None:
    for ratio in (1.0, 1.1):
        shaky = msgspec.structs.replace(headline(ratio, 0.005), unstable=True)
        assert sequential.earned_tier(shaky, POLICY) is None
        assert not sequential.below_tiers(shaky, POLICY)
        assert not sequential.decided(shaky, POLICY, 32)


@pytest.mark.parametrize(
    ("pct", "tier"),
    [(1.9999, None), (2.0, "XS"), (9.9996, "M"), (10.0, "L"), (9.9999999999999, "L"), (400.0, "XL")],
)
def test_tiers_begin_at_their_bars(pct: float, tier: str | None) -> None:
    assert sequential.tier_of(pct, POLICY) == tier


def test_a_decided_run_takes_no_further_look() -> None:
    assert due(result(plan=LONG, dspark=1.065)) == ()


def test_undecided_cases_take_another_look_and_the_scored_one_first() -> None:
    wobble = [0.06, -0.05, 0.04, -0.06, 0.05]
    run = result(plan=LONG, noise=lambda launch: 1 + wobble[launch.launch % 5])
    assert due(run) == ("main", "long")


def test_a_failed_gate_ends_every_look() -> None:
    wobble = [0.06, -0.05, 0.04, -0.06, 0.05]
    run = result(plan=LONG, dspark=0.6, noise=lambda launch: 1 + wobble[launch.launch % 5])
    failed = sequential.failed(gates.judge(run, POLICY))
    assert failed is not None
    assert due(run) == ()


def test_a_case_at_its_last_look_is_not_due() -> None:
    last = msgspec.structs.replace(
        LONG, cases=tuple(msgspec.structs.replace(case, more=()) for case in LONG.cases)
    )
    wobble = [0.06, -0.05, 0.04, -0.06, 0.05]
    assert due(result(plan=last, noise=lambda launch: 1 + wobble[launch.launch % 5])) == ()


def test_only_a_failure_counts_as_failed() -> None:
    def gate(state: str) -> GateResult:
        return msgspec.convert(
            {"name": state, "state": state, "observed": "", "bar": "", "reason": "x."}, GateResult
        )

    assert sequential.failed([gate("PASS"), gate("NOT_RUN")]) is None
    assert sequential.failed([gate("NOT_RUN"), gate("FAIL")]) == gate("FAIL")
