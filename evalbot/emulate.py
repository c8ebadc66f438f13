"""A scenario instead of two builds -> Record: the real manager, statistics and verdict, and no engine.

Main's own installed harness measures two emulated arms (``harness.emulator``). Nothing is checked out or
built, so the record has no identity and says so.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import msgspec

from evalbot import sentences
from evalbot.account import Account
from evalbot.config import CONFIG_FILE, Config, parse
from evalbot.demo import PROJECT
from evalbot.errors import BadRequest, EvalbotError
from evalbot.listener import Listener
from evalbot.measure import ask, find_models, load_plan
from evalbot.types import Record
from evalbot.workspace import workspace
from harness import schedule
from harness.scenario import DRAFT_SHA256, TARGET_SHA256, Scenario, ScenarioError, read
from harness.schema import Arm, ArmSource, HarnessResult, ModelFiles, Policy, RunPlan, RunRequest

DEFAULT_PLAN = "emulator"
BASE = "main, emulated"


def emulate(
    scenario: Path,
    listener: Listener,
    *,
    plan: RunPlan | str | None = None,
    policy: Policy | None = None,
    seed: int | None = None,
    keep: bool = False,
) -> Record:
    """Score the two arms of ``scenario``. Never raises EvalbotError: it becomes the record's verdict.

    ``plan`` is a plan of the harness by name, or one made for the occasion; ``policy`` is by default that of
    the checkout.
    """
    name = plan.name if isinstance(plan, RunPlan) else plan or DEFAULT_PLAN
    run = _Emulation(listener, name, seed)
    with workspace(keep) as directory:
        if keep:
            run.notes.append(f"The scenario of this run was kept in {directory}.")
        try:
            run.emulate(scenario, plan if isinstance(plan, RunPlan) else None, policy, directory)
        except EvalbotError as error:
            run.stop(error)
    return run.record(f"--emulate {scenario}", BASE)


class _Emulation(Account):
    """The stages of an emulated evaluation."""

    def __init__(self, listener: Listener, plan: str, seed: int | None) -> None:
        super().__init__(listener, plan, seed)
        self.facts = msgspec.structs.replace(self.facts, emulated=True)

    def emulate(self, file: Path, given: RunPlan | None, policy: Policy | None, directory: Path) -> None:
        with self.stage("plan", "scenario and cases"):
            scenario = _scenario(file)
            self.notes.append(sentences.emulated(file.name, scenario.description))
            # The emulator reads the scenario in each launch: an edit meanwhile must not reach a run.
            frozen = Path(shutil.copyfile(file, directory / "scenario.toml"))
            config = _config()
            config = msgspec.structs.replace(config, policy=policy or config.policy)
            self.policy, label = config.policy, config.github.label_prefix
            self.facts = msgspec.structs.replace(self.facts, label_prefix=label)
            plan = given or load_plan(self.plan_name or DEFAULT_PLAN, PROJECT)
            models = _models(plan, config)

        def once(stage: str, seed: int) -> HarnessResult:
            asked = request(plan, seed, frozen, models, config)
            return ask(asked, PROJECT, directory / stage, config.measure.timeout_s, self.listener.event)

        self.measure(plan.name, once)


def request(
    plan: RunPlan, seed: int, scenario: Path, models: tuple[ModelFiles, ...], config: Config
) -> RunRequest:
    """What the manager is asked: two workers that differ in the arm whose part they play."""
    planned = sum(count for count, _ in schedule.launches(plan).values())

    def source(arm: Arm) -> ArmSource:
        played = (str(scenario), arm, str(seed), str(planned))
        worker = (sys.executable, "-m", "harness.emulator", *played)
        return ArmSource(arm=arm, tree=str(PROJECT), worker=worker, commit_sha="emulated", emulated=True)

    return RunRequest(
        plan=plan,
        seed=seed,
        baseline=source("baseline"),
        candidate=source("candidate"),
        models=models,
        corpus=str(PROJECT / config.measure.corpus),
        policy=config.policy,
        watch=False,
    )


def _scenario(file: Path) -> Scenario:
    try:
        return read(file)
    except ScenarioError as error:
        raise BadRequest(str(error)) from None


def _config() -> Config:
    """The configuration that lies beside the installed evalbot."""
    try:
        text = (PROJECT / CONFIG_FILE).read_bytes()
    except OSError:
        raise BadRequest(
            f"There is no {CONFIG_FILE} in {PROJECT}: a scenario is measured by the harness and corpus of a "
            "checkout, so install evalbot from one (make setup)."
        ) from None
    return parse(text, f"{CONFIG_FILE} of {PROJECT}")


def _models(plan: RunPlan, config: Config) -> tuple[ModelFiles, ...]:
    """Models of the plan, of which only the tokenizer is used: none is fetched for that."""
    for case in plan.cases:
        source = config.models.get(case.model)
        if source is not None and source.fetch:
            raise BadRequest(
                f"Plan {plan.name} measures {case.model}, which would have to be fetched, and no engine "
                f"would load it: emulate with --plan {DEFAULT_PLAN}."
            )
    return tuple(
        msgspec.structs.replace(model, target_sha256=TARGET_SHA256, draft_sha256=DRAFT_SHA256)
        for model in find_models(plan, config, PROJECT)
    )
