"""Samples into measurements of each arm and paired comparisons of the two. Pure.

The unit is a launch: y = log(tokens / seconds), pooled over the prompts of the launch. A quad holds
two pairs of neighbouring launches, slots (0, 1) and (2, 3), one of each arm on the same prompts. Counts per
round (tau, accepted) have no launch noise; their interval is a bootstrap over prompts.

Axes are named ``CASE:KIND``, KIND being ``dspark`` and ``ar`` (decode tok/s), ``prefill`` (tok/s), ``ttft``
(ms), ``tau``, ``accepted`` (drafts per round), ``round`` (ms per DSpark round) or ``peak-memory`` (MB);
``accuracy:ppl`` is perplexity. A value that was not measured has no entry.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from harness import fitness, paired, stats
from harness.metrics import acceptance, throughput
from harness.paired import Axis, Looks, Pair
from harness.schema import Arm, Case, Comparison, HarnessResult, Interval, Measurement, Policy, Sample

ARMS: tuple[Arm, Arm] = ("baseline", "candidate")
UNITS = {
    "dspark": "tok/s",
    "ar": "tok/s",
    "prefill": "tok/s",
    "ttft": "ms",
    "round": "ms",
    "tau": "tokens/round",
    "accepted": "drafts/round",
    "peak-memory": "MB",
    "ppl": "",
}
_LARGEST_EXPONENT = math.log(sys.float_info.max)

RATES = ("dspark", "ar", "prefill", "round")
"""Kinds compared launch by launch; tau and accepted are counts and are compared pooled."""

Position = tuple[int, int]
"""Quad and slot of a launch."""


def axis(case: str, kind: str) -> str:
    """Name of an axis."""
    return f"{case}:{kind}"


def find(comparisons: Iterable[Comparison], name: str) -> Comparison | None:
    """The comparison on an axis, or None if it was not measured."""
    return next((item for item in comparisons if item.name == name), None)


def value_of(measurements: Iterable[Measurement], name: str, arm: Arm) -> Measurement | None:
    """The measurement of an arm on an axis, or None if it was not measured."""
    return next((item for item in measurements if item.name == name and item.arm == arm), None)


def scored_case(result: HarnessResult) -> Case | None:
    """The case that the tier is read from."""
    return next((case for case in result.plan.cases if case.role == "scored"), None)


def headline(comparisons: Iterable[Comparison], result: HarnessResult) -> Comparison | None:
    """DSpark decode on the scored case: the one axis that can earn a tier."""
    case = scored_case(result)
    return None if case is None else find(comparisons, axis(case.name, "dspark"))


def valid_samples(result: HarnessResult) -> tuple[Sample, ...]:
    """Samples of launches that did not fail; nothing that a failed launch said is used."""
    failed = {launch.launch for launch in result.launches if launch.failure is not None}
    return tuple(sample for sample in result.samples if sample.launch not in failed)


def of(result: HarnessResult, case: str, arm: Arm, mode: str | None = None) -> list[Sample]:
    """Valid samples of one arm in one case, in one mode or in all."""
    return [
        sample
        for sample in valid_samples(result)
        if sample.case == case and sample.arm == arm and (mode is None or sample.mode == mode)
    ]


def measurements(result: HarnessResult, policy: Policy) -> tuple[Measurement, ...]:
    """Every metric of both arms that has a value."""
    found: list[Measurement] = []
    invalid = fitness.invalid_positions(result)
    for case in result.plan.cases:
        for arm in ARMS:
            for kind in (*RATES, "ttft", "peak-memory"):
                found += _launch_measurement(result, case, arm, kind, policy, invalid)
            found += _count_measurements(result, case, arm, policy)
    if result.accuracy:
        for arm in ARMS:
            nll = [getattr(sample, f"{arm}_nll") for sample in result.accuracy]
            mean = float(np.mean(nll))
            # A perplexity beyond the largest float has no value to show; the accuracy gate judges the rest.
            if mean < _LARGEST_EXPONENT:
                found.append(
                    Measurement(name="accuracy:ppl", unit="", arm=arm, value=math.exp(mean), n=len(nll))
                )
    return tuple(found)


def comparisons(result: HarnessResult, policy: Policy) -> tuple[Comparison, ...]:
    """Candidate against baseline on every axis that both arms have."""
    return tuple(axis.comparison for axis in judged(result, policy).values())


def judged(result: HarnessResult, policy: Policy) -> dict[str, Axis]:
    """Every axis that both arms have, by name, in the order of the plan's cases."""
    found: list[Axis] = []
    invalid = fitness.invalid_positions(result)
    pairs = {
        kind: {case.name: _pairs(result, case.name, kind, invalid) for case in result.plan.cases}
        for kind in RATES
    }
    for kind in RATES:
        for case in result.plan.cases:
            if pairs[kind][case.name]:
                found.append(_paired(result, case, kind, pairs, policy))
    for case in result.plan.cases:
        found += _count_comparisons(result, case, policy)
    order = {case.name: index for index, case in enumerate(result.plan.cases)}
    found.sort(key=lambda item: order[item.comparison.name.split(":")[0]])
    return {item.comparison.name: item for item in found}


