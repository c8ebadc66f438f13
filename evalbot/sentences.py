"""What the bot says about a verdict: functions from values to text. ``harness.figures`` rounds numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable

from evalbot.types import Outcome
from harness.calibration import VALID_FOR, AxisNoise
from harness.compare import Decomposition
from harness.figures import change, changes, extra_digits, number, percent
from harness.schema import Comparison, GateResult, Interval, Settled
from harness.sequential import Tier

KINDS = {
    "dspark": "DSpark decode",
    "ar": "AR decode",
    "prefill": "prefill",
    "ttft": "time to first token",
    "round": "time per round",
    "tau": "tau",
    "accepted": "accepted drafts per round",
}

EMULATED = "Emulated: no engine was measured."
NOTHING_TO_PUBLISH = "Nothing was measured."

ADVICE: dict[Outcome, str] = {
    "improved": "Nothing to do: the gain is proven at this confidence and every gate passed.",
    "none": "Nothing to do: this says how large the effect is and is no judgement of the change.",
    "reject": "Mend what the reason names, then score again; `evalbot render RECORD` shows every gate.",
    "inconclusive": "Score again on a quiet machine, with a plan that runs more pairs (--plan).",
    "error": "This says nothing about the change: mend what the reason names and score again.",
    "build-failed": "Make the engine build and start in the merged tree, then score again.",
}


def axis_title(name: str) -> str:
    """``chat:dspark`` -> ``DSpark decode (chat)``."""
    case, _, kind = name.partition(":")
    return f"{KINDS.get(kind, kind)} ({case})" if kind else name


def compared(axis: Comparison) -> str:
    """``DSpark decode (chat) 55.00 tok/s against main's 50.00 tok/s: +10.00% [+9.20%, +10.90%], 8 pairs``."""
    spread = f" {changes(axis.interval)}" if axis.interval else ""
    extra = extra_digits([(axis.candidate, axis.baseline, change)])
    looked = f", look {axis.look} of {axis.looks}" if axis.looks > 1 else ""
    return (
        f"{axis_title(axis.name)} {number(axis.candidate, extra)} {axis.unit} against main's "
        f"{number(axis.baseline, extra)} {axis.unit}: {change(axis.ratio)}{spread}, "
        f"{axis.pairs} pairs{looked}"
    )


def in_percent(ratios: Interval) -> Interval:
    """Bounds of a ratio as bounds of the change in percent."""
    return Interval(low=100 * (ratios.low - 1), high=100 * (ratios.high - 1))


def improved(axis: Comparison, tier: Tier, bar_pct: float, low_pct: float) -> str:
    """A tier is proven by ``low_pct``, the lower bound of the gain, which reaches ``bar_pct``."""
    return (
        f"{compared(axis)}; the lower bound{_over_looks(axis)} {percent(low_pct)} reaches {tier} "
        f"(bar {percent(bar_pct)}) and every gate passed."
    )


def below_tiers(axis: Comparison, high_pct: float, bar_pct: float) -> str:
    """No tier: ``high_pct``, the upper bound of the gain, stays below ``bar_pct``."""
    return (
        f"{compared(axis)}; even the upper bound{_over_looks(axis)} {percent(high_pct)} is below XS "
        f"(bar {percent(bar_pct)}).{_could_see(axis)}"
    )


def unstable(axis: Comparison) -> str:
    """The trimmed and the plain estimates contradict each other."""
    plain = ", ".join(
        f"{change(ratio)} by the {name}"
        for name, ratio in (("plain mean of pairs", axis.mean_ratio), ("mean of quads", axis.quad_ratio))
        if ratio is not None
    )
    return f"{compared(axis)}; unstable: it is {plain}, so a few launches carry the result.{_could_see(axis)}"


def unaudited(axis: Comparison) -> str:
    """The bound earns a tier, the sign-flip test over quads does not agree."""
    # Rounded up: it must not read like the level that it lies above.
    p = "no quads" if axis.sign_flip_p is None else f"p = {math.ceil(1000 * axis.sign_flip_p) / 1000:.3f}"
    return (
        f"{compared(axis)}; the exact sign-flip test over quads does not confirm it ({p}).{_could_see(axis)}"
    )


def _over_looks(axis: Comparison) -> str:
    return f" over all {axis.looks} looks" if axis.looks > 1 else ""


def smallest(effect: float) -> str:
    """The smallest effect that a run would have seen; rounded up, so that this one would have been."""
    return percent(100 * effect, signed=False, up=True)


def _could_see(axis: Comparison) -> str:
    if axis.smallest_effect is None:
        return ""
    return (
        f" A true effect of {smallest(axis.smallest_effect)} would have been seen with a probability of 80%."
    )


