"""The story: RefSpec -> Record. Check out, pin, build, measure, judge.

A run that ends early still ends in a record: what is known by then, and a verdict that says why.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from evalbot import __version__, sentences
from evalbot.build import Build, build
from evalbot.checkout import Checkout, RefSpec, checkout, resolve_base
from evalbot.config import CONFIG_FILE, HARNESS, Config, parse, policy_sha256
from evalbot.errors import BadRequest, EvalbotError, TouchesPinned
from evalbot.git import Git, GitFailed
from evalbot.listener import Listener
from evalbot.measure import find_models, load_plan, measure, models_sha256
from evalbot.pin import Pinned, PinnedTree, pin, prove
from evalbot.sandbox import Sandbox
from evalbot.score import deciding, needs_confirmation, score
from evalbot.types import RECORD_VERSION, ArmIdentity, Facts, Identity, Record, Request, Stop
from evalbot.workspace import workspace
from harness.schema import HarnessResult, ModelFiles, Policy, RunPlan

UNSANDBOXED = (
    "The change was built and run unsandboxed, as this user: score only code that you would run yourself."
)
SEED_BITS = 31


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
    run = _Evaluation(spec, listener, plan, seed)
    with workspace(keep) as directory:
        if keep:
            run.notes.append(f"The trees and requests of this run were kept in {directory}.")
        try:
            run.evaluate(repo, directory)
        except EvalbotError as error:
            run.stop(error)
    return run.record()


class _Evaluation:
    """What is known so far of one evaluation, and the stages that find out more."""

    def __init__(self, spec: RefSpec, listener: Listener, plan: str | None, seed: int | None) -> None:
        self.spec, self.listener, self.plan_name, self.seed = spec, listener, plan, seed
        self.created_at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.sandbox = Sandbox()
        self.policy = Policy()
        self.identity = Identity()
        self.facts = Facts()
        self.runs: list[HarnessResult] = []
        self.notes: list[str] = []
        self.timings: dict[str, float] = {}

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
            plan, models = self.prepare(config, pinned.baseline)
        self.notes.append(UNSANDBOXED)
        with self.stage("build", "main"):
            baseline = build(pinned.baseline, config.engine, self.sandbox, git.object_format)
        with self.stage("build", "the merged change"):
            candidate = build(pinned.candidate, config.engine, self.sandbox, git.object_format)
        self.measure(plan, baseline, candidate, models, config, directory, git.object_format)

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
        self.facts = msgspec.structs.replace(
            self.facts, identical=pinned.identical, set_aside=pinned.set_aside
        )
        self.identity = msgspec.structs.replace(
            self.identity,
            baseline=_arm_identity(pinned.baseline, config),
            candidate=_arm_identity(pinned.candidate, config),
        )
        return pinned

    def prepare(self, config: Config, baseline: PinnedTree) -> tuple[RunPlan, tuple[ModelFiles, ...]]:
        plan = load_plan(self.plan_name or "", baseline)
        models = find_models(plan, config, baseline)
        both = models_sha256(models)
        self.identity = msgspec.structs.replace(
            self.identity,
            baseline=msgspec.structs.replace(self.identity.baseline, models_sha256=both),
            candidate=msgspec.structs.replace(self.identity.candidate, models_sha256=both),
        )
        return plan, models

    def measure(
        self,
        plan: RunPlan,
        baseline: Build,
        candidate: Build,
        models: tuple[ModelFiles, ...],
        config: Config,
        directory: Path,
        object_format: str,
    ) -> None:
        """Measure; where a gate failed, measure once more on fresh prompts before it counts."""
        seed = secrets.randbits(SEED_BITS) if self.seed is None else self.seed
        for stage, number in (("measure", seed), ("confirm", _confirmation_seed(seed))):
            with self.stage(stage, f"plan {plan.name}, seed {number}"):
                result = measure(
                    plan, number, baseline, candidate, models, config, directory / stage, self.listener.event
                )
                for arm in (baseline, candidate):
                    prove(arm.tree, object_format, "while it was measured")
            self.runs.append(result)
            if not needs_confirmation(result, self.policy, self.facts):
                return

    def stop(self, error: EvalbotError) -> None:
        self.facts = msgspec.structs.replace(self.facts, stop=Stop(cause=error.cause, sentence=str(error)))

    @contextlib.contextmanager
    def stage(self, name: str, detail: str) -> Iterator[None]:
        self.listener.stage(name, detail)
        started = time.monotonic()
        try:
            yield
        finally:
            spent = self.timings.get(name, 0.0) + time.monotonic() - started
            self.timings[name] = round(spent, 3)

    def record(self) -> Record:
        runs = tuple(self.runs)
        analysis = deciding(runs, self.policy)
        return Record(
            schema_version=RECORD_VERSION,
            created_at=self.created_at,
            evalbot_version=__version__,
            request=Request(
                head=self.spec.spelled(), base=self.spec.base, plan=self.plan_name or "", seed=self.seed
            ),
            identity=self.identity,
            policy=self.policy,
            facts=self.facts,
            runs=runs,
            measurements=analysis.measurements,
            comparisons=analysis.comparisons,
            gates=analysis.gates,
            verdict=score(runs, self.policy, self.facts),
            sandbox=self.sandbox.kind,
            notes=tuple(self.notes),
            timings=self.timings,
        )


def _arm_identity(tree: PinnedTree, config: Config) -> ArmIdentity:
    hashes = {path: found.sha256 for path, found in tree.pinned.items() if found is not None}
    return ArmIdentity(
        commit_sha=tree.commit_sha,
        tree_sha=tree.tree_sha,
        harness_sha256=hashes.get(HARNESS),
        corpus_sha256=hashes.get(config.measure.corpus),
        pinned=hashes,
    )


def _confirmation_seed(seed: int) -> int:
    """Another seed that follows from the first, so that one number reproduces both measurements."""
    drawn = hashlib.sha256(f"confirmation of {seed}".encode()).digest()
    return int.from_bytes(drawn[:8]) >> (64 - SEED_BITS)
