"""Whether numbers may be published, with a reason that names what is missing; the verdict never changes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from evalbot import calibrations, publish
from evalbot.comment import markdown
from evalbot.errors import BadRequest
from evalbot.rescore import rescore
from evalbot.types import ArmIdentity, Facts, Record
from harness.calibration import Calibration, CalibrationRun, Epoch, pooled
from harness.schema import HarnessResult, Machine, encode_json
from tests.evalbot.results import plan, run
from tests.evalbot.test_record import record_of
from tests.evalbot.test_speech import shown

HERE = Machine(hostname_sha256="h", cpu="c", cores=2, gpu="g", driver="580")
BASELINE = ArmIdentity(harness_sha256="harness", models_sha256="models")
MEASURED = "2024-04-20T10:00:00Z"
"""Eleven days before the records of ``record_of``."""


def epoch(**changes: object) -> Epoch:
    found = publish.epoch_of(BASELINE, plan(), "580")
    assert found is not None
    return msgspec.structs.replace(found, **changes)


def calibrated(
    machine: Machine = HERE, *, at: str = MEASURED, alarms: tuple[str, ...] = (), **changes: object
) -> Calibration:
    made = CalibrationRun(
        measured_at=at, kind="same", seed=1, differences={"chat:dspark": (0.01, -0.01, 0.0, 0.02)},
        false_positives=alarms,
    )  # fmt: skip
    rebuilt = msgspec.structs.replace(made, kind="rebuild", false_positives=())
    return pooled(machine, epoch(**changes), (made, rebuilt))


def run_on(machine: Machine = HERE) -> HarnessResult:
    seen = run()
    here = msgspec.structs.asdict(machine)
    return msgspec.structs.replace(seen, environment=msgspec.structs.replace(seen.environment, **here))


def record(found: Calibration | None = None, uncalibrated: str = "Never asked.", **facts: object) -> Record:
    known = Facts(calibration=found, **facts)
    builds = known.calibration.between_builds() if known.calibration else {}
    plain = record_of(msgspec.structs.replace(run_on(), between_builds=builds), facts=known)
    may, why = publish.judge(known, BASELINE, plain.runs, plain.created_at, uncalibrated)
    identity = msgspec.structs.replace(plain.identity, baseline=BASELINE)
    return msgspec.structs.replace(
        plain, identity=identity, calibration=found, publishable=may, publishable_reason=why
    )


def why_not(*stored: Calibration, machine: Machine = HERE) -> str:
    assert publish.matching(machine, epoch(), stored) is None
    return publish.why_none(machine, epoch(), stored)


def test_a_calibrated_machine_may_publish_and_says_its_noise_floor() -> None:
    found = record(calibrated())
    assert found.publishable
    assert found.publishable_reason == (
        "This machine is calibrated: 2 runs of main against itself, the latest on 2024-04-20, "
        "noise floor of DSpark decode (chat) ±2.07%."
    )


def test_a_machine_that_was_never_calibrated_is_told_the_command() -> None:
    elsewhere = calibrated(msgspec.structs.replace(HERE, hostname_sha256="other"))
    expected = "This machine has no calibration yet: run evalbot calibrate --plan fake."
    assert why_not() == why_not(elsewhere) == expected


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"harness_sha256": "x"}, "another harness"),
        ({"plan": "cpu", "plan_sha256": "x"}, "plan cpu"),
        ({"plan_sha256": "x"}, "another version of plan fake"),
        ({"driver": "570"}, "another driver"),
        ({"models_sha256": "x"}, "another model"),
        ({"harness_sha256": "x", "models_sha256": "x"}, "another harness and another model"),
    ],
)
def test_another_instrument_is_named(changes: dict[str, object], said: str) -> None:
    assert why_not(calibrated(**changes)) == (
        f"This machine's calibration of 2024-04-20 is for {said}: run evalbot calibrate --plan fake."
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cpu": "x"}, "another CPU"),
        ({"cores": 4}, "4 cores"),
        ({"gpu": None}, "another GPU"),
        ({"driver": "570"}, "another driver"),
    ],
)
def test_another_machine_under_the_same_name_is_named(changes: dict[str, object], said: str) -> None:
    assert f"is for {said}:" in why_not(calibrated(msgspec.structs.replace(HERE, **changes)))


def test_the_reason_is_taken_from_the_nearest_calibration() -> None:
    far = calibrated(at="2024-04-30T10:00:00Z", harness_sha256="x", models_sha256="x")
    near = calibrated(harness_sha256="x")
    assert "of 2024-04-20 is for another harness:" in why_not(far, near)


def test_an_expired_calibration_stays_in_the_record_but_publishes_nothing() -> None:
    found = record(calibrated(at="2024-03-20T10:00:00Z"))
    assert not found.publishable
    assert found.calibration is not None
    assert found.publishable_reason == (
        "This machine's calibration of 2024-03-20 is older than 30 days: run evalbot calibrate --plan fake."
    )


def test_a_machine_that_raised_a_false_alarm_publishes_nothing() -> None:
    found = record(calibrated(alarms=("tier XS", "ar-floor")))
    assert not found.publishable
    assert found.publishable_reason.startswith(
        "On this machine main against itself gave tier XS, ar-floor in 1 of 2 runs:"
    )


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        ({"hostname_sha256": "x"}, "another machine"),
        ({"cpu": "x"}, "another CPU"),
        ({"cores": 4}, "2 cores"),
        ({"gpu": None}, "another GPU"),
        ({"driver": "570"}, "another driver"),
    ],
)
@pytest.mark.parametrize("run", [0, 1])
def test_a_run_on_another_machine_than_the_calibrated_one_publishes_nothing(
    machine: dict[str, object], said: str, run: int
) -> None:
    here, elsewhere = run_on(), run_on(msgspec.structs.replace(HERE, **machine))
    runs = (here, elsewhere) if run else (elsewhere, here)
    known = Facts(calibration=calibrated())
    assert publish.judge(known, BASELINE, runs, "2024-05-01T10:00:00Z", "") == (
        False,
        f"This machine's calibration of 2024-04-20 is for {said}: run evalbot calibrate --plan fake.",
    )
    moved = msgspec.structs.replace(record(calibrated()), runs=(elsewhere,))
    with pytest.raises(BadRequest, match="being publishable"):
        rescore(moved)


def test_a_calibration_of_another_instrument_publishes_nothing() -> None:
    for changes in ({"driver": "570"}, {"harness_sha256": "x"}, {"plan_sha256": "x"}, {"models_sha256": "x"}):
        found = record(calibrated(**changes))
        assert not found.publishable
        assert "is for another" in found.publishable_reason


def test_without_a_rebuild_nobody_knows_what_builds_differ_by_and_nothing_is_published() -> None:
    found = calibrated()
    same = pooled(HERE, epoch(), [made for made in found.runs if made.kind == "same"])
    assert (record(same).publishable, record(same).publishable_reason) == (
        False,
        "This machine's calibration of 2024-04-20 has no run against a rebuild: "
        "run evalbot calibrate --runs 2 --plan fake.",
    )


@pytest.mark.parametrize("differences", [{"chat:dspark": (0.01,)}, {"chat:ar": (0.01, -0.01)}])
def test_without_a_noise_floor_of_the_scored_axis_nothing_is_published(
    differences: dict[str, tuple[float, ...]],
) -> None:
    made = [msgspec.structs.replace(each, differences=differences) for each in calibrated().runs]
    found = record(pooled(HERE, epoch(), made))
    assert (found.publishable, found.publishable_reason) == (
        False,
        "This machine's calibration of 2024-04-20 knows no noise floor of DSpark decode (chat): "
        "run evalbot calibrate --plan fake.",
    )


def test_an_emulated_run_publishes_nothing() -> None:
    assert record(calibrated(), emulated=True).publishable_reason == "Emulated: no engine was measured."


def test_without_a_measurement_there_is_nothing_to_publish() -> None:
    assert publish.judge(Facts(), BASELINE, (), "2024-05-01T10:00:00Z", "") == (
        False,
        "Nothing was measured.",
    )


def test_being_publishable_never_changes_the_verdict() -> None:
    verdicts = {
        encode_json(record(found).verdict) for found in (None, calibrated(), calibrated(alarms=("x",)))
    }
    assert len(verdicts) == 1


def test_a_report_says_it_in_one_sentence() -> None:
    for found in (record(), record(calibrated())):
        word = "Publishable." if found.publishable else "Not publishable."
        flat = " ".join(shown(found, 100).split())
        assert flat.count(f"{word} {found.publishable_reason}") == 1
        assert markdown(found).replace("\\", "").count(f"{word} {found.publishable_reason}") == 1


def test_a_record_is_judged_again_with_its_own_calibration() -> None:
    for found in (record(), record(calibrated()), record(calibrated(alarms=("x",)))):
        assert rescore(found) == found.verdict


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"publishable": False}, "being publishable"),
        ({"publishable_reason": "This machine is calibrated."}, "being publishable"),
        ({"calibration": None}, "two different calibrations"),
        (
            {"identity": msgspec.structs.replace(record().identity, baseline=ArmIdentity())},
            "being publishable",
        ),
    ],
)
def test_a_record_that_says_otherwise_is_noticed(changes: dict[str, object], said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        rescore(msgspec.structs.replace(record(calibrated()), **changes))


def test_figures_that_do_not_follow_from_the_runs_are_noticed() -> None:
    found = calibrated()
    quieter = msgspec.structs.replace(
        found, axes=tuple(msgspec.structs.replace(axis, noise_floor_pct=0.01) for axis in found.axes)
    )
    with pytest.raises(BadRequest, match="not what its own runs give"):
        rescore(record(quieter))


def test_a_record_without_calibration_cannot_claim_to_be_publishable() -> None:
    with pytest.raises(BadRequest, match="being publishable"):
        rescore(msgspec.structs.replace(record(), publishable=True))


def test_calibrations_are_kept_pooled_and_listed_latest_first() -> None:
    made = calibrated().runs[0]
    later = msgspec.structs.replace(made, measured_at="2024-04-25T10:00:00Z", kind="rebuild")
    calibrations.add(HERE, epoch(), [made])
    calibrations.add(HERE, epoch(), [later])
    calibrations.add(HERE, epoch(plan="other"), [made])
    first, second = calibrations.stored()
    assert encode_json(first) == encode_json(pooled(HERE, epoch(), (made, later)))
    assert second.epoch.plan == "other"


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff"])
def test_a_file_that_is_no_calibration_calibrates_nothing(content: bytes) -> None:
    calibrations.directory().mkdir(parents=True)
    Path(calibrations.directory() / "broken.json").write_bytes(content)
    assert calibrations.stored() == ()