def pair_differences(result: HarnessResult, case: str, kind: str) -> list[float]:
    """y_candidate - y_baseline of every complete pair on a fit machine, in the order they were run."""
    return [pair.difference for pair in _pairs(result, case, kind, fitness.invalid_positions(result))]


def looks_reached(result: HarnessResult, case: Case) -> Looks:
    """The look at which a case stands, from the quads that were run, valid or not."""
    quads = {launch.quad for launch in result.launches if launch.case == case.name}
    return Looks.reached(case.looks, len(quads))


@dataclass(frozen=True)
class Decomposition:
    """Why a DSpark rate moved: rate = tau / time per round. Ratios are candidate / baseline."""

    tau_ratio: float
    round_ratio: float
    rounds: tuple[int, int]
    """Verify rounds of (baseline, candidate)."""

    @property
    def attributed_to(self) -> Literal["acceptance", "step cost"]:
        """The factor that moved the rate more."""
        moved = abs(math.log(self.tau_ratio)) >= abs(math.log(self.round_ratio))
        return "acceptance" if moved else "step cost"


def decompose(result: HarnessResult, case: str) -> Decomposition | None:
    """Split a change of the DSpark rate into acceptance and cost of a round; None where unmeasured."""
    arms = []
    for arm in ARMS:
        samples = of(result, case, arm, "dspark")
        counts = acceptance.pooled(samples)
        window = throughput.pooled(throughput.decode_window(sample.bursts) for sample in samples)
        if counts is None or window is None:
            return None
        arms.append((counts, window.seconds / counts.rounds))
    (main, main_round), (candidate, candidate_round) = arms
    return Decomposition(
        tau_ratio=candidate.tau / main.tau,
        round_ratio=candidate_round / main_round,
        rounds=(main.rounds, candidate.rounds),
    )


def _launch_value(samples: list[Sample], kind: str) -> float | None:
    """One number of one launch for an axis kind; None if any of its samples lacks it."""
    if kind in ("dspark", "ar"):
        window = throughput.pooled(
            throughput.decode_window(sample.bursts) for sample in samples if sample.mode == kind
        )
        return window.tok_s if window else None
    if kind == "prefill":
        window = throughput.pooled(throughput.prefill_window(sample) for sample in samples)
        return window.tok_s if window else None
    if kind == "ttft":
        first = [sample.bursts[0].elapsed_s for sample in samples if sample.bursts]
        return 1000 * float(np.mean(first)) if first and len(first) == len(samples) else None
    if kind == "round":
        spoken = [sample for sample in samples if sample.mode == "dspark"]
        window = throughput.pooled(throughput.decode_window(sample.bursts) for sample in spoken)
        rounds = sum(len(sample.bursts) - 1 for sample in spoken)
        return 1000 * window.seconds / rounds if window else None
    peaks = [sample.reported.peak_memory_bytes for sample in samples]
    known = [peak for peak in peaks if peak is not None]
    return max(known) / 1e6 if known else None


