"""Must-pass checks: a run and the policy into one ``GateResult`` each. Pure.

A gate is PASS only if a value exists and clears its bar, FAIL only if a value exists and misses it, and
NOT_RUN otherwise, with the reason. Rates and counts are judged by one-sided non-inferiority: PASS if the
lower bound clears the margin, FAIL if the upper bound is below it, NOT_RUN and ``undecided`` between. "One
of the guards fails" is a claim about many axes, so guards fail by Holm's procedure (1979, Scandinavian
Journal of Statistics 6); that all of them pass needs no such care.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from statsmodels.stats.multitest import multipletests

from harness import compare, schedule
from harness import plausibility as check
from harness.figures import apart, beside
from harness.metrics import losslessness as equality
from harness.paired import Axis
from harness.plausibility import Finding
from harness.schema import (
    Case,
    Divergence,
    GateResult,
    GateState,
    HarnessResult,
    Interval,
    Launch,
    Metric,
    Policy,
    RunPlan,
    Settled,
)

BASELINE = "baseline"
CONFIGURATION = "configuration"
BANDWIDTH = "plausibility:bandwidth"
UNSCORABLE = frozenset({BASELINE, CONFIGURATION})
"""Gates whose failure says that nothing valid was measured, not that the candidate is wrong."""


def judge(result: HarnessResult, policy: Policy) -> tuple[GateResult, ...]:
    """Every gate of a run, in the order a reader wants them. The set depends on the plan alone."""
    axes = compare.judged(result, policy)
    judged = (
        losslessness(result, policy),
        ar_tokens(result, policy),
        accuracy(result, policy),
        *floors(result.plan, axes, policy),
        *guards(result.plan, axes, policy),
        *plausibility(result, policy),
        configuration(result),
        baseline(result, policy),
    )
    return tuple(_spared(gate, result.settled) for gate in judged)


def _spared(gate: GateResult, settled: Settled | None) -> GateResult:
    """A gate that was not run because the run had ended says so."""
    if settled is None or gate.state != "NOT_RUN" or gate.undecided:
        return gate
    return _not_run(gate.name, gate.bar, f"not reached: {settled.gate} had failed")


def floors(plan: RunPlan, axes: Mapping[str, Axis], policy: Policy) -> list[GateResult]:
    """Counts and rates of the scored case against main's."""
    case = next((case for case in plan.cases if case.role == "scored"), None)
    if case is None:
        return []
    bars, noise = policy.floors, policy.accepted_noise
    found = [
        count_floor("tau-floor", case, "tau", bars.tau, 0.0, axes),
        count_floor("accepted-floor", case, "accepted", bars.accepted, noise, axes),
        rate_floor("ar-floor", compare.axis(case.name, "ar"), bars.ar, axes),
        rate_floor("dspark-floor", compare.axis(case.name, "dspark"), bars.dspark, axes),
    ]
    if "prefill" in case.metrics:
        found.append(rate_floor("prefill-floor", compare.axis(case.name, "prefill"), bars.prefill, axes))
    return found


def guards(plan: RunPlan, axes: Mapping[str, Axis], policy: Policy) -> list[GateResult]:
    """The guarded metrics of every guard case; decode is the served path, DSpark where the case has it."""
    named = {
        f"guard:{case.name}:{metric}": compare.axis(case.name, guarded_kind(case, metric))
        for case in plan.cases
        if case.role == "guard"
        for metric in case.metrics
    }
    failing = _holm({gate: axes.get(axis) for gate, axis in named.items()}, policy)
    return [
        rate_floor(gate, axis, policy.floors.guard, axes, may_fail=gate in failing)
        for gate, axis in named.items()
    ]


def guarded_kind(case: Case, metric: Metric) -> str:
    """The axis kind that a guarded metric is read from."""
    return metric if metric == "prefill" else "dspark" if "dspark" in case.modes else "ar"


