"""Pairs, intervals and what a change of rate is due to."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

from harness import compare
from harness.schema import Burst, Fitness, HarnessResult, Interval, Launch, LaunchFailure, Policy, Sample
from tests.fakes import results
from tests.fakes.results import result, sample

POLICY = Policy()


def gain(run: HarnessResult, axis: str = "main:dspark") -> float:
    found = compare.find(compare.comparisons(run, POLICY), axis)
    assert found is not None
    return found.ratio


def test_two_quads_make_four_pairs() -> None:
    run = result(dspark=1.1)
    found = compare.headline(compare.comparisons(run, POLICY), run)
    assert found is not None
    assert found.pairs == 4
    assert found.ratio == pytest.approx(1.1)
    assert found.candidate / found.baseline == pytest.approx(1.1)


def test_drift_that_is_linear_in_time_cancels_within_a_quad() -> None:
    run = result(noise=lambda launch: math.exp(0.02 * launch.launch))
    assert gain(run) == pytest.approx(1.0, abs=1e-9)


def test_launch_noise_widens_the_interval_and_not_the_claim() -> None:
    wobble = [0.0, 0.02, -0.01, 0.01, 0.015, -0.02, 0.0, 0.01, 0.01, 0.0, -0.01, 0.02]
    run = result(noise=lambda launch: math.exp(wobble[launch.launch]))
    found = compare.headline(compare.comparisons(run, POLICY), run)
    assert found is not None
    assert found.interval is not None
    assert found.interval.low < 1.0 < found.interval.high


def test_two_pairs_borrow_the_spread_of_the_other_case() -> None:
    wobble = [0.0, 0.02, -0.01, 0.01, 0.015, -0.02, 0.0, 0.01, 0.0, 0.0, 0.0, 0.0]
    run = result(noise=lambda launch: math.exp(wobble[launch.launch]))
    found = compare.find(compare.comparisons(run, POLICY), "long:dspark")
    assert found is not None
    assert found.pairs == 2
    assert found.interval is not None
    assert found.interval.low < 1.0 < found.interval.high


def test_nothing_that_a_failed_launch_said_is_used() -> None:
    run = result(dspark=1.1)

    def spoil(launch: Launch) -> Launch:
        if launch.launch not in (0, 1):
            return launch
        return msgspec.structs.replace(
            launch, failure=LaunchFailure(stage="generate", kind="exit", detail="x")
        )

    spoiled = msgspec.structs.replace(run, launches=tuple(map(spoil, run.launches)))
    found = compare.find(compare.comparisons(spoiled, POLICY), "main:dspark")
    assert found is not None
    assert found.pairs == 3


def test_an_axis_that_one_arm_lacks_has_no_comparison() -> None:
    run = result()
    alone = msgspec.structs.replace(run, samples=tuple(s for s in run.samples if s.arm == "baseline"))
    assert compare.comparisons(alone, POLICY) == ()
    assert compare.value_of(compare.measurements(alone, POLICY), "main:dspark", "candidate") is None


def test_a_value_lies_within_its_own_interval() -> None:
    run = result(noise=lambda launch: 1.0 + 0.01 * (launch.launch % 3))
    for measured in compare.measurements(run, POLICY):
        if measured.interval is not None:
            assert measured.interval.low <= measured.value <= measured.interval.high


def test_a_slowdown_from_fewer_accepted_drafts_is_attributed_to_acceptance() -> None:  # B37
    text = tuple(range(201))
    main = [3] * 64 + [2] * 4
    fewer = [3] * 42 + [2] * 37
    run = msgspec.structs.replace(
        result(),
        samples=(
            sample(arm="baseline", rounds=main, token_ids=text, requested=201),
            sample(arm="candidate", rounds=fewer, token_ids=text, requested=201, launch=1),
        ),
    )
    found = compare.decompose(run, "main")
    assert found is not None
    assert found.rounds == (68, 79)
    assert found.round_ratio == pytest.approx(1.0)
    assert found.tau_ratio == pytest.approx(68 / 79)
    assert found.attributed_to == "acceptance"


def test_a_slowdown_at_equal_acceptance_is_attributed_to_the_cost_of_a_step() -> None:
    found = compare.decompose(result(dspark=0.8), "main")
    assert found is not None
    assert found.attributed_to == "step cost"
    assert found.round_ratio == pytest.approx(1.25)


def test_every_axis_belongs_to_a_case_of_the_plan() -> None:
    names = {case.name for case in results.PLAN.cases} | {"accuracy"}
    assert {m.name.split(":")[0] for m in compare.measurements(result(), POLICY)} == names


def _with_rounds(run: HarnessResult, quads: int, candidate: list[int]) -> HarnessResult:
    """The candidate's DSpark rounds on the last ``quads`` quads of the scored case replaced."""

    def changed(s: Sample) -> Sample:
        if (s.case, s.arm, s.mode) != ("main", "candidate", "dspark") or s.quad < 6 - quads:
            return s
        return sample(rounds=candidate, quad=s.quad, slot=s.slot, launch=s.launch, prompt_id=s.prompt_id)

    return msgspec.structs.replace(run, samples=tuple(map(changed, run.samples)))


