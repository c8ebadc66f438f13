"""Pairs, intervals and what a change of rate is due to."""

from __future__ import annotations

import math

import msgspec
import pytest

from harness import compare
from harness.schema import HarnessResult, Launch, LaunchFailure, Policy
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


def test_the_noise_floor_is_read_from_main_against_itself_alone() -> None:
    quiet = compare.noise_floor(result(dspark=1.5), "main", "dspark", 0.95)
    assert quiet == pytest.approx(0.0, abs=1e-9)
    noisy = result(noise=lambda launch: 1.0 + 0.02 * (launch.slot > 1))
    floor = compare.noise_floor(noisy, "main", "dspark", 0.95)
    assert floor is not None
    assert floor > 0.02
    assert compare.noise_floor(noisy, "absent", "dspark", 0.95) is None


def test_every_axis_belongs_to_a_case_of_the_plan() -> None:
    names = {case.name for case in results.PLAN.cases} | {"accuracy"}
    assert {m.name.split(":")[0] for m in compare.measurements(result(), POLICY)} == names