def _holm(named: Mapping[str, Axis | None], policy: Policy) -> frozenset[str]:
    """Guards that may be called failed when all of them are looked at together.

    Axes stand at different looks, so each p is scaled by what its look may spend before they are ranked. A
    guard that is not measured yet counts as one that does not fail: the order of cases changes nothing.
    """
    alpha, margin = 1 - policy.confidence, math.log(policy.floors.guard)
    scaled = dict.fromkeys(named, 1.0)
    for gate, axis in named.items():
        p = axis.estimate.p_below(margin) if axis is not None and axis.estimate is not None else None
        if axis is not None and p is not None:
            scaled[gate] = min(1.0, p * alpha / axis.looks.tail(alpha, 1))
    if not scaled or min(scaled.values()) > alpha / len(scaled):
        # Holm's first step stops here; multipletests would say the same, but collects garbage at every call.
        return frozenset()
    failed = multipletests(list(scaled.values()), alpha=alpha, method="holm")[0]
    return frozenset(gate for gate, bad in zip(scaled, failed, strict=True) if bad)


def losslessness(result: HarnessResult, policy: Policy) -> GateResult:
    """DSpark tokens equal AR tokens on every timed prompt, in enough independent processes."""
    finding = check.check_losslessness(result, "candidate", policy.min_launches)
    why = f"DSpark was not compared with AR in {policy.min_launches} processes of the candidate"
    return _from("losslessness", finding, "DSpark equals AR token for token", why)


def ar_tokens(result: HarnessResult, policy: Policy) -> GateResult:
    """AR of the candidate equals AR of main, or differs only where main itself was nearly undecided.

    From the first near-tie on the texts are different ones, so each further token of the candidate must be
    what main would say after the candidate's own, or nearly.
    """
    name, bar = "ar-tokens", f"equal to main, or a near-tie <= {policy.near_tie_nats:g} nats"
    samples = compare.valid_samples(result)
    prompts = [
        {(s.case, s.prompt_id) for s in samples if s.arm == arm and s.mode == "ar"} for arm in compare.ARMS
    ]
    shared = prompts[0] & prompts[1]
    if not shared:
        return _not_run(name, bar, "no prompt was decoded with AR by both arms")
    for sample in samples:
        fault = equality.incomplete(sample) if (sample.arm, sample.mode) == ("candidate", "ar") else None
        if fault is not None:
            return _failed(name, bar, f"case {sample.case}, prompt {sample.prompt_id}: {fault}")
    measured = {(d.case, d.prompt_id, d.position): d for d in result.divergences}
    ties = 0
    for found in equality.between_arms(samples):
        known = measured.get((found.case, found.prompt_id, found.position), found)
        if (known.baseline_token, known.candidate_token) != (found.baseline_token, found.candidate_token):
            known = found
        if (
            known.margin_nats is None
            and known.baseline_token is not None
            and known.candidate_token is not None
        ):
            where = f"case {found.case}, prompt {found.prompt_id}, token {found.position}"
            return _not_run(
                name, bar, f"AR differs from main at {where} and main's margin there was not measured"
            )
        if known.margin_nats is None or abs(known.margin_nats) > policy.near_tie_nats:
            return GateResult(
                name=name, state="FAIL", observed="diverged", bar=bar, reason=_divergence(known, policy)
            )
        if known.worst_margin_nats is None:
            where = f"case {found.case}, prompt {found.prompt_id}"
            why = f"{where}: after a near-tie at token {found.position} main was not asked about the rest"
            return _not_run(name, bar, why)
        if known.worst_margin_nats > policy.near_tie_nats:
            return GateResult(
                name=name, state="FAIL", observed="diverged", bar=bar, reason=_departure(known, policy)
            )
        ties += 1
    observed = f"{len(shared)} prompts" + (f", {ties} near-ties" if ties else "")
    return GateResult(name=name, state="PASS", observed=observed, bar=bar, reason="AR output equals main's.")


