"""The noise model: right sizes, one seed one run, and one launch alone as in the whole run."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.noise import THERMAL_STEPS, NoiseModel, at, slowness, slowness_of_axes

LAUNCHES = 64
LOUD = NoiseModel(launch_sd=0.01, stall_probability=0.1, drift="walk", drift_size=0.05, slot_effect=0.02)
DRIFTS = ("none", "linear", "walk", "thermal")


def many(model: NoiseModel, runs: int = 2000) -> np.ndarray:
    return np.array([slowness(model, seed, LAUNCHES) for seed in range(runs)])


@pytest.mark.parametrize("drift", DRIFTS)
@given(seed=st.integers(0, 2**31), launch=st.integers(0, LAUNCHES - 1))
def test_one_launch_alone_is_as_slow_as_in_the_whole_run(drift: str, seed: int, launch: int) -> None:
    model = NoiseModel(launch_sd=0.01, stall_probability=0.2, drift=drift, drift_size=0.05, slot_effect=0.02)
    assert at(model, seed, launch, LAUNCHES) == slowness(model, seed, LAUNCHES)[launch]


def test_a_run_that_is_extended_goes_on_beyond_its_horizon() -> None:
    model = NoiseModel(drift="linear", drift_size=0.05)
    assert at(model, 1, 2 * LAUNCHES, LAUNCHES) == pytest.approx(0.10)


def test_the_slot_counts_where_a_retry_has_shifted_the_numbers() -> None:
    model = NoiseModel(slot_effect=0.5)
    assert [at(model, 1, 7, 9, second) for second in (False, True, None)] == [0.0, 0.5, 0.5]


def test_another_seed_is_another_run_and_the_same_seed_the_same() -> None:
    assert np.array_equal(slowness(LOUD, 1, LAUNCHES), slowness(LOUD, 1, LAUNCHES))
    assert not np.array_equal(slowness(LOUD, 1, LAUNCHES), slowness(LOUD, 2, LAUNCHES))


def test_launch_noise_has_its_standard_deviation() -> None:
    seen = many(NoiseModel(launch_sd=0.006))
    assert seen.std() == pytest.approx(0.006, rel=0.02)
    assert abs(seen.mean()) < 1e-4


def test_stalls_come_as_often_and_as_large_as_said() -> None:
    seen = many(NoiseModel(stall_probability=0.02, stall_size=0.5))
    assert (seen > 0).mean() == pytest.approx(0.02, rel=0.1)
    assert seen.max() <= np.log(1.5)
    assert np.expm1(seen[seen > 0]).mean() == pytest.approx(0.25, rel=0.05)


def test_linear_drift_grows_evenly_up_to_its_size() -> None:
    seen = slowness(NoiseModel(drift="linear", drift_size=0.05), 1, LAUNCHES)
    assert np.allclose(np.diff(seen), 0.05 / LAUNCHES)
    assert seen[0] == 0.0


def test_a_walk_accumulates_its_size() -> None:
    seen = many(NoiseModel(drift="walk", drift_size=0.05))
    assert seen[:, -1].std() == pytest.approx(0.05, rel=0.06)
    assert seen[:, LAUNCHES // 4 - 1].std() == pytest.approx(0.025, rel=0.06)


def test_thermal_drift_moves_in_steps_of_its_size() -> None:
    seen = many(NoiseModel(drift="thermal", drift_size=0.03), runs=200)
    steps = np.diff(seen, axis=1, prepend=0.0) / 0.03
    assert np.allclose(steps, np.round(steps))
    assert (np.abs(steps) > 0.5).sum(axis=1).max() <= THERMAL_STEPS
    assert {-1, 1} <= set(np.unique(np.round(steps)))


def test_axes_share_drift_and_slot_and_nothing_else() -> None:
    shared = NoiseModel(drift="walk", drift_size=0.05, slot_effect=0.02)
    assert np.ptp(slowness_of_axes(shared, 1, LAUNCHES, 13), axis=0).max() == 0.0
    own = slowness_of_axes(NoiseModel(launch_sd=0.01), 1, 2000, 2)
    assert abs(np.corrcoef(own)[0, 1]) < 0.1


@pytest.mark.parametrize("drift", DRIFTS)
def test_a_silent_model_disturbs_nothing(drift: str) -> None:
    silent = NoiseModel(drift=drift)
    assert silent.silent
    assert not slowness(silent, 1, LAUNCHES).any()
    assert not LOUD.silent


def test_a_whole_run_of_thirteen_axes_is_drawn_in_less_than_a_millisecond() -> None:
    best = min(_timed(seed) for seed in range(50))
    assert best < 1e-3


def _timed(seed: int) -> float:
    started = time.perf_counter()
    slowness_of_axes(LOUD, seed, LAUNCHES, 13)
    return time.perf_counter() - started