def identical(comparison: str | None) -> str:
    """Nothing that is measured differs. ``comparison``: what a run read all the same, if one was made."""
    read = f" This run read {comparison}: noise of this machine." if comparison else ""
    return f"Outside pinned paths the change equals main byte for byte, so nothing measured can differ.{read}"


def set_aside_only(paths: Iterable[str]) -> str:
    """The change is to ``paths`` alone, which always come from main."""
    listed = listing(paths)
    return (
        f"Your copy of {listed} was set aside and main's was used; nothing measured differs, "
        "so there was nothing to measure."
    )


def touches_pinned(paths: Iterable[str]) -> str:
    """The change is to ``paths``, which always come from main, and to others."""
    listed = listing(paths)
    return (
        f"Not scored: the change touches {listed}, which always come from main when something is measured. "
        "Move that part to a pull request of its own."
    )


def unproven(axis: Comparison, undecided: tuple[GateResult, ...]) -> str:
    """Neither better nor equal is proven."""
    if undecided:
        reason = undecided[0].reason.removeprefix("Undecided: ").rstrip(".")
        why = f"not decided: {undecided[0].name} ({reason})"
    elif axis.bounds is not None:
        why = f"the bounds{_over_looks(axis)} {changes(axis.bounds)} reach from below XS to above it"
    else:
        why = "too few pairs for an interval"
    more = f" and {len(undecided) - 1} more" if len(undecided) > 1 else ""
    return f"{compared(axis)}; {why}{more}.{_could_see(axis)}"


def unconfirmed(first: GateResult, second: GateResult | None) -> str:
    """A gate failed once. ``second``: the same gate in a fresh measurement; None where none was made."""
    why = first.reason.rstrip(".")
    if second is None:
        return f"{first.name} failed ({why}); a failure counts only after a fresh second measurement."
    fresh = "did not fail in" if second.state == "PASS" else "was not decided by"
    return f"{first.name} failed in the first measurement ({why}) and {fresh} a fresh second one."


def failed_on_unfit(detail: str) -> str:
    """Launches of the candidate failed while the machine was not fit to be measured on."""
    return f"Nothing was judged: the candidate's worker failed on a machine that was not fit: {detail}"


def not_whole(fault: str) -> str:
    """A run lacks something that its plan asks for, or holds it twice."""
    return f"Nothing was judged, because the run is not whole: {fault}."


def gaps(axes: Iterable[str]) -> str:
    """An axis has a value in some launches and not in others."""
    listed = listing(axis_title(axis) for axis in axes)
    return (
        f"Nothing was judged: {listed} could not be timed in every launch, for the output came in one piece "
        "or not at all. An engine sends the tokens of every round as they are committed."
    )


def rejected(gate: GateResult, others: int) -> str:
    """``gate`` failed twice, and so did ``others`` more."""
    more = (
        f" {others} more gate{'s' if others > 1 else ''} failed in both measurements too." if others else ""
    )
    return f"{gate.reason.rstrip('.')}. It failed in two independent measurements.{more}"


def ended_early(settled: Settled) -> str:
    """``accepted-floor failed, so smollm2-768 was not run``."""
    were = "were" if len(settled.not_run) > 1 else "was"
    return f"{settled.gate} failed, so {listing(settled.not_run)} {were} not run"


def environment(share: float, bar: float, example: str) -> str:
    """Too many pairs of launches met a machine that was busy with something else."""
    return (
        f"Nothing was judged, because the machine was not fit to be measured on: {share:.1%} of the pairs "
        f"are invalid (bar {bar:.0%}). {example}"
    )


def unscorable(gate: GateResult) -> str:
    """``gate`` says that nothing valid was measured."""
    return (
        f"Nothing was judged, because the run itself is not valid ({gate.name}): {gate.reason.rstrip('.')}."
    )


def stopped(error: str) -> str:
    """``error``: a fault of our own, as a sentence."""
    return f"The measurement stopped: {error.rstrip('.')}. The change was not judged."


def launch_failed(stage: str, detail: str, times: int) -> str:
    """The candidate does not run. ``stage``: what its worker was last asked to do."""
    return (
        f"The candidate's worker failed {times} times, at last while it was to {stage}: {detail.rstrip('.')}."
    )


def baseline_launch_failed(stage: str, detail: str, times: int) -> str:
    """Main does not run. ``stage``: what its worker was last asked to do."""
    return (
        f"main's own worker failed {times} times, at last while it was to {stage}: {detail.rstrip('.')}. "
        "The change was not judged."
    )


def unmeasured(axes: Iterable[str], fault: GateResult | None = None) -> str:
    """``fault`` is a gate that failed in the same run, which often says why the values are missing."""
    missing = listing(axis_title(axis) for axis in axes) or "any axis"
    why = f" {fault.name} failed: {fault.reason}" if fault else ""
    return f"The run lacks {missing} on at least one arm, and an incomplete run judges nobody.{why}"