def _launch_values(result: HarnessResult, case: str, arm: Arm, kind: str) -> dict[Position, float]:
    launches: dict[Position, list[Sample]] = defaultdict(list)
    for sample in of(result, case, arm):
        launches[sample.quad, sample.slot].append(sample)
    values = {position: _launch_value(samples, kind) for position, samples in launches.items()}
    return {position: value for position, value in values.items() if value is not None}


def _pairs(
    result: HarnessResult, case: str, kind: str, invalid: frozenset[fitness.PairPosition]
) -> list[Pair]:
    """Each complete pair, less those of launches that the machine was unfit for."""
    main = _launch_values(result, case, "baseline", kind)
    candidate = _launch_values(result, case, "candidate", kind)
    found = []
    for quad in sorted({quad for quad, _ in main}):
        for half, slots in enumerate(((0, 1), (2, 3))):
            if (case, quad, half) in invalid:
                continue
            a = next((slot for slot in slots if (quad, slot) in main), None)
            b = next((slot for slot in slots if (quad, slot) in candidate), None)
            if a is not None and b is not None:
                rates = math.log(main[quad, a]), math.log(candidate[quad, b])
                found.append(Pair(quad, *rates, candidate_first=b < a))
    return found


def gaps(result: HarnessResult, case: str, kind: str) -> bool:
    """Whether a launch that did not fail lacks a value: nobody may choose which launches count."""
    return any(
        {(x.quad, x.slot) for x in result.launches if x.case == case and x.arm == arm and x.failure is None}
        - _launch_values(result, case, arm, kind).keys()
        for arm in ARMS
    )


def _launch_measurement(
    result: HarnessResult,
    case: Case,
    arm: Arm,
    kind: str,
    policy: Policy,
    invalid: frozenset[fitness.PairPosition],
) -> list[Measurement]:
    """The rate of one arm: where both arms have pairs, over the pairs that the comparison is taken over."""
    values = list(_launch_values(result, case.name, arm, kind).values())
    pairs = _pairs(result, case.name, kind, invalid)
    logs = [getattr(pair, arm) for pair in pairs] or [math.log(value) for value in values]
    if not logs:
        return []
    estimate = stats.trimmed(logs)
    if pairs:
        kept = paired.located(pairs, [pairs]).kept
        estimate = replace(estimate, mean=float(np.mean([logs[i] for i in kept])))
    return [
        Measurement(
            name=axis(case.name, kind),
            unit=UNITS[kind],
            arm=arm,
            value=math.exp(estimate.mean),
            n=len(logs),
            interval=stats.ratio(estimate.interval(policy.confidence)),
        )
    ]


def _counts(result: HarnessResult, case: Case, arm: Arm) -> dict[str, tuple[float, int]]:
    """Name and (value, rounds) of tau and accepted, pooled and per domain."""
    samples = of(result, case.name, arm, "dspark")
    pooled = acceptance.pooled(samples)
    if pooled is None:
        return {}
    found = {
        axis(case.name, "tau"): (pooled.tau, pooled.rounds),
        axis(case.name, "accepted"): (pooled.accepted_per_round, pooled.rounds),
    }
    for domain in case.domains:
        part = acceptance.pooled(sample for sample in samples if sample.domain == domain)
        if part is not None:
            found[axis(case.name, f"tau:{domain}")] = (part.tau, part.rounds)
    return found


def _count_measurements(result: HarnessResult, case: Case, arm: Arm, policy: Policy) -> list[Measurement]:
    """Counts of one arm, with the bootstrap over the prompts that both arms decoded where it is shown."""
    found, at = [], 2 * ARMS.index(arm)
    for name, (value, rounds) in _counts(result, case, arm).items():
        kind, _, domain = name.removeprefix(f"{case.name}:").partition(":")
        interval = None
        if case.role == "scored":
            prompts = _prompt_counts(result, case.name, domain)[:, at : at + 2]
            value_of_weights = partial(_count_value, prompts, kind == "accepted")
            interval = stats.bootstrap(len(prompts), value_of_weights, (1 - policy.confidence) / 2)
        if interval is not None:
            # A prompt that one arm alone decoded counts for the value and not for the interval.
            interval = Interval(low=min(interval.low, value), high=max(interval.high, value))
        found.append(
            Measurement(name=name, unit=UNITS[kind], arm=arm, value=value, n=rounds, interval=interval)
        )
    return found


