"""HarnessResults + Policy + Facts -> Verdict. Pure: the same record always gets the same verdict.

The order of the questions is the order of DESIGN's outcomes by severity of being wrong: our own faults
first, so that none of them can be charged to a change; then whether the candidate ran at all; then
gates; only then speed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from evalbot import sentences
from evalbot.errors import Cause
from evalbot.label import label_for
from evalbot.types import Analysis, Facts, Outcome, Tier, Verdict
from harness import compare, gates
from harness.schema import Arm, Case, Comparison, GateResult, HarnessResult, Interval, LaunchFailure, Policy

TIERS: tuple[Tier, ...] = ("XS", "S", "M", "L", "XL")
CORRECTNESS = frozenset({"losslessness", "ar-tokens", "accuracy"})
"""Gates that noise cannot fail."""
FATAL_FAILURES = 2
"""A worker that fails once may have met bad luck; the second time it is the build."""


def analyse(result: HarnessResult, policy: Policy) -> Analysis:
    """Measurements, comparisons and gates of one run."""
    return Analysis(
        measurements=compare.measurements(result, policy),
        comparisons=compare.comparisons(result, policy),
        gates=gates.judge(result, policy),
    )


def deciding(runs: tuple[HarnessResult, ...], policy: Policy) -> Analysis:
    """The analysis that is shown: of the confirmation where one was made."""
    return analyse(runs[-1], policy) if runs else Analysis()


def needs_confirmation(run: HarnessResult, policy: Policy, facts: Facts) -> bool:
    """Whether a second, fresh measurement is due: a gate failed and nothing else explains it."""
    seen = analyse(run, policy)
    explained = facts.identical or _fault(run, seen) is not None or missing(run, seen)
    return not explained and bool(_failed(run, seen))


def score(runs: tuple[HarnessResult, ...], policy: Policy, facts: Facts) -> Verdict:
    """The verdict. ``runs`` holds the first measurement and, where one was due, its confirmation."""
    judge = _Judge(policy, facts)
    if facts.stop is not None:
        outcome: Outcome = "build-failed" if facts.stop.cause == "build-failed" else "error"
        return judge.say(outcome, facts.stop.sentence, cause=facts.stop.cause)
    if facts.set_aside and facts.identical and not runs:
        return judge.say("none", sentences.set_aside_only(facts.set_aside))
    if not runs:
        return judge.say("error", sentences.unmeasured(()))
    seen = [(run, analyse(run, policy)) for run in runs]
    for run, analysis in seen:
        fault = _fault(run, analysis)
        if fault is not None:
            return judge.say(fault.outcome, fault.reason, axis=fault.axis)
    absent = tuple(dict.fromkeys(axis for run, analysis in seen for axis in missing(run, analysis)))
    failed = [_failed(run, analysis) for run, analysis in seen]
    last, analysis = seen[-1]
    headline = compare.headline(analysis.comparisons, last)
    if absent or headline is None:
        return judge.say("error", sentences.unmeasured(absent, failed[0][0] if failed[0] else None))
    if facts.identical:
        wrong = next((gate for gate in failed[0] if gate.name in CORRECTNESS), None)
        if wrong is not None:
            # Equal trees that disagree with themselves: main is not a valid denominator.
            return judge.say("error", sentences.unscorable(wrong), axis=wrong.name)
        return judge.identical(headline)
    if failed[0]:
        return judge.failed(failed)
    open_gates = tuple(gate for _, each in seen for gate in each.gates if gate.state != "PASS")
    return judge.speed(headline, last, open_gates)


def missing(run: HarnessResult, seen: Analysis) -> tuple[str, ...]:
    """Axes that the plan asks for and that lack a value on either arm. An incomplete run judges nobody."""
    wanted = [compare.axis(case.name, kind) for case in run.plan.cases for kind in _kinds(case)]
    absent = [
        axis
        for axis in wanted
        if any(compare.value_of(seen.measurements, axis, arm) is None for arm in compare.ARMS)
    ]
    if run.plan.accuracy is not None and len(run.accuracy) < run.plan.accuracy.windows:
        absent.append("accuracy")
    return tuple(absent)


def _kinds(case: Case) -> tuple[str, ...]:
    counts = ("tau", "accepted") if "dspark" in case.modes else ()
    return (*case.modes, *counts, *(("prefill",) if "prefill" in case.metrics else ()))


@dataclass(frozen=True)
class _Fault:
    """Why a run cannot be judged by its numbers."""

    outcome: Outcome
    reason: str
    axis: str | None = None


def _fault(run: HarnessResult, seen: Analysis) -> _Fault | None:
    if run.error is not None:
        return _Fault("error", sentences.stopped(run.error))
    ours = _failures(run, "baseline")
    if len(ours) >= FATAL_FAILURES:
        return _Fault("error", sentences.baseline_launch_failed(ours[-1].stage, ours[-1].detail, len(ours)))
    theirs = _failures(run, "candidate")
    if len(theirs) >= FATAL_FAILURES:
        return _Fault(
            "build-failed", sentences.launch_failed(theirs[-1].stage, theirs[-1].detail, len(theirs))
        )
    for gate in seen.gates:
        if gate.state == "FAIL" and gate.name in gates.UNSCORABLE:
            return _Fault("error", sentences.unscorable(gate), gate.name)
    return None


def _failures(run: HarnessResult, arm: Arm) -> list[LaunchFailure]:
    return [launch.failure for launch in run.launches if launch.arm == arm and launch.failure is not None]


def _failed(run: HarnessResult, seen: Analysis) -> tuple[GateResult, ...]:
    """Failed gates, the worst first: wrong output before slow, and among ratios the smallest."""

    def ratio(gate: GateResult) -> float:
        axis = gate_axis(gate.name, run)
        found = compare.find(seen.comparisons, axis) if axis else None
        return found.ratio if found else 0.0

    # The sort is stable: gates that hold no ratio keep the order in which they are judged.
    return tuple(sorted((gate for gate in seen.gates if gate.state == "FAIL"), key=ratio))


def gate_axis(gate: str, run: HarnessResult) -> str | None:
    """The comparison that a floor or a guard judges; None for gates that judge no ratio."""
    scored = compare.scored_case(run)
    if gate.endswith("-floor") and scored is not None:
        return compare.axis(scored.name, gate.removesuffix("-floor"))
    if gate.startswith("guard:"):
        _, name, metric = gate.split(":")
        modes = next((case.modes for case in run.plan.cases if case.name == name), ())
        decode = "dspark" if "dspark" in modes else "ar"
        return compare.axis(name, decode if metric == "decode" else metric)
    return None


@dataclass(frozen=True)
class _Judge:
    policy: Policy
    facts: Facts

    def say(
        self,
        outcome: Outcome,
        reason: str,
        *,
        cause: Cause | None = None,
        tier: Tier | None = None,
        axis: str | None = None,
        compared: Comparison | None = None,
    ) -> Verdict:
        gain, bounds, smallest = _percentages(compared)
        return Verdict(
            outcome=outcome,
            tier=tier,
            label=label_for(outcome, tier, cause, self.facts.label_prefix),
            reason=reason,
            advice=sentences.ADVICE[outcome],
            axis=axis,
            gain_pct=gain,
            interval_pct=bounds,
            smallest_effect_pct=smallest,
        )

    def identical(self, headline: Comparison | None) -> Verdict:
        """Two equal trees: no number can make a difference of them."""
        gain, bounds, _ = _percentages(headline)
        said = sentences.compared(headline, gain, bounds) if headline and gain is not None else None
        return self.say("none", sentences.identical(said), compared=headline)

    def failed(self, failures: list[tuple[GateResult, ...]]) -> Verdict:
        """A gate failed in the first run: only a second failure of the same gate rejects."""
        first = failures[0]
        if len(failures) < 2:
            return self.say("inconclusive", sentences.unconfirmed(first, fresh=False), axis=first[0].name)
        names = {gate.name for gate in first}
        again = [gate for gate in failures[1] if gate.name in names]
        if not again:
            return self.say("inconclusive", sentences.unconfirmed(first, fresh=True), axis=first[0].name)
        return self.say("reject", sentences.rejected(again[0], len(again) - 1), axis=again[0].name)

    def speed(self, headline: Comparison, run: HarnessResult, undecided: tuple[GateResult, ...]) -> Verdict:
        """Nothing to reject: how large is the effect, and is it proven? ``undecided``: of any run."""
        gain, bounds, smallest = _percentages(headline)
        assert gain is not None
        said = sentences.compared(headline, gain, bounds)
        if undecided or bounds is None:
            reason = sentences.unproven(said, undecided, smallest)
            return self.say("inconclusive", reason, axis=headline.name, compared=headline)
        tier = self.tier(bounds.low)
        if tier is not None and _audit_agrees(headline, self.policy):
            reason = sentences.improved(said, tier, getattr(self.policy.tiers_pct, tier), bounds.low)
            return self.say("improved", reason, tier=tier, axis=headline.name, compared=headline)
        if bounds.high < self.policy.tiers_pct.XS:
            reason = sentences.below_tiers(said, bounds.high, self.policy.tiers_pct.XS)
            return self.say("none", reason, compared=headline)
        floor = self.noise_floor_pct(headline, run)
        if floor is not None and -floor <= bounds.low and bounds.high <= floor:
            return self.say("none", sentences.within_noise(said, floor), compared=headline)
        reason = sentences.unproven(said, (), smallest)
        return self.say("inconclusive", reason, axis=headline.name, compared=headline)

    def tier(self, low_pct: float) -> Tier | None:
        """The highest tier whose bar the lower bound reaches."""
        reached = [tier for tier in TIERS if low_pct >= getattr(self.policy.tiers_pct, tier)]
        return reached[-1] if reached else None

    def noise_floor_pct(self, headline: Comparison, run: HarnessResult) -> float | None:
        """What main differs from itself, capped at S: a box noisier than that cannot show equality."""
        case, _, kind = headline.name.partition(":")
        floor = compare.noise_floor(run, case, kind, self.policy.confidence)
        return None if floor is None else min(100 * math.expm1(floor), self.policy.tiers_pct.S)


def _percentages(compared: Comparison | None) -> tuple[float | None, Interval | None, float | None]:
    """Gain, its interval and the interval's half-width, in percent of main."""
    if compared is None:
        return None, None, None
    gain = 100 * (compared.ratio - 1)
    if compared.interval is None:
        return gain, None, None
    low, high = compared.interval.low, compared.interval.high
    half = math.expm1((math.log(high) - math.log(low)) / 2)
    return gain, Interval(low=100 * (low - 1), high=100 * (high - 1)), 100 * half


def _audit_agrees(headline: Comparison, policy: Policy) -> bool:
    """The sign-flip test over quads must agree, once there are quads enough that it could."""
    quads = headline.pairs // 2
    alpha = 1 - policy.confidence
    if headline.sign_flip_p is None or 2.0 ** (1 - quads) >= alpha:
        return True
    return headline.sign_flip_p < alpha
