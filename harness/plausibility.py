"""Checks of one arm that need no other arm: what it claims against what was seen and what can be. Pure.

Each check returns a ``Finding``; its ``fault`` is None when the arm passed. A check that had nothing to look
at returns None, which is never a pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness import compare
from harness.metrics import acceptance, losslessness, throughput
from harness.schema import Arm, EngineReport, HarnessResult, Mode, Policy, Sample

ENOUGH_REPEATS = 4


@dataclass(frozen=True)
class Finding:
    """What a check saw, the bar it was held against, and what is wrong, if anything is."""

    observed: str
    bar: str
    fault: str | None
    """A sentence; None when the check passed."""


def distinct_4gram(token_ids: Sequence[int]) -> float | None:
    """Distinct 4-grams over all 4-grams: 1.0 never repeats, near 0 is a loop; None below 4 tokens."""
    grams = [tuple(token_ids[i : i + 4]) for i in range(len(token_ids) - 3)]
    return len(set(grams)) / len(grams) if grams else None


def engine_reports(result: HarnessResult, arm: Arm) -> list[EngineReport]:
    """What the workers of an arm said of themselves, by launch; those of failed launches are left out."""
    return [
        launch.engine
        for launch in result.launches
        if launch.arm == arm and launch.engine is not None and launch.failure is None
    ]


def main_says(result: HarnessResult, case: str) -> EngineReport | None:
    """What main reported of itself on a case: no bound on both arms is the candidate's word."""
    reports = (
        launch.engine
        for launch in result.launches
        if (launch.arm, launch.case) == ("baseline", case) and launch.failure is None
    )
    return next((report for report in reports if report is not None), None)


def check_speculation(result: HarnessResult, arm: Arm, policy: Policy) -> Finding | None:
    """A round costs at least one target step, so DSpark cannot outrun AR by more than tau."""
    case = compare.scored_case(result)
    if case is None:
        return None
    rates = {}
    modes: tuple[Mode, ...] = ("ar", "dspark")
    for mode in modes:
        window = _decode(compare.of(result, case.name, arm, mode))
        if window is None:
            return None
        rates[mode] = window.tok_s
    counts = acceptance.pooled(compare.of(result, case.name, arm, "dspark"))
    if counts is None:
        return None
    speedup, limit = rates["dspark"] / rates["ar"], policy.max_dspark_ar_per_tau * counts.tau
    observed, bar = (
        f"{speedup:.3f}x AR at tau {counts.tau:.3f}",
        f"<= {policy.max_dspark_ar_per_tau:.2f} x tau",
    )
    if speedup <= limit:
        return Finding(observed, bar, None)
    fault = (
        f"DSpark ran at {speedup:.3f} times AR, but a tau of {counts.tau:.3f} allows at most {limit:.3f}: "
        "either AR was slowed or DSpark did not do the work"
    )
    return Finding(observed, bar, fault)


def check_bandwidth(result: HarnessResult, arm: Arm, policy: Policy) -> Finding | None:
    """One AR step reads every weight once, so rate times weights cannot exceed the memory's speed.

    Both arms load the same model, so main says how many bytes that is.
    """
    case = compare.scored_case(result)
    machine = result.environment.bandwidth_bytes_s
    window = _decode(compare.of(result, case.name, arm, "ar")) if case else None
    if case is None or machine is None or window is None:
        return None
    main = main_says(result, case.name)
    if main is None:
        return None
    used = window.tok_s * main.weights_bytes
    observed = f"{used / 1e9:.1f} GB/s"
    bar = f"<= {policy.max_bandwidth_share:.2f} x {machine / 1e9:.1f} GB/s"
    if used <= policy.max_bandwidth_share * machine:
        return Finding(observed, bar, None)
    fault = (
        f"AR at {window.tok_s:.1f} tok/s over {main.weights_bytes / 1e6:.0f} MB of weights needs "
        f"{used / 1e9:.1f} GB/s, but this machine reads at most {machine / 1e9:.1f} GB/s"
    )
    return Finding(observed, bar, fault)


