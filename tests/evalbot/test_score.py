"""The judge: outcomes, tiers, and what can never happen."""

from __future__ import annotations

import math
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalbot.score import analyse, missing, needs_confirmation, score
from evalbot.types import Facts, Stop, Verdict
from harness.schema import Burst, Comparison, Fitness, HarnessResult, Launch, Policy, Sample, encode_json
from tests.evalbot.results import Behaviour, failure, run

POLICY = Policy()
FACTS = Facts()
FAST = Behaviour(dspark_tok_s=55.0)
SLOW = Behaviour(dspark_tok_s=45.0)


def judged(candidate: Behaviour, fresh: Behaviour | None = None, facts: Facts = FACTS) -> Verdict:
    """As the pipeline does it: measured again where that is due."""
    runs: tuple[HarnessResult, ...] = (run(candidate=candidate),)
    if needs_confirmation(runs[0], POLICY, facts):
        runs = (*runs, run(candidate=fresh or candidate, seed=1))
    return score(runs, POLICY, facts)


def without(result: HarnessResult, case: str, mode: str, arm: str) -> HarnessResult:
    def kept(sample: Sample) -> bool:
        return (sample.case, sample.mode, sample.arm) != (case, mode, arm)

    return msgspec.structs.replace(result, samples=tuple(filter(kept, result.samples)))


@pytest.mark.parametrize(
    ("candidate", "label"),
    [
        (Behaviour(), "eval-dspark:none"),
        (Behaviour(dspark_tok_s=50.6), "eval-dspark:none"),
        (Behaviour(dspark_tok_s=51.3), "eval-dspark:XS"),
        (FAST, "eval-dspark:M"),
        (Behaviour(dspark_tok_s=60.0), "eval-dspark:XL"),
        (SLOW, "eval-dspark:REJECT"),
        (replace(FAST, wrong_token_at=9), "eval-dspark:REJECT"),
        (replace(FAST, ar_tok_s=20.0), "eval-dspark:REJECT"),
        (replace(FAST, guard_scale=0.9), "eval-dspark:REJECT"),
        (replace(FAST, prefill_scale=0.8), "eval-dspark:REJECT"),
        (replace(FAST, rounds=(2,)), "eval-dspark:REJECT"),
        (replace(FAST, top1=0.5), "eval-dspark:REJECT"),
        (replace(FAST, kl_nats=0.5), "eval-dspark:REJECT"),
        (Behaviour(noise=0.1), "eval-dspark:inconclusive"),
        (Behaviour(failures=(failure(), failure())), "eval-dspark:build-failed"),
        (replace(FAST, overrides=(("DSPARK_PROPOSALS", "1"),)), "eval-dspark:error"),
        (Behaviour(empty=True), "eval-dspark:error"),
    ],
)
def test_each_behaviour_gets_its_own_label(candidate: Behaviour, label: str) -> None:
    assert judged(candidate).label == label


def test_a_failure_counts_only_after_a_second_fresh_measurement() -> None:
    first = run(candidate=SLOW)
    assert needs_confirmation(first, POLICY, FACTS)
    assert score((first,), POLICY, FACTS).outcome == "inconclusive"
    assert judged(SLOW, fresh=Behaviour()).outcome == "inconclusive"
    assert judged(SLOW, fresh=SLOW).outcome == "reject"


def test_failing_another_gate_the_second_time_is_not_a_confirmation() -> None:
    verdict = judged(SLOW, fresh=Behaviour(ar_tok_s=20.0))
    assert verdict.outcome == "inconclusive"


def test_reject_names_the_worst_axis_with_two_numbers_and_the_bar() -> None:
    verdict = judged(Behaviour(ar_tok_s=24.0, guard_scale=0.7))
    assert verdict.axis == "guard:long:decode"
    assert "long:dspark runs at" in verdict.reason
    assert "against main's" in verdict.reason
    assert "below 0.98" in verdict.reason


def test_wrong_output_is_named_before_slow_output() -> None:
    assert judged(replace(SLOW, wrong_token_at=3)).axis == "losslessness"


def test_identical_trees_never_get_a_tier_nor_a_reject() -> None:
    facts = Facts(identical=True)
    for candidate in (FAST, SLOW, Behaviour(noise=0.1)):
        verdict = judged(candidate, facts=facts)
        assert verdict.outcome == "none"
        assert "byte for byte" in verdict.reason


def test_main_failing_its_own_gates_is_an_error_and_never_the_candidates() -> None:
    for candidate in (Behaviour(), SLOW, Behaviour(wrong_token_at=4)):
        broken = run(baseline=Behaviour(wrong_token_at=4), candidate=candidate)
        assert not needs_confirmation(broken, POLICY, FACTS)
        assert score((broken,), POLICY, FACTS).outcome == "error"


