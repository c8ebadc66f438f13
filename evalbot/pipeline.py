"""The story: RefSpec -> Record. Check out, pin, build, measure, judge.

A run that ends early still ends in a record: what is known by then, and a verdict that says why.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from evalbot import calibrations, publish, sentences
from evalbot.account import Account
from evalbot.build import build
from evalbot.checkout import Checkout, RefSpec, checkout, resolve_base
from evalbot.config import CONFIG_FILE, HARNESS, Config, parse, policy_sha256
from evalbot.errors import BadRequest, EvalbotError, TouchesPinned
from evalbot.git import Git, GitFailed
from evalbot.judge import stranger
from evalbot.listener import Listener
from evalbot.measure import find_models, load_plan, measure, models_sha256
from evalbot.pin import Pinned, PinnedTree, pin, prove
from evalbot.types import ArmIdentity, Facts, Record
from evalbot.workspace import workspace
from harness import environment
from harness.schema import HarnessResult, ModelFiles, RunPlan

UNSANDBOXED = (
    "The change was built and run unsandboxed, as this user: score only code that you would run yourself."
)


def evaluate(
    repo: Path,
    spec: RefSpec,
    listener: Listener,
    *,
    plan: str | None = None,
    seed: int | None = None,
    keep: bool = False,
) -> Record:
    """Score ``spec`` of the repository ``repo``.

    Never raises EvalbotError: it becomes the record's verdict. ``plan`` defaults to the base's own
    default, ``seed`` to one drawn after the build. ``keep`` leaves the run's directory behind.
    """
    run = Evaluation(spec, listener, plan, seed)
    with workspace(keep) as directory:
        if keep:
            run.notes.append(f"The trees of this run were kept in {directory}.")
        try:
            run.evaluate(repo, directory)
        except EvalbotError as error:
            run.stop(error)
    return run.record(spec.spelled(), spec.base)


class Evaluation(Account):
    """The stages, each of which finds out more."""

    def __init__(self, spec: RefSpec, listener: Listener, plan: str | None, seed: int | None) -> None:
        super().__init__(listener, plan, seed)
        self.spec = spec

    def evaluate(self, repo: Path, directory: Path) -> None:
        """The stages in order. Any EvalbotError ends the story."""
        with self.stage("check out", f"{self.spec.spelled()} onto {self.spec.base}"):
            git = Git(repo, directory)
            config, found = self.check_out(git)
        with self.stage("pin", "main's harness and corpus over both trees"):
            pinned = self.pin(git, found, config, directory)
        if self.facts.set_aside and self.facts.identical:
            return
        if self.facts.set_aside:
            raise TouchesPinned(sentences.touches_pinned(self.facts.set_aside))
        with self.stage("plan", "models and cases"):
            plan, models = self.prepare(config, pinned.baseline.path)
            self.look_up_calibration(plan)
        self.notes.append(UNSANDBOXED)
        with self.stage("build", "main"):
            baseline = build(pinned.baseline, config.engine, self.sandbox, git.object_format)
        with self.stage("build", "the merged change"):
            candidate = build(pinned.candidate, config.engine, self.sandbox, git.object_format)

        def once(stage: str, seed: int) -> HarnessResult:
            known = self.facts.calibration
            result = measure(
                plan,
                seed,
                baseline,
                candidate,
                models,
                config,
                directory / stage,
                self.listener.event,
                known.between_builds() if known else None,
            )
            for arm in (baseline, candidate):
                prove(arm.tree, git.object_format, "while it was measured")
            return result

        self.measure(plan.name, once)

    def check_out(self, git: Git) -> tuple[Config, Checkout]:
        base_sha = resolve_base(git, self.spec.base)
        self.identity = msgspec.structs.replace(self.identity, base_sha=base_sha)
        where = f"{CONFIG_FILE} of {self.spec.base} ({base_sha[:10]})"
        try:
            text = git.run("cat-file", "blob", f"{base_sha}:{CONFIG_FILE}").stdout
        except GitFailed:
            raise BadRequest(f"There is no {where}: evalbot reads pinned paths and policy from it.") from None
        config = parse(text, where)
        self.policy = config.policy
        self.plan_name = self.plan_name or config.measure.default_plan
        self.facts = Facts(label_prefix=config.github.label_prefix)
        found = checkout(git, self.spec, base_sha)
        self.identity = msgspec.structs.replace(
            self.identity,
            head_sha=found.head_sha,
            merge_tree_sha=found.merge_tree_sha,
            policy_sha256=policy_sha256(config.policy),
        )
        if self.spec == RefSpec(base=self.spec.base) and git.text("status", "--porcelain"):
            self.notes.append(
                "The working tree has uncommitted changes; they were not scored (--worktree does)."
            )
        return config, found

    def pin(self, git: Git, found: Checkout, config: Config, directory: Path) -> Pinned:
        pinned = pin(git, found, config.repo.pinned, directory)
        found_by = stranger(pinned.baseline.path)
        if found_by is not None:
            self.notes.append(found_by)
        self.facts = msgspec.structs.replace(
            self.facts, identical=pinned.identical, set_aside=pinned.set_aside, stranger=found_by
        )
        self.identity = msgspec.structs.replace(
            self.identity,
            baseline=_arm_identity(pinned.baseline, config),
            candidate=_arm_identity(pinned.candidate, config),
        )
        return pinned

    def prepare(self, config: Config, tree: Path) -> tuple[RunPlan, tuple[ModelFiles, ...]]:
        plan = load_plan(self.plan_name or "", tree)
        models = find_models(plan, config, tree)
        both = models_sha256(models)
        self.identity = msgspec.structs.replace(
            self.identity,
            baseline=msgspec.structs.replace(self.identity.baseline, models_sha256=both),
            candidate=msgspec.structs.replace(self.identity.candidate, models_sha256=both),
        )
        return plan, models

    def look_up_calibration(self, plan: RunPlan) -> None:
        """What is known of this machine's noise under this harness, plan and models."""
        machine, stored = environment.machine(), calibrations.stored()
        epoch = publish.epoch_of(self.identity.baseline, plan, machine.driver)
        assert epoch is not None, "the trees are pinned and the models found"
        found = publish.matching(machine, epoch, stored)
        self.facts = msgspec.structs.replace(self.facts, calibration=found)
        if found is None:
            self.uncalibrated = publish.why_none(machine, epoch, stored)


def _arm_identity(tree: PinnedTree, config: Config) -> ArmIdentity:
    hashes = {path: found.sha256 for path, found in tree.pinned.items() if found is not None}
    return ArmIdentity(
        commit_sha=tree.commit_sha,
        tree_sha=tree.tree_sha,
        harness_sha256=hashes.get(HARNESS),
        corpus_sha256=hashes.get(config.measure.corpus),
        pinned=hashes,
    )