def check_clock(result: HarnessResult, arm: Arm, policy: Policy) -> Finding | None:
    """The decode time a worker reports must agree with the manager's clock, pooled per mode."""
    worst: tuple[float, str] | None = None
    samples = _of_arm(result, arm)
    for mode in ("ar", "dspark"):
        timed = [sample for sample in samples if sample.mode == mode]
        window = _decode(timed)
        if window is None:
            continue
        reported = sum(sample.reported.decode_s for sample in timed)
        gap = abs(reported - window.seconds) / window.seconds
        text = (
            f"{mode} decode took {window.seconds:.3f} s by the manager's clock "
            f"and {reported:.3f} s by the worker's"
        )
        if worst is None or gap > worst[0]:
            worst = (gap, text)
    if worst is None:
        return None
    gap, text = worst
    fault = (
        f"{text}: {gap:.1%} apart, {policy.max_reported_gap:.0%} is allowed"
        if gap > policy.max_reported_gap
        else None
    )
    return Finding(f"{gap:.2%} apart", f"<= {policy.max_reported_gap:.0%}", fault)


def check_counters(result: HarnessResult, arm: Arm) -> Finding | None:
    """Reported rounds must agree with observed bursts, and all counts with each other.

    Both arms load the same draft, so main says how many tokens one block of it has.
    """
    known = {case.name: main_says(result, case.name) for case in result.plan.cases}
    depth = {case: main.block_size for case, main in known.items() if main is not None}
    spoken = [s for s in _of_arm(result, arm) if s.mode == "dspark" and s.case in depth and s.bursts]
    if not spoken:
        return None
    for sample in spoken:
        reason = acceptance.inconsistency(sample, depth[sample.case])
        if reason is not None:
            fault = f"case {sample.case}, prompt {sample.prompt_id}, process {sample.launch}: {reason}"
            return Finding("inconsistent", "reported = observed", fault)
    return Finding(f"{len(spoken)} generations agree", "reported = observed", None)


def check_prefill(result: HarnessResult, arm: Arm, policy: Policy) -> Finding | None:
    """Every timed prompt must be computed in full, in the ids that were sent, at temperature 0.

    Two modes run each prompt twice in one process, so a cache that the worker does not own up to shows as
    second times to first token far below the first. All of them must be: a busy machine slows some.
    """
    samples = _of_arm(result, arm)
    if not samples:
        return None
    for sample in samples:
        where = f"case {sample.case}, prompt {sample.prompt_id}, {sample.mode}"
        claim = sample.reported
        fault = None
        if claim.prefill_tokens != sample.prompt_tokens:
            fault = (
                f"{where}: the engine computed {claim.prefill_tokens} of {sample.prompt_tokens} prompt "
                "tokens; a prompt cache answered the rest, switch it off while measuring"
            )
        elif claim.prompt_sha256 != sample.prompt_sha256:
            fault = (
                f"{where}: the engine's prompt hashes to {claim.prompt_sha256[:12]}, "
                f"the one sent to {sample.prompt_sha256[:12]}"
            )
        elif claim.temperature != 0.0:
            fault = f"{where}: the engine sampled at temperature {claim.temperature}, 0 was asked for"
        if fault is not None:
            return Finding("differs", "whole prompt, as sent", fault)
    ratios = _repeat_ratios(samples)
    if len(ratios) >= ENOUGH_REPEATS and max(ratios) < policy.min_repeat_ttft:
        fault = (
            f"each of {len(ratios)} prompts, sent again, was answered in less than "
            f"{policy.min_repeat_ttft:.2f} of its first time: a prompt cache is at work, switch it off "
            "while measuring"
        )
        return Finding("cached", "whole prompt, as sent", fault)
    return Finding(f"{len(samples)} prompts computed in full", "whole prompt, as sent", None)


