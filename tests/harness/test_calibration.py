"""Noise floor, tau2 and detectable effect: right values, and pooling that is exact."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import msgspec
import numpy as np
import pytest
from scipy import stats as distributions

from harness import spending, stats
from harness.calibration import (
    MAX_RUNS,
    CalibrationRun,
    Epoch,
    axis_noise,
    between_builds,
    key_of,
    pooled,
)
from harness.schema import Machine, encode_json

HERE = Machine(hostname_sha256="h", cpu="c", cores=2)
EPOCH = Epoch(harness_sha256="a", plan="p", plan_sha256="b", models_sha256="m")
START = datetime(2026, 11, 1, tzinfo=UTC)
AXIS = "chat:dspark"


def made(
    *differences: float, kind: str = "same", day: int = 0, alarms: tuple[str, ...] = ()
) -> CalibrationRun:
    return CalibrationRun(
        measured_at=(START + timedelta(days=day)).isoformat(), kind=kind, seed=day,
        differences={AXIS: differences}, false_positives=alarms,
    )  # fmt: skip


def test_the_noise_floor_of_one_run_is_the_half_width_that_its_comparison_has() -> None:
    differences = (0.01, -0.02, 0.005, 0.015)
    found = axis_noise(AXIS, [made(*differences)])
    bounds = stats.trimmed(differences).interval(0.95)
    assert bounds is not None
    half = (bounds.high - bounds.low) / 2
    assert found.sd == pytest.approx(np.std(differences, ddof=1))
    assert found.noise_floor_pct == pytest.approx(100 * math.expm1(half))
    assert (found.pairs, found.differences, found.rebuilds, found.tau2) == (4, 4, 0, None)


def test_from_ten_pairs_the_noise_floor_is_trimmed_as_the_verdicts_estimate_is() -> None:
    stalled = (*np.random.default_rng(1).normal(0, 0.006, 19), 0.4)
    found = axis_noise(AXIS, [made(*stalled)])
    bounds = stats.trimmed(stalled).interval(0.95)
    assert bounds is not None
    assert found.noise_floor_pct is not None
    assert found.sd == pytest.approx(np.std(stalled, ddof=1))
    half = (bounds.high - bounds.low) / 2
    # Centred on the mean rather than on the trimmed mean, and one degree of freedom apart.
    assert found.noise_floor_pct == pytest.approx(100 * math.expm1(half), rel=0.05)


def test_runs_are_centred_before_their_spread_is_pooled() -> None:
    apart = axis_noise(AXIS, [made(0.00, 0.02), made(0.50, 0.52, kind="rebuild")])
    assert apart.sd == pytest.approx(math.sqrt(0.0002))


def test_tau2_is_what_noise_leaves_unexplained() -> None:
    # Offset 0.02 of four pairs with a pooled variance of 0.0001: 0.0004 - 0.0001 / 4.
    assert between_builds([np.full(4, 0.02)], 0.01) == pytest.approx(0.0004 - 0.000025)
    assert between_builds([np.full(4, 0.02), np.full(4, 0.0)], 0.01) == pytest.approx(0.0002 - 0.000025)


def test_tau2_is_never_negative_and_unknown_without_a_rebuild() -> None:
    assert between_builds([np.array([0.01, -0.01])], 0.01) == 0.0
    assert between_builds([], 0.01) is None
    assert between_builds([np.array([0.01])], None) is None


def test_tau2_is_unbiased_over_many_rebuilds() -> None:
    random = np.random.default_rng(7)
    tau, sd, pairs = 0.01, 0.02, 8
    rebuilt = [random.normal(random.normal(0, tau), sd, pairs) for _ in range(4000)]
    assert between_builds(rebuilt, sd) == pytest.approx(tau**2, rel=0.15)


@pytest.mark.parametrize(
    "looks", [(2,), (3,), (4,), (8,), (12,), (32,), (4, 8), (8, 12, 16, 24, 32), (12, 24)], ids=str
)
@pytest.mark.parametrize("build", [False, True])
def test_the_detectable_effect_is_seen_by_the_first_look_with_80_percent(
    looks: tuple[int, ...], build: bool
) -> None:
    first, last = looks[0], looks[-1]
    noise = tuple(([0.01, -0.01] * last)[:last])
    runs = [made(*noise)] + [made(*(x + 0.05 for x in noise), kind="rebuild")] * build
    planned = [msgspec.structs.replace(run, looks={"chat": looks}) for run in runs]
    found = axis_noise(AXIS, planned if len(looks) > 1 else runs)
    assert found.detectable_pct is not None
    freedom = first - 2 * int(stats.TRIM * first) - 1
    bar = distributions.t.isf(spending.tails(looks, 0.05, 2)[0], freedom)
    assert found.sd is not None
    # Where nothing is trimmed at either size, the spread is the standard deviation itself.
    if last < 10:
        se = math.sqrt(found.sd**2 / first + (found.tau2 or 0.0))
        shift = math.log1p(found.detectable_pct / 100) / se
        assert distributions.nct.sf(bar, freedom, shift) == pytest.approx(0.80, abs=1e-3)
    at_once = axis_noise(AXIS, runs).detectable_pct
    assert at_once is not None
    assert (found.detectable_pct > at_once) == (len(looks) > 1)


def test_builds_that_differ_raise_the_detectable_effect() -> None:
    steady = axis_noise(AXIS, [made(0.01, -0.01, 0.01, -0.01)])
    shifted = axis_noise(AXIS, [made(0.01, -0.01, 0.01, -0.01), made(0.06, 0.04, 0.06, 0.04, kind="rebuild")])
    assert steady.detectable_pct is not None
    assert shifted.detectable_pct is not None
    assert shifted.detectable_pct > 2 * steady.detectable_pct
    assert shifted.noise_floor_pct == pytest.approx(steady.noise_floor_pct, rel=0.1)


def test_one_pair_says_nothing_and_invents_no_number() -> None:
    found = axis_noise(AXIS, [made(0.01)])
    assert found.sd is found.noise_floor_pct is found.detectable_pct is None
    assert found.differences == 1


def test_pooling_in_steps_equals_pooling_at_once_to_the_byte() -> None:
    random = np.random.default_rng(3)
    runs = [
        made(*random.normal(0, 0.01, 8).tolist(), kind=("same", "rebuild")[day % 2], day=day)
        for day in range(6)
    ]
    at_once = pooled(HERE, EPOCH, runs)
    in_steps = pooled(HERE, EPOCH, runs[:2])
    for run in runs[2:]:
        in_steps = pooled(HERE, EPOCH, (*in_steps.runs, run))
    assert encode_json(in_steps) == encode_json(at_once)
    assert at_once.axes[0].differences == 48
    assert at_once.axes[0].rebuilds == 3


def test_only_the_latest_runs_of_the_last_30_days_count() -> None:
    many = pooled(HERE, EPOCH, [made(0.01, 0.02, day=0) for _ in range(MAX_RUNS + 5)])
    assert len(many.runs) == MAX_RUNS
    old = pooled(HERE, EPOCH, [made(0.5, -0.5, day=0), made(0.01, 0.02, day=31)])
    assert [run.seed for run in old.runs] == [31]
    assert old.measured_at == old.runs[0].measured_at


def test_a_calibration_expires_after_30_days() -> None:
    found = pooled(HERE, EPOCH, [made(0.01, 0.02)])
    assert not found.expired(START + timedelta(days=30))
    assert found.expired(START + timedelta(days=30, seconds=1))


def test_false_positives_are_counted_by_run() -> None:
    found = pooled(HERE, EPOCH, [made(0.0, 0.1), made(0.0, 0.1, alarms=("tier XS", "ar-floor"), day=1)])
    assert (found.false_positives, len(found.runs)) == (1, 2)


def test_a_pair_takes_two_launches_of_its_case() -> None:
    timed = [
        CalibrationRun(
            measured_at=START.isoformat(), kind="same", seed=seed, differences={AXIS: (0.1, 0.2)},
            launch_s={"chat": seconds},
        )
        for seed, seconds in enumerate((4.0, 5.0, 30.0))
    ]  # fmt: skip
    found = pooled(HERE, EPOCH, (*timed, made(0.1, 0.2)))
    assert found.pair_s("chat:dspark") == found.pair_s("chat:ar") == 10.0
    assert found.pair_s("long:ar") is None


def test_no_run_is_no_calibration() -> None:
    with pytest.raises(ValueError, match="at least one run"):
        pooled(HERE, EPOCH, [])


def test_axes_that_only_some_runs_have_are_judged_by_those() -> None:
    other = CalibrationRun(
        measured_at=START.isoformat(), kind="same", seed=1, differences={"long:prefill": (0.1, 0.2, 0.3)}
    )
    found = pooled(HERE, EPOCH, [made(0.01, 0.02), other])
    assert {axis.name: axis.differences for axis in found.axes} == {AXIS: 2, "long:prefill": 3}
    assert found.axis("long:prefill") is not None
    assert found.axis("long:ar") is None
    assert found.between_builds() == {}


def test_machine_and_instrument_each_have_their_own_key() -> None:
    keys = {
        key_of(HERE, EPOCH),
        key_of(Machine(hostname_sha256="other", cpu="c", cores=2), EPOCH),
        key_of(HERE, Epoch(harness_sha256="x", plan="p", plan_sha256="b", models_sha256="m")),
        key_of(HERE, Epoch(harness_sha256="a", plan="p", plan_sha256="x", models_sha256="m")),
        key_of(HERE, Epoch(harness_sha256="a", plan="p", plan_sha256="b", models_sha256="x")),
        key_of(HERE, Epoch(harness_sha256="a", plan="p", plan_sha256="b", models_sha256="m", driver="1")),
    }
    assert len(keys) == 6