SIX_QUADS = msgspec.structs.replace(
    results.PLAN, cases=(msgspec.structs.replace(results.SCORED, quads=6), results.GUARD)
)


def test_tau_has_an_interval_over_prompts_and_none_where_they_are_few() -> None:
    equal = compare.find(compare.comparisons(result(plan=SIX_QUADS), POLICY), "main:tau")
    assert equal is not None
    assert equal.interval is not None
    assert (equal.interval.low, equal.interval.high, equal.pairs) == (1.0, 1.0, 6)
    some = _with_rounds(result(plan=SIX_QUADS), 3, [2] * 10)
    for kind in ("tau", "accepted", "tau:prose"):
        found = compare.find(compare.comparisons(some, POLICY), f"main:{kind}")
        assert found is not None
        assert found.interval is not None
        assert found.interval.low < found.ratio < 1.0
        assert found.interval.high == pytest.approx(1.0, abs=0.08)
    few = compare.find(compare.comparisons(result(), POLICY), "main:tau")
    assert few is not None
    assert few.interval is None


def test_each_arm_shows_the_interval_of_its_tau() -> None:
    measured = compare.measurements(_with_rounds(result(plan=SIX_QUADS), 3, [2] * 10), POLICY)
    for kind in ("tau", "accepted", "tau:prose"):
        main, candidate = (compare.value_of(measured, f"main:{kind}", arm) for arm in compare.ARMS)
        assert main is not None
        assert candidate is not None
        assert main.interval == Interval(low=main.value, high=main.value)
        assert candidate.interval is not None
        assert candidate.interval.low < candidate.value < candidate.interval.high <= main.value
    few = compare.value_of(compare.measurements(result(), POLICY), "main:tau", "baseline")
    assert few is not None
    assert few.interval is None


def test_a_launch_on_an_unfit_machine_voids_its_pair_for_rates_and_nothing_else() -> None:
    run = result(plan=SIX_QUADS, dspark=1.1)

    def watched(launch: Launch) -> Launch:
        stolen = 30.0 if (launch.case, launch.quad, launch.slot) == ("main", 2, 1) else 0.1
        return msgspec.structs.replace(launch, after=Fitness(steal_pct=stolen))

    unfit = msgspec.structs.replace(run, launches=tuple(map(watched, run.launches)))
    found = {c.name: c for c in compare.comparisons(unfit, POLICY)}
    assert found["main:dspark"].pairs == found["main:ar"].pairs == 11
    assert found["main:dspark"].ratio == pytest.approx(1.1)
    assert found["main:tau"].pairs == 6
    assert found["long:dspark"].pairs == 2


def test_the_shown_value_of_an_arm_is_over_the_pairs_that_are_compared() -> None:
    wobble = [1.0, 1.4, 1.0, 1.01, 0.99, 1.02, 1.0]
    run = result(plan=SIX_QUADS, dspark=1.1, noise=lambda launch: wobble[launch.launch % 7])
    found = compare.find(compare.comparisons(run, POLICY), "main:dspark")
    main, candidate = (
        compare.value_of(compare.measurements(run, POLICY), "main:dspark", arm) for arm in compare.ARMS
    )
    assert found is not None
    assert main is not None
    assert candidate is not None
    assert (main.value, candidate.value) == pytest.approx((found.baseline, found.candidate))
    assert candidate.value / main.value == pytest.approx(found.ratio)


def test_a_rate_whose_acceptance_depends_on_the_prompt_has_its_error_over_prompts() -> None:
    some = _with_rounds(result(plan=SIX_QUADS), 3, [2] * 10)
    found = compare.judged(some, POLICY)["main:dspark"]
    tau = np.log([2.0 / 2.5] * 3 + [1.0] * 3)
    assert found.estimate is not None
    assert found.estimate.mean == pytest.approx(tau.mean())
    # Rounds cost the same in every launch, so all of the spread is the prompts', and there are six of them.
    assert found.estimate.se == pytest.approx(tau.std(ddof=1) / math.sqrt(6), rel=0.1)
    assert found.estimate.df == 5


def test_with_equal_acceptance_the_error_is_that_of_the_launches_alone() -> None:
    wobble = [1.0, 1.02, 0.99, 1.01, 0.98, 1.0, 1.03]
    run = result(plan=SIX_QUADS, dspark=1.1, noise=lambda launch: wobble[launch.launch % 7])
    found = compare.judged(run, POLICY)
    dspark, rounds = found["main:dspark"].estimate, found["main:round"].estimate
    assert dspark is not None
    assert rounds is not None
    assert (dspark.se, dspark.df) == pytest.approx((rounds.se, rounds.df))


def test_an_output_in_one_piece_leaves_a_hole() -> None:
    run = result()
    assert not any(compare.gaps(run, "main", kind) for kind in compare.RATES)

    def whole(s: Sample) -> Sample:
        if (s.arm, s.mode, s.quad) != ("candidate", "dspark", 1):
            return s
        return msgspec.structs.replace(s, bursts=(Burst(elapsed_s=1.0, tokens=21),))

    holed = msgspec.structs.replace(run, samples=tuple(map(whole, run.samples)))
    assert compare.gaps(holed, "main", "dspark")
    assert not compare.gaps(holed, "main", "ar")