def check_output(result: HarnessResult, arm: Arm, policy: Policy) -> Finding | None:
    """Text that repeats itself is easy to predict: its rate and tau say nothing."""
    ratios = [(distinct_4gram(sample.token_ids), sample) for sample in _of_arm(result, arm)]
    known = [(ratio, sample) for ratio, sample in ratios if ratio is not None]
    if not known:
        return None
    least, sample = min(known, key=lambda item: item[0])
    bar = f">= {policy.min_distinct_4gram:.2f} distinct 4-grams"
    if least >= policy.min_distinct_4gram:
        return Finding(f"{least:.2f}", bar, None)
    fault = (
        f"case {sample.case}, prompt {sample.prompt_id}, {sample.mode}: the output repeats itself "
        f"({least:.2f} of its 4-grams are distinct, at least {policy.min_distinct_4gram:.2f} are needed)"
    )
    return Finding(f"{least:.2f}", bar, fault)


def check_losslessness(result: HarnessResult, arm: Arm, min_processes: int) -> Finding | None:
    """DSpark equals AR on every prompt, in enough processes. Too few processes are no fault: None."""
    samples = [sample for sample in compare.valid_samples(result) if sample.arm == arm]
    found = losslessness.within_processes(samples)
    if found is None:
        return None
    observed = f"{found.compared} prompts in {found.processes} processes"
    bar = f"token for token, >= {min_processes} processes"
    if found.fault is not None:
        return Finding("diverged", bar, found.fault)
    return Finding(observed, bar, None) if found.processes >= min_processes else None


def check_repeatable(result: HarnessResult, arm: Arm) -> Finding | None:
    """One prompt and mode give the same tokens, in the same bursts, in every process of one build.

    The two launches of an arm in a quad decode each prompt with AR and DSpark in opposite orders. An engine
    that proposes what it remembers of the AR run has longer rounds only where AR went first. None while no
    prompt was decoded by two processes.
    """
    bar = "equal in every process"
    runs: dict[tuple[str, str, Mode], list[Sample]] = {}
    for sample in _of_arm(result, arm):
        runs.setdefault((sample.case, sample.prompt_id, sample.mode), []).append(sample)
    for (case, prompt, mode), (first, *others) in runs.items():
        where = f"case {case}, prompt {prompt}"
        for other in others:
            processes = f"between processes {first.launch} and {other.launch}"
            at = losslessness.first_difference(first.token_ids, other.token_ids)
            if at is not None:
                return Finding("varies", bar, f"{where}: {mode} token {at} differs {processes}")
            sizes = [tuple(burst.tokens for burst in sample.bursts) for sample in (first, other)]
            at = losslessness.first_difference(*sizes)
            if at is not None:
                counts = " and ".join(_tokens_in(bursts, at) for bursts in sizes)
                fault = (
                    f"{where}: burst {at} of {mode} differs {processes} ({counts}), so how many drafts are "
                    "accepted follows from more than the prompt"
                )
                return Finding("varies", bar, fault)
    repeated = sum(len(samples) > 1 for samples in runs.values())
    return Finding(f"{repeated} of {len(runs)} outputs repeated", bar, None) if repeated else None


def _tokens_in(bursts: tuple[int, ...], index: int) -> str:
    return f"{bursts[index]} tokens" if index < len(bursts) else "none"


def _repeat_ratios(samples: Iterable[Sample]) -> list[float]:
    """Second time to first token over the first, of each prompt that ran twice in one process."""
    runs: dict[tuple[int, str], list[float]] = {}
    for sample in samples:
        if sample.bursts:
            runs.setdefault((sample.launch, sample.prompt_id), []).append(sample.bursts[0].elapsed_s)
    return [times[1] / times[0] for times in runs.values() if len(times) > 1 and times[0] > 0]


def _of_arm(result: HarnessResult, arm: Arm) -> list[Sample]:
    return [sample for sample in compare.valid_samples(result) if sample.arm == arm]


def _decode(samples: Iterable[Sample]) -> throughput.Window | None:
    return throughput.pooled(throughput.decode_window(sample.bursts) for sample in samples)