def accuracy(result: HarnessResult, policy: Policy) -> GateResult:
    """Top-1 agreement and KL against main's distributions on held-out windows, at the scored context."""
    bars = policy.accuracy
    name, bar = "accuracy", f"top-1 >= {bars.top1_min:.3f}, KL <= {bars.kl_max_nats:.3f} nats"
    plan = result.plan.accuracy
    if plan is None:
        return _not_run(name, bar, "the plan names no accuracy windows")
    if len(result.accuracy) < plan.windows:
        return _not_run(
            name, bar, f"{len(result.accuracy)} of {plan.windows} windows were scored by both arms"
        )
    case = compare.scored_case(result)
    if case is not None and (case.model, case.context_tokens) != (plan.model, plan.context_tokens):
        why = f"accuracy was planned at {plan.context_tokens} tokens of {plan.model}, the score at "
        return _not_run(name, bar, f"{why}{case.context_tokens} tokens of {case.model}")
    positions = sum(sample.positions for sample in result.accuracy)
    top1 = sum(s.top1_agreement * s.positions for s in result.accuracy) / positions
    kl = sum(s.kl_nats * s.positions for s in result.accuracy) / positions
    state: GateState = "PASS" if top1 >= bars.top1_min and kl <= bars.kl_max_nats else "FAIL"
    verb = "stays within" if state == "PASS" else "misses"
    agreed, nats = beside(top1, bars.top1_min, 4), beside(kl, bars.kl_max_nats, 5, most=True)
    reason = f"top-1 agreement with main {agreed} and KL {nats} nats over {positions} positions {verb} {bar}."
    return GateResult(name=name, state=state, observed=f"top-1 {agreed}, KL {nats}", bar=bar, reason=reason)


def count_floor(
    name: str, case: Case, kind: str, floor: float, noise: float, axes: Mapping[str, Axis]
) -> GateResult:
    """A pooled count per round against a share of main's, less an absolute allowance.

    With too few prompts for an interval the counts themselves decide: both arms decode the same prompts, so
    that they differ by no noise of timing.
    """
    axis = axes.get(compare.axis(case.name, kind))
    share = f"{100 * floor:g}% of main" + (f" less {noise:g}" if noise else "")
    bar = f">= {share}"
    if axis is None:
        return _not_run(name, bar, f"{kind} of both arms was not measured on {case.name}")
    found = axis.comparison
    least = floor * found.baseline - noise
    bounds = found.floor_bounds or Interval(low=found.ratio, high=found.ratio)
    counted, limit = apart(found.candidate, least, 4)
    observed = f"{counted} vs {found.baseline:.4f}"
    numbers = f"{kind} on {case.name} is {counted} {found.unit} against main's {found.baseline:.4f}"
    bar_text = f"the floor of {limit} ({share})"
    if bounds.low * found.baseline >= least:
        reason = f"{numbers}: holds {bar_text}."
        return GateResult(name=name, state="PASS", observed=observed, bar=bar, reason=reason)
    if bounds.high * found.baseline < least:
        reason = f"{numbers}: misses {bar_text}."
        return GateResult(name=name, state="FAIL", observed=observed, bar=bar, reason=reason)
    spread = f"[{bounds.low:.4f}, {bounds.high:.4f}] of main over {found.pairs} prompts"
    return _undecided(name, bar, f"{numbers}; {spread} lies on both sides of {bar_text}", observed)


def rate_floor(
    name: str, axis: str, margin: float, axes: Mapping[str, Axis], may_fail: bool = True
) -> GateResult:
    """Non-inferiority of a rate. ``may_fail``: whether a failure would stand among the others' looked at."""
    bar = f">= {100 * margin:g}% of main"
    judged = axes.get(axis)
    if judged is None:
        return _not_run(name, bar, f"the axis {axis} was not measured on both arms")
    found = judged.comparison
    numbers = f"{axis} runs at {found.candidate:.2f} {found.unit} against main's {found.baseline:.2f}"
    observed = f"{found.ratio:.4f} of main"
    if found.floor_bounds is None:
        return _undecided(name, bar, f"{numbers}, {found.pairs} pair(s) give no interval", observed)
    low, high = found.floor_bounds.low, found.floor_bounds.high
    least, most = beside(low, margin, 4), beside(high, margin, 4)
    observed += f" [{least}, {most}] n={found.pairs}"
    if found.unstable:
        why = f"{numbers}, but a few launches carry that: the plain mean is {found.mean_ratio:.4f} of main"
        return _undecided(name, bar, why, observed)
    if low >= margin:
        reason = f"{numbers}: at least {least} of it, which clears {margin:g}."
        return GateResult(name=name, state="PASS", observed=observed, bar=bar, reason=reason)
    if high < margin and may_fail:
        reason = f"{numbers}: at most {most} of it, which is below {margin:g}."
        return GateResult(name=name, state="FAIL", observed=observed, bar=bar, reason=reason)
    if high < margin:
        why = f"{numbers}: below {margin:g} on its own, but not proven as one guard among many"
        return _undecided(name, bar, why, observed)
    return _undecided(name, bar, f"{numbers}, the interval [{least}, {most}] straddles {margin:g}", observed)


