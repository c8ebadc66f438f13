"""HarnessResults + Policy + Facts -> Verdict. Pure: the same record always gets the same verdict.

The order of the questions is the order of DESIGN's outcomes by severity of being wrong: our own faults
first, so that none of them can be charged to a change; then whether the candidate ran at all; then
gates; only then speed. ``reduce`` turns a run into what is judged, ``decide`` judges it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from evalbot import sentences
from evalbot.errors import Cause
from evalbot.label import label_for
from evalbot.types import Analysis, Facts, Outcome, Verdict
from harness import compare, fitness, gates, sequential, whole
from harness.schema import Arm, Case, Comparison, GateResult, HarnessResult, Interval, LaunchFailure, Policy
from harness.sequential import Tier

CORRECTNESS = frozenset({"losslessness", "ar-tokens", "accuracy"})
"""Gates that only wrong output fails."""
NOISE_FREE = CORRECTNESS | {"tau-floor", "accepted-floor"}
"""Gates that hold no time, so that no state of the machine can fail them."""
FATAL_FAILURES = 2
"""A worker that fails once may have met bad luck; the second time it is the build."""


@dataclass(frozen=True)
class Fault:
    """Why a run cannot be judged by its numbers.

    ``counts_stand``: both arms ran under one override, which explains times and no difference in counts.
    """

    outcome: Outcome
    reason: str
    axis: str | None = None
    counts_stand: bool = False


@dataclass(frozen=True)
class Seen:
    """One run as it is judged.

    ``failed``: failed gates, the worst first. ``headline``: the one axis that can earn a tier, None where it
    was not measured. ``absent``: axes that were due and lack a value on either arm. ``unfit``: the machine
    was not fit to time anything on. ``gaps``: axes that lack a value in some launches. ``broken``: what the
    run lacks of its plan, or holds twice.
    """

    gates: tuple[GateResult, ...]
    failed: tuple[GateResult, ...] = ()
    headline: Comparison | None = None
    fault: Fault | None = None
    absent: tuple[str, ...] = ()
    unfit: str | None = None
    gaps: tuple[str, ...] = ()
    broken: str | None = None


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


def reduce(run: HarnessResult, policy: Policy) -> Seen:
    """A run into what is judged of it."""
    seen = analyse(run, policy)
    failed, unfit = _failed(run, seen), _unfit(run)
    if unfit is not None:
        failed = tuple(gate for gate in failed if gate.name in NOISE_FREE)
    return Seen(
        gates=seen.gates,
        failed=failed,
        unfit=unfit,
        headline=compare.headline(seen.comparisons, run),
        fault=_fault(run, seen),
        absent=missing(run, seen),
        gaps=gaps(run),
        broken=whole.fault(run, _spared(run, seen)),
    )


def standing(seen: Seen) -> Seen:
    """The run without a fault that its failed counts outlive: what fell under an override that both arms had
    fell by the change. Only that failure stands; no speed is read from such a run.
    """
    counts = tuple(gate for gate in seen.failed if gate.name in NOISE_FREE)
    if seen.fault is None or not seen.fault.counts_stand or not counts:
        return seen
    return replace(seen, fault=None, failed=counts)


def needs_confirmation(run: HarnessResult, policy: Policy, facts: Facts) -> bool:
    """Whether a second, fresh measurement is due: a gate failed and nothing else explains it."""
    seen = standing(reduce(run, policy))
    explained = facts.identical or seen.fault is not None or seen.broken is not None or seen.absent
    return bool(seen.failed) and not explained


def score(runs: tuple[HarnessResult, ...], policy: Policy, facts: Facts) -> Verdict:
    """The verdict. ``runs`` holds the first measurement and, where one was due, its confirmation."""
    return decide(tuple(reduce(run, policy) for run in runs), policy, facts)


def decide(seen: tuple[Seen, ...], policy: Policy, facts: Facts) -> Verdict:
    """The verdict over one or two runs."""
    judge = _Judge(policy, facts)
    seen = tuple(map(standing, seen))
    if facts.stop is not None:
        outcome: Outcome = "build-failed" if facts.stop.cause == "build-failed" else "error"
        return judge.say(outcome, facts.stop.sentence, cause=facts.stop.cause)
    if facts.set_aside and facts.identical and not seen:
        return judge.say("none", sentences.set_aside_only(facts.set_aside))
    if not seen:
        return judge.say("error", sentences.unmeasured(()))
    fault = next((run.fault for run in seen if run.fault is not None), None)
    if fault is not None:
        return judge.say(fault.outcome, fault.reason, axis=fault.axis)
    first, last = seen[0], seen[-1]
    absent = tuple(dict.fromkeys(axis for run in seen for axis in run.absent))
    if absent:
        return judge.say("error", sentences.unmeasured(absent, next(iter(first.failed), None)))
    broken = next((run.broken for run in seen if run.broken is not None), None)
    if broken is not None:
        return judge.say("error", sentences.not_whole(broken))
    if facts.identical:
        wrong = next((gate for gate in first.failed if gate.name in CORRECTNESS), None)
        if wrong is not None:
            # Equal trees that disagree with themselves: main is not a valid denominator.
            return judge.say("error", sentences.unscorable(wrong), axis=wrong.name)
        return judge.identical(last.headline)
    unfit = next((run.unfit for run in seen if run.unfit is not None), None)
    if first.failed and (last.failed or unfit is None):
        return judge.failed(seen)
    if unfit is not None:
        return judge.say("error", unfit, axis="environment")
    holes = tuple(dict.fromkeys(axis for run in seen for axis in run.gaps))
    if holes:
        return judge.say("error", sentences.gaps(holes), axis=holes[0])
    if last.headline is None:
        return judge.say("error", sentences.unmeasured(()))
    return judge.speed(last.headline, tuple(g for run in seen for g in run.gates if g.state != "PASS"))


def missing(run: HarnessResult, seen: Analysis) -> tuple[str, ...]:
    """Axes that were due and lack a value on either arm. An incomplete run judges nobody.

    What a failed gate made superfluous was not due, if the gate does fail by the run's own samples.
    """
    spared = _spared(run, seen)
    wanted = [
        compare.axis(case.name, kind)
        for case in run.plan.cases
        if case.name not in spared
        for kind in _kinds(case)
    ]
    absent = [
        axis
        for axis in wanted
        if any(compare.value_of(seen.measurements, axis, arm) is None for arm in compare.ARMS)
    ]
    accuracy = run.plan.accuracy
    if accuracy is not None and "accuracy" not in spared and len(run.accuracy) < accuracy.windows:
        absent.append("accuracy")
    return tuple(absent)


def _spared(run: HarnessResult, seen: Analysis) -> tuple[str, ...]:
    """What an early end left out, where the gate that it names does fail by the run's own samples."""
    failed = {gate.name for gate in seen.gates if gate.state == "FAIL"}
    return run.settled.not_run if run.settled is not None and run.settled.gate in failed else ()


