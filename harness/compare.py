"""Samples into measurements of each arm and paired comparisons of the two. Pure.

The unit is a launch: y = log(tokens / seconds), pooled over the prompts of the launch. A quad holds
two pairs of neighbouring launches, slots (0, 1) and (2, 3), one of each arm on the same prompts.

Axes are named ``CASE:KIND``, KIND being ``dspark`` and ``ar`` (decode tok/s), ``prefill`` (tok/s), ``ttft``
(ms), ``tau``, ``accepted`` (drafts per round), ``round`` (ms per DSpark round) or ``peak-memory`` (MB);
``accuracy:ppl`` is perplexity. A value that was not measured has no entry.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats as distributions

from harness import stats
from harness.metrics import acceptance, throughput
from harness.schema import Arm, Case, Comparison, HarnessResult, Measurement, Policy, Sample

ARMS: tuple[Arm, Arm] = ("baseline", "candidate")
ENOUGH_PAIRS = 4
"""With fewer pairs than this a case borrows the spread of the same axis kind in the run's other cases."""

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
    return f"{case}:{kind}"


def find(comparisons: Iterable[Comparison], name: str) -> Comparison | None:
    """The comparison on an axis, or None if it was not measured."""
    return next((item for item in comparisons if item.name == name), None)


def value_of(measurements: Iterable[Measurement], name: str, arm: Arm) -> Measurement | None:
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
    return [
        sample
        for sample in valid_samples(result)
        if sample.case == case and sample.arm == arm and (mode is None or sample.mode == mode)
    ]


def measurements(result: HarnessResult, policy: Policy) -> tuple[Measurement, ...]:
    """Every metric of both arms that has a value."""
    found: list[Measurement] = []
    for case in result.plan.cases:
        for arm in ARMS:
            for kind in (*RATES, "ttft", "peak-memory"):
                found += _launch_measurement(result, case, arm, kind, policy)
            found += _count_measurements(result, case, arm)
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


def comparisons(
    result: HarnessResult, policy: Policy, confidence: float | None = None
) -> tuple[Comparison, ...]:
    """Candidate against baseline on every axis that both arms have; intervals are two-sided."""
    level = policy.confidence if confidence is None else confidence
    found: list[Comparison] = []
    for kind in RATES:
        differences = {case.name: pair_differences(result, case.name, kind) for case in result.plan.cases}
        for case, pairs in differences.items():
            if pairs:
                found.append(_paired(result, case, kind, pairs, list(differences.values()), level))
    for case_row in result.plan.cases:
        found += _count_comparisons(result, case_row)
    order = {case.name: index for index, case in enumerate(result.plan.cases)}
    return tuple(sorted(found, key=lambda item: order[item.name.split(":")[0]]))


def pair_differences(result: HarnessResult, case: str, kind: str) -> list[float]:
    """y_candidate - y_baseline of every complete pair, in the order they were run."""
    return [difference for _, difference in _pairs(result, case, kind)]


def noise_floor(result: HarnessResult, case: str, kind: str, confidence: float) -> float | None:
    """Half-width, in log units, that pairs of main against itself would have in this very run.

    Each quad holds two baseline launches; their difference is free of any effect. It stands in for a
    calibrated floor on a machine that has none. None without a complete quad.
    """
    rates = _launch_values(result, case, "baseline", kind)
    quads: dict[int, list[float]] = defaultdict(list)
    for (quad, _), rate in sorted(rates.items()):
        quads[quad].append(math.log(rate))
    squares = [(logs[0] - logs[1]) ** 2 for logs in quads.values() if len(logs) == 2]
    if not squares:
        return None
    pairs = 2 * len(squares)
    return float(
        distributions.t.ppf(0.5 + confidence / 2, len(squares)) * math.sqrt(np.mean(squares) / pairs)
    )


@dataclass(frozen=True)
class Decomposition:
    """Why a DSpark rate moved: rate = tau / time per round. Ratios are candidate / baseline."""

    tau_ratio: float
    round_ratio: float
    rounds: tuple[int, int]
    """Verify rounds of (baseline, candidate)."""
    attributed_to: Literal["acceptance", "step cost"]
    """The factor that moved the rate more."""


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
    tau_ratio, round_ratio = candidate.tau / main.tau, candidate_round / main_round
    acceptance_moved = abs(math.log(tau_ratio)) >= abs(math.log(round_ratio))
    return Decomposition(
        tau_ratio=tau_ratio,
        round_ratio=round_ratio,
        rounds=(main.rounds, candidate.rounds),
        attributed_to="acceptance" if acceptance_moved else "step cost",
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


def _pairs(result: HarnessResult, case: str, kind: str) -> list[tuple[int, float]]:
    """(quad, log-ratio) of each complete pair."""
    main = _launch_values(result, case, "baseline", kind)
    candidate = _launch_values(result, case, "candidate", kind)
    found = []
    for quad in sorted({quad for quad, _ in main}):
        for slots in ((0, 1), (2, 3)):
            a = next((main[quad, slot] for slot in slots if (quad, slot) in main), None)
            b = next((candidate[quad, slot] for slot in slots if (quad, slot) in candidate), None)
            if a is not None and b is not None:
                found.append((quad, math.log(b / a)))
    return found


def _launch_measurement(
    result: HarnessResult, case: Case, arm: Arm, kind: str, policy: Policy
) -> list[Measurement]:
    values = list(_launch_values(result, case.name, arm, kind).values())
    if not values:
        return []
    estimate = stats.trimmed([math.log(value) for value in values])
    return [
        Measurement(
            name=axis(case.name, kind),
            unit=UNITS[kind],
            arm=arm,
            value=math.exp(estimate.mean),
            n=len(values),
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


def _count_measurements(result: HarnessResult, case: Case, arm: Arm) -> list[Measurement]:
    return [
        Measurement(name=name, unit=UNITS[name.split(":")[1]], arm=arm, value=value, n=rounds)
        for name, (value, rounds) in _counts(result, case, arm).items()
    ]


def _count_comparisons(result: HarnessResult, case: Case) -> list[Comparison]:
    main, candidate = _counts(result, case, "baseline"), _counts(result, case, "candidate")
    return [
        Comparison(
            name=name,
            unit=UNITS[name.split(":")[1]],
            baseline=main[name][0],
            candidate=candidate[name][0],
            ratio=candidate[name][0] / main[name][0],
            interval=None,
            pairs=0,
        )
        for name in main
        if name in candidate and main[name][0] > 0
    ]


def _paired(
    result: HarnessResult,
    case: str,
    kind: str,
    differences: list[float],
    groups: list[list[float]],
    confidence: float,
) -> Comparison:
    if len(differences) >= ENOUGH_PAIRS:
        estimate = stats.trimmed(differences)
    else:
        estimate = stats.borrowing(differences, groups)
    quads: dict[int, list[float]] = defaultdict(list)
    for quad, difference in _pairs(result, case, kind):
        quads[quad].append(difference)

    def center(arm: Arm) -> float:
        values = _launch_values(result, case, arm, kind).values()
        return math.exp(stats.trimmed([math.log(value) for value in values]).mean)

    return Comparison(
        name=axis(case, kind),
        unit=UNITS[kind],
        baseline=center("baseline"),
        candidate=center("candidate"),
        ratio=math.exp(estimate.mean),
        interval=stats.ratio(estimate.interval(confidence)),
        pairs=len(differences),
        sign_flip_p=stats.sign_flip_p([float(np.mean(part)) for part in quads.values()]),
    )