def plausibility(result: HarnessResult, policy: Policy) -> list[GateResult]:
    """What the candidate claims against what was seen, and what was seen against what can be."""
    speculation = check.check_speculation(result, "candidate", policy)
    bandwidth = check.check_bandwidth(result, "candidate", policy)
    clock = check.check_clock(result, "candidate", policy)
    counters = check.check_counters(result, "candidate")
    prefill = check.check_prefill(result, "candidate", policy)
    repeatable = check.check_repeatable(result, "candidate")
    output = check.check_output(result, "candidate", policy)
    return [
        _from(
            "plausibility:speculation",
            speculation,
            "DSpark's lead over AR fits its tau",
            "a rate or tau is missing",
        ),
        _from(
            BANDWIDTH,
            bandwidth,
            "The memory traffic that the AR rate implies is possible here",
            "the AR rate or this machine's memory bandwidth was not measured",
        ),
        _from(
            "plausibility:clock", clock, "The worker's times agree with the manager's", "no decode was timed"
        ),
        _from(
            "plausibility:counters",
            counters,
            "The worker's counts agree with what arrived",
            "no DSpark round was seen",
        ),
        _from(
            "plausibility:prefill",
            prefill,
            "Every prompt was computed in full, as sent",
            "no prompt was timed",
        ),
        _from(
            "plausibility:repeatable",
            repeatable,
            "A prompt gives the same tokens in the same bursts in every process",
            "no prompt was decoded by two processes of the candidate",
        ),
        _from("plausibility:output", output, "The output does not repeat itself", "no output has 4 tokens"),
    ]


def configuration(result: HarnessResult) -> GateResult:
    """Both arms ran the same models on the same device, without an override the plan does not name."""
    bar = "served configuration, equal on both arms"
    reports = {arm: check.engine_reports(result, arm) for arm in compare.ARMS}
    if not all(reports.values()):
        return _not_run(CONFIGURATION, bar, "an arm never reported its configuration")
    allowed = result.plan.engine_environment
    for arm, launches in reports.items():
        for report in launches:
            extra = {k: v for k, v in report.overrides.items() if allowed.get(k) != v}
            if extra:
                text = ", ".join(f"{name}={value}" for name, value in sorted(extra.items()))
                return _failed(CONFIGURATION, bar, f"the {arm} ran with {text}, which the plan does not name")
    per_model: dict[str, tuple[str, str]] = {}
    for launch in result.launches:
        if launch.engine is None or launch.failure is not None:
            continue
        engine = launch.engine
        other = _other_files(result, launch)
        if other is not None:
            return _failed(CONFIGURATION, bar, other)
        facts = (
            engine.device,
            engine.dtype,
            engine.torch_version,
            engine.draft_sha256,
            engine.tokenizer_sha256,
        )
        text = ", ".join(str(fact)[:24] for fact in facts)
        first, seen = per_model.setdefault(engine.target_sha256, (launch.arm, text))
        if seen != text:
            return _failed(CONFIGURATION, bar, f"the {first} ran on {seen}, the {launch.arm} on {text}")
    models = {arm: {report.target_sha256 for report in launches} for arm, launches in reports.items()}
    only = models["baseline"] ^ models["candidate"]
    if only and not any(launch.failure for launch in result.launches):
        return _failed(CONFIGURATION, bar, f"only one arm loaded the target {min(only)[:12]}")
    overrides = ", ".join(f"{k}={v}" for k, v in sorted(allowed.items())) or "none"
    return GateResult(
        name=CONFIGURATION, state="PASS", observed=f"overrides: {overrides}", bar=bar,
        reason="Both arms ran the same models on the same device, as served.",
    )  # fmt: skip


def _other_files(result: HarnessResult, launch: Launch) -> str | None:
    """What a worker loaded instead of the files that it was handed; None where it says that it did not."""
    name = _model_of(result.plan, launch.case)
    handed = result.models.get(name) if name else None
    if handed is None or launch.engine is None:
        return None
    for part in ("target", "draft"):
        expected, said = (getattr(each, f"{part}_sha256") for each in (handed, launch.engine))
        if said != expected:
            return (
                f"the {launch.arm} reports a {part} of sha256 {str(said)[:12]} for {name}, "
                f"but was handed {str(expected)[:12]}"
            )
    return None


