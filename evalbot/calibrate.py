"""Main against itself -> Calibration: how noisy this machine is under this instrument.

Runs alternate between one build against itself, which shows the noise of launches, and that build against a
fresh rebuild of the same source in another directory, which also shows what builds differ by. The trees are
identical by intention, so the runs are judged as if they were not: whatever they find is a false alarm.
"""

from __future__ import annotations

import dataclasses
import secrets
import statistics
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from evalbot import calibrations, publish, sentences
from evalbot.account import SEED_BITS
from evalbot.build import Build, build
from evalbot.checkout import Checkout, RefSpec
from evalbot.config import Config
from evalbot.errors import BaselineBroken, InfraError
from evalbot.git import Git
from evalbot.listener import Listener
from evalbot.measure import measure
from evalbot.pin import Pinned, PinnedTree, pin, prove
from evalbot.pipeline import Evaluation
from evalbot.score import score
from evalbot.types import Facts
from evalbot.workspace import workspace
from harness import compare, environment, fitness, gates
from harness.calibration import Calibration, CalibrationRun
from harness.schema import HarnessResult, Policy

AGAINST = {"same": "one build against itself", "rebuild": "a build against a rebuild"}


def calibrate(
    repo: Path, base: str, listener: Listener, *, plan: str | None = None, runs: int = 2
) -> Calibration:
    """Measure ``base`` of ``repo`` against itself ``runs`` times and pool that with what is kept.

    Raises EvalbotError if any run cannot be used; nothing is kept then.
    """
    with workspace() as directory:
        return _Calibration(base, listener, plan).calibrate(repo, runs, directory)


class _Calibration(Evaluation):
    """The stages of an evaluation with the base in both places."""

    def __init__(self, base: str, listener: Listener, plan: str | None) -> None:
        super().__init__(RefSpec(head=base, base=base), listener, plan, None)

    def calibrate(self, repo: Path, runs: int, directory: Path) -> Calibration:
        with self.stage("check out", f"{self.spec.base}, twice"):
            git = Git(repo, directory)
            config, found = self.check_out(git)
        with self.stage("pin", "both trees"):
            pinned = self.pin(git, found, config, directory)
        with self.stage("plan", "models and cases"):
            plan, models = self.prepare(config, pinned.baseline.path)
        with self.stage("build", self.spec.base):
            baseline = build(pinned.baseline, config.engine, self.sandbox, git.object_format)
        rebuilds = self.rebuilds(git, found, pinned, config, directory)
        seen: list[CalibrationRun] = []
        for number in range(runs):
            kind: Literal["same", "rebuild"] = "rebuild" if number % 2 else "same"
            candidate = next(rebuilds) if kind == "rebuild" else _as_candidate(baseline)
            seed = secrets.randbits(SEED_BITS)
            with self.stage("measure", f"run {number + 1} of {runs}, {AGAINST[kind]}"):
                result = measure(
                    plan,
                    seed,
                    baseline,
                    candidate,
                    models,
                    config,
                    directory / f"run-{number}",
                    self.listener.event,
                )
                for arm in (baseline, candidate):
                    prove(arm.tree, git.object_format, "while it was measured")
            seen.append(run_of(result, kind, self.policy, datetime.now(UTC)))
        machine = environment.machine()
        epoch = publish.epoch_of(self.identity.baseline, plan, machine.driver)
        assert epoch is not None, "the trees are pinned and the models found"
        return calibrations.add(machine, epoch, seen)

    def rebuilds(
        self, git: Git, found: Checkout, pinned: Pinned, config: Config, directory: Path
    ) -> Iterator[Build]:
        """Builds of the same source, each in a directory of its own, made when they are asked for."""
        tree: PinnedTree = pinned.candidate
        number = 1
        while True:
            with self.stage("build", f"rebuild {number} of {self.spec.base}"):
                # Built as the baseline that it is, so that a failure is not called a contributor's.
                made = build(
                    dataclasses.replace(tree, arm="baseline"), config.engine, self.sandbox, git.object_format
                )
            yield _as_candidate(made)
            number += 1
            tree = pin(git, found, config.repo.pinned, directory / f"rebuild-{number}").candidate


def run_of(
    result: HarnessResult, kind: Literal["same", "rebuild"], policy: Policy, at: datetime
) -> CalibrationRun:
    """What one run of main against itself says. Pure.

    Raises BaselineBroken if main does not pass its own gates, InfraError if the machine was not fit.
    """
    if fitness.invalid_share(result) > fitness.MAX_INVALID_SHARE:
        whys = (fitness.unfit(launch, result.launches) for launch in result.launches)
        why = next(why for why in whys if why is not None)
        raise InfraError(sentences.unfit_calibration(fitness.invalid_share(result), why))
    judged = gates.judge(result, policy)
    broken = [gate for gate in judged if gate.name in gates.UNSCORABLE and gate.state != "PASS"]
    if broken:
        # A baseline that does not run has no configuration either: the cause is named first.
        raise BaselineBroken(sentences.unfit_baseline(min(broken, key=lambda gate: gate.name)))
    tier = score((result,), policy, Facts()).tier
    return CalibrationRun(
        measured_at=at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        kind=kind,
        seed=result.seed,
        differences=differences(result),
        false_positives=(
            *((f"tier {tier}",) if tier else ()),
            *(gate.name for gate in judged if gate.state == "FAIL"),
        ),
        launch_s=launch_times(result),
        looks={case.name: tuple(2 * quads for quads in case.looks) for case in result.plan.cases},
    )


def differences(result: HarnessResult) -> dict[str, tuple[float, ...]]:
    """log-ratios of the pairs of every rate that has any, by axis."""
    found = {
        compare.axis(case.name, kind): tuple(compare.pair_differences(result, case.name, kind))
        for case in result.plan.cases
        for kind in compare.RATES
    }
    return {name: pairs for name, pairs in found.items() if pairs}


def launch_times(result: HarnessResult) -> dict[str, float]:
    """Median seconds of the launches of each case that did not fail."""
    times = {
        case.name: [x.duration_s for x in result.launches if x.case == case.name and x.failure is None]
        for case in result.plan.cases
    }
    return {name: statistics.median(taken) for name, taken in times.items() if taken}


def _as_candidate(made: Build) -> Build:
    return dataclasses.replace(made, tree=dataclasses.replace(made.tree, arm="candidate"))