def gaps(run: HarnessResult) -> tuple[str, ...]:
    """Axes with a value in some launches but not in all: whoever leaves one out would choose what counts."""
    return tuple(
        compare.axis(case.name, kind)
        for case in run.plan.cases
        for kind in _kinds(case)
        if kind in compare.RATES and compare.gaps(run, case.name, kind)
    )


def _kinds(case: Case) -> tuple[str, ...]:
    counts = ("tau", "accepted") if "dspark" in case.modes else ()
    return (*case.modes, *counts, *(("prefill",) if "prefill" in case.metrics else ()))


def _fault(run: HarnessResult, seen: Analysis) -> Fault | None:
    if run.error is not None:
        return Fault("error", sentences.stopped(run.error))
    ours = _failures(run, "baseline") + _failures(run, "baseline", unfit=True)
    if len(ours) >= FATAL_FAILURES:
        return Fault("error", sentences.baseline_launch_failed(ours[-1].stage, ours[-1].detail, len(ours)))
    theirs = _failures(run, "candidate")
    unfit = _failures(run, "candidate", unfit=True)
    if len(theirs) < FATAL_FAILURES <= len(theirs) + len(unfit):
        return Fault("error", sentences.failed_on_unfit(unfit[-1].detail), "environment")
    if len(theirs) >= FATAL_FAILURES:
        return Fault(
            "build-failed", sentences.launch_failed(theirs[-1].stage, theirs[-1].detail, len(theirs))
        )
    for gate in seen.gates:
        if gate.state == "FAIL" and gate.name in gates.UNSCORABLE:
            shared = gate.name == gates.CONFIGURATION and gates.shared_override(run)
            return Fault("error", sentences.unscorable(gate), gate.name, counts_stand=shared)
    return None


def _unfit(run: HarnessResult) -> str | None:
    share = fitness.invalid_share(run)
    if share <= fitness.MAX_INVALID_SHARE:
        return None
    reasons = (fitness.unfit(launch, run.launches) for launch in run.launches)
    example = next(reason for reason in reasons if reason is not None)
    return sentences.environment(share, fitness.MAX_INVALID_SHARE, example)


def _failures(run: HarnessResult, arm: Arm, unfit: bool = False) -> list[LaunchFailure]:
    """Failures of an arm on a machine that was fit, or of those where it was not: they are nobody's fault."""
    return [
        launch.failure
        for launch in run.launches
        if launch.arm == arm
        and launch.failure is not None
        and (fitness.unfit(launch, run.launches) is not None) == unfit
    ]


