"""Whether a verdict may be published: that needs main's own judge and a calibration that holds. Pure.

This never changes a verdict: locally every verdict stands as it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime

from evalbot import sentences
from evalbot.types import ArmIdentity, Facts
from harness import compare
from harness.calibration import Calibration, Epoch, key_of
from harness.schema import Environment, HarnessResult, Machine, RunPlan, encode_json

STRANGER = "The judge is not main's: install evalbot from main and score again."


def epoch_of(baseline: ArmIdentity, plan: RunPlan, driver: str | None) -> Epoch | None:
    """The instrument that measures ``plan``; None before its harness and models are known."""
    if baseline.harness_sha256 is None or baseline.models_sha256 is None:
        return None
    return Epoch(
        harness_sha256=baseline.harness_sha256,
        plan=plan.name,
        plan_sha256=hashlib.sha256(encode_json(plan)).hexdigest(),
        models_sha256=baseline.models_sha256,
        driver=driver,
    )


def machine_of(seen: Environment) -> Machine:
    """The machine that a run was made on, as its manager saw it."""
    return Machine(
        hostname_sha256=seen.hostname_sha256, cpu=seen.cpu, cores=seen.cores, gpu=seen.gpu, driver=seen.driver
    )


def matching(machine: Machine, epoch: Epoch, stored: Iterable[Calibration]) -> Calibration | None:
    """The calibration of this machine under this instrument, however old."""
    key = key_of(machine, epoch)
    return next((calibration for calibration in stored if calibration.key == key), None)


def why_none(machine: Machine, epoch: Epoch, stored: Iterable[Calibration]) -> str:
    """Why no calibration matches, by the one that comes nearest: what it was made for instead."""
    ours = [made for made in stored if made.machine.hostname_sha256 == machine.hostname_sha256]
    if not ours:
        return sentences.uncalibrated(epoch.plan)
    # The first of equally near ones is the latest.
    nearest = min(ours, key=lambda calibration: len(differences(machine, epoch, calibration)))
    return sentences.calibrated_for(differences(machine, epoch, nearest), nearest.measured_at, epoch.plan)


def differences(machine: Machine, epoch: Epoch, calibration: Calibration) -> tuple[str, ...]:
    """What was another one when ``calibration`` was made."""
    then, instrument = calibration.machine, calibration.epoch
    compared = (
        ("another harness", instrument.harness_sha256 != epoch.harness_sha256),
        (f"plan {instrument.plan}", instrument.plan != epoch.plan),
        (
            f"another version of plan {epoch.plan}",
            instrument.plan == epoch.plan and instrument.plan_sha256 != epoch.plan_sha256,
        ),
        ("another driver", (then.driver, instrument.driver) != (machine.driver, epoch.driver)),
        ("another model", instrument.models_sha256 != epoch.models_sha256),
        ("another CPU", then.cpu != machine.cpu),
        (f"{then.cores} cores", then.cores != machine.cores),
        ("another GPU", then.gpu != machine.gpu),
    )
    return tuple(name for name, differs in compared if differs)


def judge(
    facts: Facts,
    baseline: ArmIdentity,
    runs: tuple[HarnessResult, ...],
    created_at: str,
    uncalibrated: str,
) -> tuple[bool, str]:
    """Whether the numbers may be published, and why (not). ``uncalibrated``: why no calibration matches.

    Where there is a calibration, all follows from the arguments: it must be of the machine and instrument of
    every run, without a false alarm, young enough, and know builds and noise of the scored DSpark axis.
    """
    if facts.emulated:
        return False, sentences.EMULATED
    if not runs:
        return False, sentences.NOTHING_TO_PUBLISH
    if facts.stranger is not None:
        return False, STRANGER
    found = facts.calibration
    if found is None:
        return False, uncalibrated
    made_for = next(filter(None, (_made_for(found, baseline, run) for run in runs)), ())
    if made_for:
        return False, sentences.calibrated_for(made_for, found.measured_at, runs[-1].plan.name)
    if found.false_positives:
        names = [name for run in found.runs for name in run.false_positives]
        return False, sentences.false_positives(found.false_positives, len(found.runs), names)
    if found.expired(datetime.fromisoformat(created_at)):
        return False, sentences.expired(found.measured_at, found.epoch.plan)
    case = compare.scored_case(runs[-1])
    name = None if case is None else compare.axis(case.name, "dspark")
    axis = None if name is None else found.axis(name)
    if axis is None or axis.noise_floor_pct is None:
        return False, sentences.noise_unknown(found.measured_at, name, found.epoch.plan)
    if not axis.rebuilds:
        return False, sentences.no_rebuild(found.measured_at, found.epoch.plan)
    return True, sentences.calibrated(found.measured_at, len(found.runs), axis)


def _made_for(found: Calibration, baseline: ArmIdentity, run: HarnessResult) -> tuple[str, ...]:
    """What the calibration was made for instead of the machine and instrument of ``run``."""
    here = machine_of(run.environment)
    if found.machine.hostname_sha256 != here.hostname_sha256:
        return ("another machine",)
    epoch = epoch_of(baseline, run.plan, here.driver)
    return ("another harness",) if epoch is None else differences(here, epoch, found)
