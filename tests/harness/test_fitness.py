"""Rules that void a launch and its pair look at the machine and never at a result or an arm."""

from __future__ import annotations

import msgspec
import pytest

from harness import fitness
from harness.fitness import invalid_positions, invalid_share, unfit
from harness.schema import Fitness, HarnessResult, Launch, LaunchFailure
from tests.fakes import results

QUIET = Fitness(probe_s=0.025, load_average=1.0, steal_pct=0.1, gpu_throttle=(), gpu_foreign_processes=0)
BAD = {
    "probe slow": ({"probe_s": 0.025 * 2.0}, "the control probe after it took 50.0 ms, 2.00 times"),
    "probe fast": ({"probe_s": 0.025 / 2.0}, "the control probe after it took 12.5 ms, 0.50 times"),
    "steal": ({"steal_pct": 2.5}, "the host gave 2.5% of the CPU to others during it (bound 2%)"),
    "foreign": ({"foreign_cpu_pct": 33.0}, "other programs took 33% of all cores during it (bound 30%)"),
    "heat": ({"gpu_throttle": ("idle", "sw thermal slowdown")}, "held down after it (sw thermal slowdown)"),
    "brake": ({"gpu_throttle": ("hw power brake",)}, "held down after it (hw power brake)"),
    "stranger": ({"gpu_foreign_processes": 1}, "1 foreign process computed on the GPU after it"),
    "strangers": ({"gpu_foreign_processes": 2}, "2 foreign processes computed on the GPU after it"),
}


def run(**spoiled: Fitness) -> HarnessResult:
    """A quiet run; ``l7=X`` makes X the reading after launch 7."""
    quiet = results.result()
    launches = tuple(
        msgspec.structs.replace(
            launch, before=QUIET, after=spoiled.get(f"l{launch.launch}", QUIET)
        )
        for launch in quiet.launches
    )  # fmt: skip
    return msgspec.structs.replace(quiet, launches=launches)


def bad(**changes: object) -> Fitness:
    return msgspec.structs.replace(QUIET, **changes)


def swapped(result: HarnessResult) -> HarnessResult:
    other = {"baseline": "candidate", "candidate": "baseline"}
    launches = tuple(msgspec.structs.replace(x, arm=other[x.arm]) for x in result.launches)
    return msgspec.structs.replace(result, launches=launches)


def test_a_quiet_run_is_fit_throughout() -> None:
    quiet = run()
    assert [unfit(launch, quiet.launches) for launch in quiet.launches] == [None] * 12
    assert invalid_positions(quiet) == frozenset()
    assert invalid_share(quiet) == 0.0


@pytest.mark.parametrize(("changes", "said"), BAD.values(), ids=BAD)
def test_each_rule_names_what_it_saw_and_voids_the_pair_alone(changes: dict[str, object], said: str) -> None:
    seen = run(l6=bad(**changes))
    sentence = unfit(seen.launches[6], seen.launches)
    assert sentence is not None
    assert sentence.startswith("Launch 6 is unfit: ")
    assert said in sentence
    launch = seen.launches[6]
    assert invalid_positions(seen) == {(launch.case, launch.quad, launch.slot // 2)}
    assert invalid_share(seen) == pytest.approx(1 / 6)


@pytest.mark.parametrize(("changes", "_"), BAD.values(), ids=BAD)
def test_a_reading_before_the_launch_counts_like_one_after_it(changes: dict[str, object], _: str) -> None:
    quiet = run()
    launch = msgspec.structs.replace(quiet.launches[3], before=bad(**changes))
    assert unfit(launch, quiet.launches) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"probe_s": 0.025 * 1.35},
        {"probe_s": 0.025 / 1.35},
        {"steal_pct": 1.9},
        {"foreign_cpu_pct": 24.0},
        {"gpu_throttle": ("idle", "sw power cap", "application clocks")},
        {"load_average": 99.0, "gpu_celsius": 90},
    ],
)
def test_ordinary_noise_is_fit(changes: dict[str, object]) -> None:
    assert invalid_positions(run(l2=bad(**changes))) == frozenset()


def test_a_box_that_lost_half_its_speed_for_a_quarter_of_the_run_is_no_instrument() -> None:
    slow = bad(probe_s=0.05)
    seen = run(l8=slow, l9=slow, l10=slow, l11=slow)
    assert len(invalid_positions(seen)) == 2
    assert invalid_share(seen) > fitness.MAX_INVALID_SHARE


@pytest.mark.parametrize(("changes", "_"), BAD.values(), ids=BAD)
def test_swapping_the_arms_changes_nothing(changes: dict[str, object], _: str) -> None:
    seen = run(l1=bad(**changes), l10=bad(**changes))
    other = swapped(seen)
    assert invalid_positions(other) == invalid_positions(seen) != frozenset()
    assert [unfit(x, other.launches) for x in other.launches] == [
        unfit(x, seen.launches) for x in seen.launches
    ]


def test_samples_do_not_enter_the_rules() -> None:
    seen = run(l5=bad(steal_pct=50.0))
    assert invalid_positions(msgspec.structs.replace(seen, samples=())) == invalid_positions(seen)


def test_what_was_not_read_speaks_against_nobody() -> None:
    unread = results.result()
    assert invalid_positions(unread) == frozenset()
    nothing = run(l4=Fitness())
    assert invalid_positions(nothing) == frozenset()


def test_a_launch_that_failed_spoils_no_pair_since_another_took_its_place() -> None:
    seen = run(l6=bad(steal_pct=50.0))
    failed = msgspec.structs.replace(
        seen.launches[6], failure=LaunchFailure(stage="load", kind="exit", detail="gone")
    )
    again = msgspec.structs.replace(seen.launches[6], launch=99, after=QUIET)
    launches = (*seen.launches[:6], failed, again, *seen.launches[7:])
    assert invalid_positions(msgspec.structs.replace(seen, launches=launches)) == frozenset()


def test_launches_outside_the_cases_belong_to_no_pair() -> None:
    seen = run()
    other = Launch(
        launch=99, arm="baseline", case="accuracy", quad=0, slot=0, started_s=0.0, duration_s=1.0,
        before=QUIET, after=bad(steal_pct=50.0),
    )  # fmt: skip
    assert invalid_positions(msgspec.structs.replace(seen, launches=(*seen.launches, other))) == frozenset()


def test_a_run_without_launches_has_no_invalid_share() -> None:
    assert invalid_share(msgspec.structs.replace(run(), launches=())) == 0.0