def _count_comparisons(result: HarnessResult, case: Case, policy: Policy) -> list[Axis]:
    main, candidate = _counts(result, case, "baseline"), _counts(result, case, "candidate")
    looks = looks_reached(result, case)
    alpha = 1 - policy.confidence
    found = []
    for name in main:
        if name not in candidate or main[name][0] <= 0:
            continue
        kind, _, domain = name.removeprefix(f"{case.name}:").partition(":")
        prompts = _prompt_counts(result, case.name, domain)

        def bounds(tail: float, prompts: np.ndarray = prompts, kind: str = kind) -> Interval | None:
            return stats.bootstrap(len(prompts), partial(_count_ratio, prompts, kind == "accepted"), tail)

        comparison = Comparison(
            name=name,
            unit=UNITS[kind],
            baseline=main[name][0],
            candidate=candidate[name][0],
            ratio=candidate[name][0] / main[name][0],
            interval=bounds(alpha / 2),
            floor_bounds=bounds(looks.tail(alpha, 1)),
            pairs=len(prompts),
            look=looks.at + 1,
            looks=len(looks.sizes),
        )
        found.append(Axis(comparison, None, looks))
    return found


def _prompt_counts(result: HarnessResult, case: str, domain: str) -> np.ndarray:
    """[P, 4]: committed and rounds of the baseline, then of the candidate, by prompt; "" is every domain."""
    totals: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(4))
    for column, arm in ((0, ARMS[0]), (2, ARMS[1])):
        for sample in of(result, case, arm, "dspark"):
            counts = acceptance.pooled([sample])
            if counts is not None and domain in ("", sample.domain):
                totals[sample.prompt_id][column : column + 2] += (counts.committed, counts.rounds)
    both = [row for row in totals.values() if row[1] and row[3]]
    return np.array(both).reshape(-1, 4)


def _count_value(prompts: np.ndarray, accepted: bool, weights: np.ndarray) -> np.ndarray:
    """Pooled tau, or tau - 1, of one arm's [P, 2] committed and rounds, under weights [R, P]. Returns [R]."""
    sums = weights @ prompts
    values: np.ndarray = sums[:, 0] / sums[:, 1] - accepted
    return values


def _count_ratio(prompts: np.ndarray, accepted: bool, weights: np.ndarray) -> np.ndarray:
    """Ratio of pooled tau, or of tau - 1, under weights [R, P] of the prompts. Returns [R]."""
    main, candidate = (_count_value(prompts[:, at : at + 2], accepted, weights) for at in (0, 2))
    ratios: np.ndarray = candidate / main
    return ratios


def _paired(
    result: HarnessResult,
    case: Case,
    kind: str,
    pairs: dict[str, dict[str, list[Pair]]],
    policy: Policy,
) -> Axis:
    """``pairs``: by kind and case."""
    name = axis(case.name, kind)
    acceptance_part = None
    if kind == "dspark":
        effect, rest = _tau_effect(result, case.name), pairs["round"]
        if effect is not None and rest[case.name]:
            acceptance_part = paired.Acceptance(effect, rest[case.name], list(rest.values()))
    return paired.judge(
        name,
        UNITS[kind],
        pairs[kind][case.name],
        list(pairs[kind].values()),
        looks_reached(result, case),
        policy.confidence,
        result.between_builds.get(name, 0.0),
        acceptance_part,
    )


def _tau_effect(result: HarnessResult, case: str) -> stats.Estimate | None:
    """log-ratio of pooled tau and its jackknife error over prompts; None with fewer than two prompts."""
    prompts = _prompt_counts(result, case, "")
    count = len(prompts)
    if count < 2:
        return None
    whole = _count_ratio(prompts, False, np.ones((1, count)))
    without = np.log(_count_ratio(prompts, False, 1 - np.eye(count)))
    se = math.sqrt((count - 1) / count * float(((without - without.mean()) ** 2).sum()))
    return stats.Estimate(mean=math.log(float(whole[0])), se=se, df=count - 1, n=count)