def test_main_failing_to_start_is_an_error() -> None:
    broken = run(baseline=Behaviour(failures=(failure(), failure())))
    verdict = score((broken,), POLICY, FACTS)
    assert verdict.outcome == "error"
    assert "main's own worker failed 2 times" in verdict.reason


def test_one_failed_start_is_bad_luck_and_not_a_verdict() -> None:
    assert judged(Behaviour(failures=(failure(),))).outcome == "none"


def test_a_stop_before_measuring_is_an_error_with_its_own_words() -> None:
    stop = Stop(cause="needs-rebase", sentence="It conflicts in a.py.")
    verdict = score((), POLICY, Facts(stop=stop))
    assert (verdict.outcome, verdict.label, verdict.reason) == (
        "error", "dspark-needs-rebase", "It conflicts in a.py.",
    )  # fmt: skip


def test_a_failed_build_is_build_failed() -> None:
    stop = Stop(cause="build-failed", sentence="It does not import.")
    assert score((), POLICY, Facts(stop=stop)).label == "eval-dspark:build-failed"


@pytest.mark.parametrize("arm", ["baseline", "candidate"])
@pytest.mark.parametrize(
    ("case", "mode"), [("chat", "ar"), ("chat", "dspark"), ("long", "ar"), ("long", "dspark")]
)
def test_a_run_with_any_metric_missing_never_rejects(arm: str, case: str, mode: str) -> None:
    slow = run(candidate=replace(SLOW, wrong_token_at=3))
    partial = without(slow, case, mode, arm)
    assert missing(partial, analyse(partial, POLICY))
    assert score((partial, partial), POLICY, FACTS).outcome == "error"
    assert score((slow, partial), POLICY, FACTS).outcome == "error"


def test_missing_accuracy_windows_never_reject_and_never_earn_a_tier() -> None:
    for candidate in (SLOW, FAST):
        partial = msgspec.structs.replace(run(candidate=candidate), accuracy=())
        assert score((partial, partial), POLICY, FACTS).outcome == "error"


def test_too_few_quads_for_the_sign_flip_audit_do_not_veto_a_tier() -> None:
    verdict = score((run(candidate=FAST, quads=2),), POLICY, FACTS)
    assert verdict.tier == "M"


@settings(max_examples=25, deadline=None)
@given(speeds=st.tuples(st.floats(46.0, 65.0), st.floats(46.0, 65.0)))
def test_faster_never_gets_a_smaller_tier(speeds: tuple[float, float]) -> None:
    slower, faster = (
        score((run(candidate=Behaviour(dspark_tok_s=s)),), POLICY, FACTS) for s in sorted(speeds)
    )
    order = [None, "XS", "S", "M", "L", "XL"]
    assert order.index(slower.tier) <= order.index(faster.tier)


@settings(max_examples=40, deadline=None)
@given(
    dspark=st.floats(30.0, 70.0),
    ar=st.floats(15.0, 35.0),
    guard=st.floats(0.8, 1.2),
    rounds=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    noise=st.sampled_from([0.0005, 0.02, 0.1]),
    wrong=st.none() | st.integers(1, 15),
)
def test_no_tier_unless_every_gate_passes_and_no_reject_without_a_failed_gate(
    dspark: float, ar: float, guard: float, rounds: list[int], noise: float, wrong: int | None
) -> None:
    candidate = Behaviour(
        dspark_tok_s=dspark, ar_tok_s=ar, guard_scale=guard, rounds=tuple(rounds), noise=noise,
        wrong_token_at=wrong,
    )  # fmt: skip
    first, second = run(candidate=candidate), run(candidate=candidate, seed=1)
    verdict = score((first, second), POLICY, FACTS)
    states = {gate.state for gate in analyse(first, POLICY).gates}
    if verdict.tier is not None:
        assert states == {"PASS"}
        assert verdict.interval_pct is not None
        assert verdict.interval_pct.low >= getattr(POLICY.tiers_pct, verdict.tier)
    if verdict.outcome == "reject":
        again = {gate.name for gate in analyse(second, POLICY).gates if gate.state == "FAIL"}
        assert again & {gate.name for gate in analyse(first, POLICY).gates if gate.state == "FAIL"}
    assert verdict.reason.endswith(".")
    assert verdict.reason not in ("True.", "False.", "None.", "ok.")


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_the_verdict_does_not_depend_on_the_order_of_samples(data: st.DataObject) -> None:
    result = run(candidate=replace(FAST, guard_scale=0.9), quads=2)
    shuffled = msgspec.structs.replace(result, samples=tuple(data.draw(st.permutations(result.samples))))
    assert (
        score((shuffled, shuffled), POLICY, FACTS).outcome == score((result, result), POLICY, FACTS).outcome
    )


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_and_infinity_never_enter_a_record(value: float) -> None:
    broken = Comparison(
        name="chat:dspark", unit="tok/s", baseline=value, candidate=1.0, ratio=1.0, interval=None, pairs=0
    )
    with pytest.raises(ValueError, match="never enter a record"):
        encode_json(broken)


