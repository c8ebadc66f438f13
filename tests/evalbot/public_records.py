"""Published evaluations of others as inputs of the judge: one record -> Seen values -> the same ``decide``.

A record states points without an interval. Here each is a measurement of no width: interval and bounds are
the point itself, and the audit is what the exact test gives for quads that all show it. Gates come from
``harness.gates`` wherever the record holds the numbers that they judge.

``PUBLISHED`` reads a record as it was published: its numbers as they stand, the largest gain decides.
``CAREFUL`` also knows what is public about the run, and reads no figure that the record itself contradicts; a
gate without figures stands as "not in this record" and is left out. ``STRICT`` keeps such a gate as NOT_RUN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from evalbot.score import Seen, _failed, _fault, decide
from evalbot.types import Analysis, Facts, Stop, Verdict
from harness import compare, gates, stats
from harness.paired import Axis, Looks
from harness.schema import (
    AccuracyPlan,
    AccuracySample,
    Case,
    Comparison,
    GateResult,
    GateState,
    HarnessResult,
    Interval,
    Launch,
    Policy,
    RunPlan,
)
from tests.fakes.published import SPREADS_PCT, Guard, Pair, PublicRecord
from tests.fakes.results import ENGINE, ENVIRONMENT

POLICY = Policy()
QUADS = 6
"""The fewest quads in which the exact sign-flip test can show 5 %."""
POSITIONS = 101
"""Of the published accuracy: a top-1 of 0.980198 is 99 of 101."""


@dataclass(frozen=True)
class Reading:
    """``facts``: what is public beside the numbers counts. ``nulls``: gates without figures are NOT_RUN."""

    facts: bool
    nulls: bool


PUBLISHED, CAREFUL, STRICT = Reading(False, False), Reading(True, False), Reading(True, True)


def judge(record: PublicRecord, reading: Reading) -> Verdict:
    """The verdict, a failure being seen again in an equal second run."""
    found = seen(record, reading)
    stop = None
    if reading.facts and "arms_used_different_harness_versions" in record.conditions:
        sentence = "The harness of the two arms is not the same: they were measured with different rulers."
        stop = Stop(cause="pin", sentence=sentence)
    return decide((found, found) if found.failed else (found,), POLICY, Facts(stop=stop))


def seen(record: PublicRecord, reading: Reading) -> Seen:
    """One record as the judge sees a run."""
    run, axes = run_of(record, reading), axes_of(record, reading)
    judged = tuple(_gates(record, reading, run, axes))
    analysis = Analysis(comparisons=tuple(axis.comparison for axis in axes.values()), gates=judged)
    deciding, absent = _deciding(record, reading)
    return Seen(
        gates=judged,
        failed=_failed(run, analysis),
        headline=axes[deciding.name].comparison if deciding is not None else None,
        fault=_fault(run, analysis),
        absent=absent,
    )


def _deciding(record: PublicRecord, reading: Reading) -> tuple[Pair | None, tuple[str, ...]]:
    """The pair that may earn a tier, and what an honest run would have lacked."""
    measured = [pair for pair in record.axes if pair.gain_pct is not None]
    if not reading.facts:
        return max(measured, key=_gain, default=None), ()
    lacking = [pair for pair in record.axes if pair not in measured]
    named = next((pair for pair in measured if pair.axis == record.axis), None)
    if named is None or named.axis not in record.declared_axes:
        outside = () if any(pair.axis == record.axis for pair in lacking) else (record.axis,)
        return None, (*(pair.name for pair in lacking), *outside)
    if _gain(named) <= SPREADS_PCT.get(named.axis, 0.0):
        # No gain by rule 8. What is left is DSpark decode, which every plan scores.
        named = max((pair for pair in measured if pair.kind == "dspark"), key=_gain)
    return named, tuple(pair.name for pair in lacking)


def _gain(pair: Pair) -> float:
    assert pair.gain_pct is not None
    return pair.gain_pct


def run_of(record: PublicRecord, reading: Reading) -> HarnessResult:
    """The run as far as the record tells of it: cases, overrides and accuracy; no samples."""
    cases = tuple(_case(pair, record) for pair in record.axes)
    overrides = {"split-count": "1"} if reading.facts and "split_count_override" in record.conditions else {}
    launches = [
        Launch(
            launch=number, arm=arm, case=record.scored.axis, quad=0, slot=number,
            started_s=0.0, duration_s=1.0, engine=msgspec.structs.replace(ENGINE, overrides=overrides),
        )
        for number, arm in enumerate(compare.ARMS)
    ] if overrides else []  # fmt: skip
    doubted = reading.facts and record.contradicts("accuracy")
    accuracy = [
        AccuracySample(
            window_id="all", context_tokens=_tokens(record.scored), positions=POSITIONS,
            top1_agreement=record.top1, kl_nats=record.kl, baseline_nll=0.0, candidate_nll=0.0,
        )
    ] if record.top1 is not None and record.kl is not None and not doubted else []  # fmt: skip
    plan = AccuracyPlan(model="m", context_tokens=_tokens(record.scored), windows=1, positions=POSITIONS)
    return HarnessResult(
        schema_version=1, seed=0, prompt_seed=0, environment=ENVIRONMENT, samples=(), duration_s=1.0,
        plan=RunPlan(name=record.id, cases=cases, accuracy=plan),
        launches=tuple(launches), accuracy=tuple(accuracy),
    )  # fmt: skip


def _case(pair: Pair, record: PublicRecord) -> Case:
    """The scored one, or a guard of its own for every other published axis."""
    return Case(
        name=pair.axis, role="scored" if pair == record.scored else "guard", model="m",
        context_tokens=_tokens(pair), new_tokens=1, domains=("published",),
        modes=("ar", "dspark") if pair.kind == "dspark" else ("ar",),
        metrics=("prefill",) if pair.kind == "prefill" else ("decode",),
    )  # fmt: skip


def _tokens(pair: Pair) -> int:
    at = pair.axis.partition("@")[2]
    return int(at.removesuffix("k")) * (1024 if at.endswith("k") else 1)


def axes_of(record: PublicRecord, reading: Reading) -> dict[str, Axis]:
    """Every pair of figures as a judged axis. A rate of zero is no rate: nothing was decoded."""
    scored = record.scored.axis
    found = [
        _axis(pair.name, pair.main, pair.pr)
        for pair in record.axes
        if not (reading.facts and record.contradicts(pair.axis.partition("-")[2]))
    ]
    found.append(_axis(compare.axis(scored, "ar"), record.main_ar_tok_s, record.pr_ar_tok_s))
    main, pr = record.main_tau, record.pr_tau
    if main is not None and pr is not None and not _nothing_ran(record, reading):
        for kind, bonus in (("tau", 0.0), ("accepted", 1.0)):
            point = _point(compare.axis(scored, kind), compare.UNITS[kind], main - bonus, pr - bonus)
            found.append(Axis(point, None, Looks((2 * QUADS,), 0)))
    return {axis.comparison.name: axis for axis in found if axis is not None}


def _nothing_ran(record: PublicRecord, reading: Reading) -> bool:
    return reading.facts and "all_candidate_metrics_zero" in record.conditions


def _axis(name: str, main: float | None, pr: float | None) -> Axis | None:
    if not main or not pr:
        return None
    estimate = stats.Estimate(mean=math.log(pr / main), se=0.0, df=2 * QUADS - 1, n=2 * QUADS)
    return Axis(_point(name, "tok/s", main, pr), estimate, Looks((2 * QUADS,), 0))


def _point(name: str, unit: str, main: float, pr: float) -> Comparison:
    """A comparison of no width: all quads show the same."""
    ratio = pr / main
    point = Interval(low=ratio, high=ratio)
    return Comparison(
        name=name, unit=unit, baseline=main, candidate=pr, ratio=ratio, interval=point,
        bounds=point, floor_bounds=point, pairs=2 * QUADS, quads=QUADS, mean_ratio=ratio, quad_ratio=ratio,
        sign_flip_p=stats.sign_flip_p([ratio - 1] * QUADS),
    )  # fmt: skip


def _gates(
    record: PublicRecord, reading: Reading, run: HarnessResult, axes: dict[str, Axis]
) -> list[GateResult]:
    judged = [
        _losslessness(record, reading),
        gates.accuracy(run, POLICY),
        *gates.floors(run.plan, axes, POLICY),
        *gates.guards(run.plan, axes, POLICY),
        *(_model_guard(guard, reading) for guard in record.guards),
    ]
    if not record.guards:
        judged.append(_gate("guard:models", "NOT_RUN", "", "no guard on another model is in the record"))
    if run.launches:
        judged.append(gates.configuration(run))
    if not reading.facts:
        # The published rule knows tau alone.
        judged = [gate for gate in judged if gate.name != "accepted-floor"]
    return judged if reading.nulls else [gate for gate in judged if gate.state != "NOT_RUN"]


def _losslessness(record: PublicRecord, reading: Reading) -> GateResult:
    runs = 1 if "single_losslessness_run" in record.conditions else record.lossless_runs
    seen_in = f"processes: {'unknown' if runs is None else runs}"
    if _nothing_ran(record, reading) or record.lossless is None:
        return _gate("losslessness", "NOT_RUN", "", "DSpark was not compared with AR")
    if not record.lossless:
        return _gate("losslessness", "FAIL", "diverged", f"DSpark's tokens differ from AR's ({seen_in})")
    if reading.nulls and (runs is None or runs < POLICY.min_launches):
        return _gate("losslessness", "NOT_RUN", seen_in, f"DSpark was compared with AR in too few {seen_in}")
    return _gate("losslessness", "PASS", seen_in, f"DSpark's tokens equal AR's ({seen_in})")


def _model_guard(guard: Guard, reading: Reading) -> GateResult:
    """As drawn, main's rate not being published; a careful reader asks whether it was measured at all."""
    name = f"guard:{guard.name}@{guard.context}:drawn"
    if reading.facts and not guard.measured:
        return _gate(name, "NOT_RUN", "", "it was drawn but not measured")
    state: GateState = "PASS" if guard.passed else "FAIL"
    rates = f"decode {guard.decode_tok_s}, prefill {guard.prefill_tok_s} tok/s"
    return _gate(name, state, rates, f"it was drawn as {state} with {rates}")


def _gate(name: str, state: GateState, observed: str, why: str) -> GateResult:
    return GateResult(name=name, state=state, observed=observed, bar="as published", reason=f"{why}.")