def _failed(run: HarnessResult, seen: Analysis) -> tuple[GateResult, ...]:
    """Failed gates, the worst first: wrong output before slow, and among ratios the smallest."""

    def ratio(gate: GateResult) -> float:
        axis = gate_axis(gate.name, run)
        found = compare.find(seen.comparisons, axis) if axis else None
        return round(found.ratio, 9) if found else 0.0

    # The sort is stable: gates that hold no ratio keep the order in which they are judged.
    return tuple(sorted((gate for gate in seen.gates if gate.state == "FAIL"), key=ratio))


def gate_axis(gate: str, run: HarnessResult) -> str | None:
    """The comparison that a floor or a guard judges; None for gates that judge no ratio."""
    scored = compare.scored_case(run)
    if gate.endswith("-floor") and scored is not None:
        return compare.axis(scored.name, gate.removesuffix("-floor"))
    if gate.startswith("guard:"):
        _, name, metric = gate.split(":")
        case = next((case for case in run.plan.cases if case.name == name), None)
        if case is not None and metric in case.metrics:
            return compare.axis(name, next(gates.guarded_kind(case, m) for m in case.metrics if m == metric))
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
        found = _Percentages.of(compared)
        return Verdict(
            outcome=outcome,
            tier=tier,
            label=label_for(outcome, tier, cause, self.facts.label_prefix),
            reason=reason,
            advice=sentences.ADVICE[outcome],
            axis=axis,
            gain_pct=found.gain,
            interval_pct=found.interval,
            bounds_pct=found.bounds,
            smallest_effect_pct=found.smallest,
        )

    def identical(self, headline: Comparison | None) -> Verdict:
        """Two equal trees: no number can make a difference of them."""
        said = sentences.compared(headline) if headline else None
        return self.say("none", sentences.identical(said), compared=headline)

    def failed(self, seen: tuple[Seen, ...]) -> Verdict:
        """A gate failed in the first run: only a second failure of the same gate rejects."""
        worst = seen[0].failed[0]
        if len(seen) < 2:
            return self.say("inconclusive", sentences.unconfirmed(worst, None), axis=worst.name)
        names = {gate.name for gate in seen[0].failed}
        again = [gate for gate in seen[1].failed if gate.name in names]
        if not again:
            second = next((gate for gate in seen[1].gates if gate.name == worst.name), None)
            return self.say("inconclusive", sentences.unconfirmed(worst, second), axis=worst.name)
        return self.say("reject", sentences.rejected(again[0], len(again) - 1), axis=again[0].name)

    def speed(self, headline: Comparison, undecided: tuple[GateResult, ...]) -> Verdict:
        """Nothing to reject: how large is the effect, and is it proven? ``undecided``: of any run."""
        found = _Percentages.of(headline)
        if headline.unstable:
            reason = sentences.unstable(headline)
            return self.say("inconclusive", reason, axis=headline.name, compared=headline)
        if undecided or found.bounds is None:
            reason = sentences.unproven(headline, undecided)
            return self.say("inconclusive", reason, axis=headline.name, compared=headline)
        tier = sequential.earned_tier(headline, self.policy)
        if tier is not None:
            reason = sentences.improved(
                headline, tier, getattr(self.policy.tiers_pct, tier), found.bounds.low
            )
            return self.say("improved", reason, tier=tier, axis=headline.name, compared=headline)
        if sequential.tier_of(found.bounds.low, self.policy) is not None:
            reason = sentences.unaudited(headline)
            return self.say("inconclusive", reason, axis=headline.name, compared=headline)
        if sequential.below_tiers(headline, self.policy):
            reason = sentences.below_tiers(headline, found.bounds.high, self.policy.tiers_pct.XS)
            return self.say("none", reason, compared=headline)
        reason = sentences.unproven(headline, ())
        return self.say("inconclusive", reason, axis=headline.name, compared=headline)


@dataclass(frozen=True)
class _Percentages:
    """A comparison in percent of main: gain, 95 % interval, bounds over all looks, smallest effect."""

    gain: float | None = None
    interval: Interval | None = None
    bounds: Interval | None = None
    smallest: float | None = None

    @classmethod
    def of(cls, compared: Comparison | None) -> _Percentages:
        if compared is None:
            return cls()
        smallest = compared.smallest_effect
        return cls(
            gain=100 * (compared.ratio - 1),
            interval=_percent(compared.interval),
            bounds=_percent(compared.bounds),
            smallest=None if smallest is None else 100 * smallest,
        )


def _percent(bounds: Interval | None) -> Interval | None:
    return None if bounds is None else sentences.in_percent(bounds)