def moved_by(found: Decomposition) -> str:
    """``mostly step cost: tau -0.20% (69 rounds against 68), time per round -9.20%``."""
    return (
        f"mostly {found.attributed_to}: tau {change(found.tau_ratio)} "
        f"({found.rounds[1]} rounds against {found.rounds[0]}), time per round {change(found.round_ratio)}"
    )


def running_second(effects: Iterable[tuple[str, float]]) -> str:
    """``running second in a pair: DSpark decode -0.31%, AR decode +0.12%``; effects are relative changes."""
    listed = ", ".join(f"{KINDS[kind]} {change(1 + effect)}" for kind, effect in effects)
    return f"running second in a pair: {listed}"


def measured(seeds: tuple[int, ...]) -> str:
    """How often, and which of the measurements the tables show."""
    if len(seeds) == 1:
        return f"1 time, seed {seeds[0]}"
    return f"{len(seeds)} times, seeds {', '.join(map(str, seeds))}; the tables show the last"


def legend(confidence: float) -> str:
    """How to read the axes. n is another thing from column to column."""
    return (
        f"Brackets: {100 * confidence:g}% interval. n: launches (of tau rounds, of perplexity windows); "
        "against main, pairs of launches (of tau prompts). Could see: the smallest true effect that this run "
        "would have told from none 80 times in 100, where it proved none."
    )


def emulated(scenario: str, description: str) -> str:
    """The note of a record that a scenario was played for."""
    story = f" {scenario}: {' '.join(description.split())}" if description.strip() else ""
    return f"{EMULATED}{story or f' Both arms were played from {scenario}.'}"


def publishable(may: bool, why: str) -> str:
    """The one sentence at the foot of a report. Empty where nobody asked."""
    return f"{'Publishable' if may else 'Not publishable'}. {why}" if why else ""


def uncalibrated(plan: str) -> str:
    """No calibration of this machine was found at all."""
    return f"This machine has no calibration yet: run evalbot calibrate --plan {plan}."


def calibrated_for(differences: Iterable[str], measured_at: str, plan: str) -> str:
    """``differences``: what was another one then, as ``another harness``."""
    return (
        f"This machine's calibration of {_day(measured_at)} is for {' and '.join(differences)}: "
        f"run evalbot calibrate --plan {plan}."
    )


def expired(measured_at: str, plan: str) -> str:
    """The latest run of the calibration is too old."""
    return (
        f"This machine's calibration of {_day(measured_at)} is older than {VALID_FOR.days} days: "
        f"run evalbot calibrate --plan {plan}."
    )


def false_positives(count: int, runs: int, names: Iterable[str]) -> str:
    """``names``: tiers and gates that main against itself gave."""
    return (
        f"On this machine main against itself gave {listing(dict.fromkeys(names))} "
        f"in {count} of {runs} runs: make it quieter, or measure with a plan that runs more pairs."
    )


def noise_unknown(measured_at: str, axis: str | None, plan: str) -> str:
    """``axis``: the one that is scored; None where none is."""
    of = "a scored DSpark axis" if axis is None else axis_title(axis)
    return (
        f"This machine's calibration of {_day(measured_at)} knows no noise floor of {of}: "
        f"run evalbot calibrate --plan {plan}."
    )


def no_rebuild(measured_at: str, plan: str) -> str:
    """No run of the calibration says what builds of one source differ by."""
    return (
        f"This machine's calibration of {_day(measured_at)} has no run against a rebuild: "
        f"run evalbot calibrate --runs 2 --plan {plan}."
    )


def calibrated(measured_at: str, runs: int, axis: AxisNoise) -> str:
    """Why a machine may publish. ``axis``: the scored one, whose noise floor is known."""
    assert axis.noise_floor_pct is not None
    floor = f", noise floor of {axis_title(axis.name)} ±{percent(axis.noise_floor_pct, signed=False)}"
    many = f"{runs} run{'s' if runs > 1 else ''}"
    latest = f"the latest on {_day(measured_at)}"
    return f"This machine is calibrated: {many} of main against itself, {latest}{floor}."


def unfit_baseline(gate: GateResult) -> str:
    """Why a run of main against itself calibrates nothing."""
    return f"Nothing was calibrated, because {gate.name} does not pass: {gate.reason.rstrip('.')}."


def unfit_calibration(share: float, why: str) -> str:
    """Why a run calibrates nothing: ``share`` of its pairs are invalid. ``why``: of one launch."""
    return (
        f"Nothing was calibrated, because {share:.0%} of the pairs were made on an unfit machine. "
        f"{why} Calibrate again when the machine is quiet."
    )


def _day(moment: str) -> str:
    """The day of an ISO 8601 instant."""
    return moment[:10]


def listing(paths: Iterable[str]) -> str:
    """Up to five paths, then a count."""
    found = list(paths)
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return ", ".join(found[:5]) + more