def _model_of(plan: RunPlan, launched: str) -> str | None:
    """The model of a launch, by what ``Launch.case`` calls it; None where that does not say."""
    if launched == "accuracy":
        return plan.accuracy.model if plan.accuracy else None
    named = {case.name: case.model for case in plan.cases}
    return named.get(launched) or next(
        (model for model in named.values() if schedule.admission(model) == launched), None
    )


def shared_override(result: HarnessResult) -> bool:
    """Whether every launch of both arms ran under the same overrides, and these are not the plan's."""
    found = [report.overrides for arm in compare.ARMS for report in check.engine_reports(result, arm)]
    return (
        bool(found) and all(each == found[0] for each in found) and found[0] != result.plan.engine_environment
    )


def baseline(result: HarnessResult, policy: Policy) -> GateResult:
    """Main must pass what it is the measure of; if it does not, this run judges nobody."""
    bar = "main passes its own gates"
    if result.error is not None:
        return _failed(BASELINE, bar, result.error)
    broken = [launch for launch in result.launches if launch.arm == "baseline" and launch.failure is not None]
    if len(broken) > 1 and broken[-1].failure is not None:
        return _failed(
            BASELINE, bar, f"main's worker failed {len(broken)} times: {broken[-1].failure.detail}"
        )
    findings = [
        check.check_losslessness(result, "baseline", policy.min_launches),
        check.check_repeatable(result, "baseline"),
        check.check_output(result, "baseline", policy),
        check.check_prefill(result, "baseline", policy),
        check.check_counters(result, "baseline"),
        check.check_clock(result, "baseline", policy),
        check.check_speculation(result, "baseline", policy),
    ]
    for finding in findings:
        if finding is not None and finding.fault is not None:
            return _failed(BASELINE, bar, f"main is not a valid baseline: {finding.fault}")
    if findings[0] is None:
        why = f"main's DSpark was not compared with its AR in {policy.min_launches} processes"
        return _not_run(BASELINE, bar, why)
    return GateResult(
        name=BASELINE,
        state="PASS",
        observed=findings[0].observed,
        bar=bar,
        reason="Main passes its own gates.",
    )


def _divergence(found: Divergence, policy: Policy) -> str:
    text = (
        f"case {found.case}, prompt {found.prompt_id}: AR token {found.position} is "
        f"{_word(found.candidate_token)} where main has {_word(found.baseline_token)}"
    )
    if found.margin_nats is None:
        return f"{text}; the outputs differ in length."
    nats = beside(abs(found.margin_nats), policy.near_tie_nats, 3, most=True)
    margin = f"main prefers {'its own' if found.margin_nats >= 0 else 'the other'} by {nats} nats"
    return f"{text}, and {margin} (a near-tie is <= {policy.near_tie_nats:g})."


def _departure(found: Divergence, policy: Policy) -> str:
    return (
        f"case {found.case}, prompt {found.prompt_id}: AR leaves main in a near-tie at {found.position},"
        f" but after the candidate's own text main prefers another token {found.worst_position} by "
        f"{found.worst_margin_nats:.3f} nats (a near-tie is <= {policy.near_tie_nats:g})."
    )


def _word(token: int | None) -> str:
    return "missing" if token is None else str(token)


def _from(name: str, finding: Finding | None, success: str, why_not: str) -> GateResult:
    if finding is None:
        return _not_run(name, "", why_not)
    state: GateState = "PASS" if finding.fault is None else "FAIL"
    return GateResult(
        name=name,
        state=state,
        observed=finding.observed,
        bar=finding.bar,
        reason=_sentence(finding.fault or success),
    )


def _failed(name: str, bar: str, why: str) -> GateResult:
    return GateResult(name=name, state="FAIL", observed="", bar=bar, reason=_sentence(why))


def _not_run(name: str, bar: str, why: str) -> GateResult:
    return GateResult(name=name, state="NOT_RUN", observed="", bar=bar, reason=_sentence(why))


def _undecided(name: str, bar: str, why: str, observed: str) -> GateResult:
    return GateResult(
        name=name,
        state="NOT_RUN",
        observed=observed,
        bar=bar,
        reason=_sentence(f"undecided: {why}"),
        undecided=True,
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."
