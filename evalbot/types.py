"""Values that flow between the stages and into the record.

The record is one JSON document; ``evalbot schema`` prints its JSON Schema. A verdict is always
recomputable from ``runs``, ``policy`` and ``facts`` alone.
"""

from __future__ import annotations

from typing import Literal

from evalbot.errors import Cause
from harness.calibration import Calibration
from harness.schema import (
    Arm,
    Comparison,
    Frozen,
    GateResult,
    HarnessResult,
    Interval,
    Measurement,
    Policy,
)
from harness.sequential import Tier

RECORD_VERSION = 1

Outcome = Literal["improved", "none", "reject", "inconclusive", "error", "build-failed"]


class Request(Frozen):
    """What was asked for, in the user's own words."""

    head: str
    """Branch, tag or sha; ``--patch FILE`` or ``--worktree`` where one of these was given."""
    base: str
    plan: str
    seed: int | None
    """None: drawn after the build, see the runs."""


class ArmIdentity(Frozen):
    """What one arm was made of. None: the run ended before it was known."""

    commit_sha: str | None = None
    tree_sha: str | None = None
    """Git tree id of the tree as measured: pinned paths laid over, computed from disk."""
    harness_sha256: str | None = None
    corpus_sha256: str | None = None
    models_sha256: str | None = None
    pinned: dict[str, str] = {}
    """sha256 of each pinned path of the tree as measured, computed from disk."""


class Identity(Frozen):
    """What a verdict is about. Another head, base, ruler or policy is another identity."""

    schema_version: int = RECORD_VERSION
    head_sha: str | None = None
    base_sha: str | None = None
    merge_tree_sha: str | None = None
    policy_sha256: str | None = None
    baseline: ArmIdentity = ArmIdentity()
    candidate: ArmIdentity = ArmIdentity()


class Stop(Frozen):
    """Why a run ended before its measurement."""

    cause: Cause
    sentence: str


class Facts(Frozen):
    """What the judge must know beside the numbers."""

    identical: bool = False
    """Outside pinned paths the candidate's tree equals the baseline's."""
    set_aside: tuple[str, ...] = ()
    """Pinned paths that the change edits: its copies were replaced by main's."""
    stop: Stop | None = None
    label_prefix: str = "eval-dspark"
    emulated: bool = False
    """Both arms were played by the emulator: no engine was measured."""
    stranger: str | None = None
    """A sentence where the installed evalbot or harness, which judge, are not those that main pins."""
    calibration: Calibration | None = None
    """Of this machine under this instrument, however old; None where there is none."""


class Verdict(Frozen):
    """The judgement of one identity."""

    outcome: Outcome
    label: str
    reason: str
    """One sentence: axis, two numbers and a bar, or what stopped the run."""
    advice: str
    """What to do next."""
    tier: Tier | None = None
    axis: str | None = None
    """The comparison or gate that decided; None where nothing was measured."""
    gain_pct: float | None = None
    """Gain of the scored axis against main, in percent."""
    interval_pct: Interval | None = None
    bounds_pct: Interval | None = None
    """Bounds that hold at all looks together; the lower one earns the tier."""
    smallest_effect_pct: float | None = None
    """Effect in percent that this run would have told from zero with a probability of 80 %."""


class Acceptance(Frozen):
    """DSpark rounds of one case and arm, pooled. Counts are observed; what was proposed is reported."""

    case: str
    arm: Arm
    rounds: int
    committed_tokens: int
    accepted_drafts: int
    histogram: tuple[int, ...]
    """``histogram[i]`` rounds accepted ``i`` drafts."""
    proposed_drafts: int | None = None
    """None here and below: a worker counted other rounds than arrived."""
    idle_rounds: int | None = None
    """Rounds that verified no draft."""
    survival: tuple[float, ...] | None = None
    """``survival[i]``: of the rounds that proposed more than ``i`` drafts, the share that accepted more."""


class Analysis(Frozen):
    """All that follows from the runs and the policy by calculation."""

    measurements: tuple[Measurement, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    gates: tuple[GateResult, ...] = ()


class Record(Frozen):
    """One evaluation, whole."""

    schema_version: int
    created_at: str
    """UTC, ISO 8601."""
    evalbot_version: str
    request: Request
    identity: Identity
    policy: Policy
    facts: Facts
    runs: tuple[HarnessResult, ...]
    """The first measurement and, where a gate failed in it, a fresh confirmation."""
    measurements: tuple[Measurement, ...]
    comparisons: tuple[Comparison, ...]
    gates: tuple[GateResult, ...]
    verdict: Verdict
    sandbox: Literal["none", "bubblewrap"]
    notes: tuple[str, ...] = ()
    timings: dict[str, float] = {}
    """Seconds spent in each stage."""
    calibration: Calibration | None = None
    """The same as in the facts."""
    acceptance: tuple[Acceptance, ...] = ()
    """By case and arm, of the run that ``measurements`` is of."""
    definitions: dict[str, str] = {}
    """What the words of the measurements mean, a sentence each."""
    publishable: bool = False
    """Whether this machine may publish the verdict. The verdict itself is the same either way."""
    publishable_reason: str = ""
    """A sentence: why, or why not."""


EXIT_CODES: dict[Outcome, int] = {
    "improved": 0,
    "none": 0,
    "reject": 1,
    "build-failed": 1,
    "inconclusive": 3,
    "error": 4,
}