def test_equal_trees_with_wrong_output_are_an_error_and_not_none() -> None:
    verdict = judged(Behaviour(wrong_token_at=3), facts=Facts(identical=True))
    assert verdict.outcome == "error"
    assert "losslessness" in (verdict.axis or "")


def test_a_very_wrong_model_is_rejected_and_does_not_break_the_judge() -> None:
    lost = run(candidate=Behaviour(top1=0.0, kl_nats=700.0))
    worst = msgspec.structs.replace(
        lost,
        accuracy=tuple(msgspec.structs.replace(each, candidate_nll=800.0) for each in lost.accuracy),
    )
    assert score((worst, worst), POLICY, FACTS).outcome == "reject"


def test_a_gate_left_open_in_either_run_leaves_no_tier() -> None:
    clean, noisy = run(candidate=FAST), run(candidate=replace(FAST, noise=0.02), seed=3)
    assert {gate.state for gate in analyse(clean, POLICY).gates} == {"PASS"}
    assert {gate.state for gate in analyse(noisy, POLICY).gates} == {"PASS", "NOT_RUN"}
    assert score((clean,), POLICY, FACTS).tier is not None
    for pair in ((clean, noisy), (noisy, clean)):
        assert score(pair, POLICY, FACTS).outcome == "inconclusive"


def _busy(result: HarnessResult, launches: set[int]) -> HarnessResult:
    """The run on a machine whose host took the CPU away during some launches."""

    def watched(launch: Launch) -> Launch:
        stolen = 60.0 if launch.launch in launches else 0.1
        return msgspec.structs.replace(launch, after=Fitness(steal_pct=stolen))

    return msgspec.structs.replace(result, launches=tuple(map(watched, result.launches)))


def test_a_worker_that_dies_on_an_unfit_machine_is_nobodys_fault() -> None:
    died = run(candidate=Behaviour(failures=(failure(), failure())))
    numbers = {launch.launch for launch in died.launches if launch.failure is not None}
    assert score((died,), POLICY, FACTS).outcome == "build-failed"
    verdict = score((_busy(died, numbers),), POLICY, FACTS)
    assert (verdict.outcome, verdict.axis) == ("error", "environment")


def test_an_unfit_machine_rejects_no_speed_and_earns_none() -> None:
    for candidate in (SLOW, FAST):
        measured = run(candidate=candidate)
        busy = _busy(measured, {launch.launch for launch in measured.launches if launch.launch % 3 == 0})
        assert score((busy, busy), POLICY, FACTS).outcome == "error"


def test_wrong_output_is_rejected_on_any_machine() -> None:
    measured = run(candidate=replace(FAST, wrong_token_at=3))
    busy = _busy(measured, {launch.launch for launch in measured.launches})
    assert score((busy, busy), POLICY, FACTS).outcome == "reject"


def test_a_confirmation_on_an_unfit_machine_confirms_nothing_and_clears_nothing() -> None:
    first, second = run(candidate=SLOW), run(candidate=SLOW, seed=1)
    busy = _busy(second, {launch.launch for launch in second.launches})
    verdict = score((first, busy), POLICY, FACTS)
    assert verdict.outcome == "error"
    assert "not fit" in verdict.reason


def test_a_second_measurement_that_decides_nothing_is_not_called_a_pass() -> None:
    verdict = score((run(candidate=SLOW), run(candidate=replace(SLOW, noise=0.4), seed=5)), POLICY, FACTS)
    assert verdict.outcome == "inconclusive"
    assert "was not decided by a fresh second one" in verdict.reason


def test_output_in_one_piece_is_no_way_to_choose_what_counts() -> None:
    measured = run(candidate=FAST)

    def whole(s: Sample) -> Sample:
        if (s.arm, s.mode, s.quad) != ("candidate", "dspark", 0):
            return s
        last = s.bursts[-1].elapsed_s
        return msgspec.structs.replace(s, bursts=(Burst(elapsed_s=last, tokens=len(s.token_ids)),))

    holed = msgspec.structs.replace(measured, samples=tuple(map(whole, measured.samples)))
    assert score((holed, holed), POLICY, FACTS).outcome in ("error", "reject")
    assert score((holed, holed), POLICY, FACTS).tier is None
