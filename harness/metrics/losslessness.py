"""Token-for-token equality: DSpark against AR in one process, and AR of one arm against the other.

Empty output, or output shorter than asked for without an end of sequence, never counts as equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.schema import Divergence, Sample


@dataclass(frozen=True)
class Losslessness:
    """What the comparison of every prompt in every process found."""

    compared: int
    processes: int
    """Independent worker processes in which every prompt was compared and equal."""
    fault: str | None
    """The first fault as a sentence; None when every comparison was equal."""


def incomplete(sample: Sample) -> str | None:
    """Why an output may not be compared at all; None when it may."""
    if not sample.token_ids:
        return f"{sample.mode} returned no tokens"
    if len(sample.token_ids) > sample.requested_tokens:
        return f"{sample.mode} returned {_share(sample)}"
    stopped = sample.reported.finish_reason == "stop"
    if stopped and sample.observed_stop is False:
        return (
            f"{sample.mode} says that it stopped, after {_share(sample)}, the last of which is no stop token"
        )
    if len(sample.token_ids) < sample.requested_tokens and not stopped:
        return f"{sample.mode} returned {_share(sample)} without a stop token"
    return None


def first_difference(reference: tuple[int, ...], other: tuple[int, ...]) -> int | None:
    """Index of the first differing token, counting a missing token as different; None when equal."""
    for index, (a, b) in enumerate(zip(reference, other, strict=False)):
        if a != b:
            return index
    return None if len(reference) == len(other) else min(len(reference), len(other))


def within_processes(samples: Iterable[Sample]) -> Losslessness | None:
    """DSpark against AR on every prompt of every launch; None where nothing can be compared."""
    launches: dict[int, dict[tuple[str, str], dict[str, Sample]]] = {}
    for sample in samples:
        prompts = launches.setdefault(sample.launch, {})
        prompts.setdefault((sample.case, sample.prompt_id), {})[sample.mode] = sample
    compared, processes, fault = 0, 0, None
    for launch, prompts in launches.items():
        clean = True
        pairs = [modes for modes in prompts.values() if len(modes) == 2]
        for modes in pairs:
            compared += 1
            found = _difference(modes["ar"], modes["dspark"])
            if found is not None:
                clean, fault = False, fault or f"{found} (process {launch})"
        processes += bool(pairs) and clean
    return Losslessness(compared, processes, fault) if compared else None


def between_arms(samples: Iterable[Sample]) -> tuple[Divergence, ...]:
    """First difference of each prompt on which the candidate's AR output leaves the baseline's."""
    outputs: dict[tuple[str, str], dict[str, Sample]] = {}
    found: dict[tuple[str, str], Divergence] = {}
    ar = [sample for sample in samples if sample.mode == "ar"]
    for sample in ar:
        if sample.arm == "baseline":
            outputs.setdefault((sample.case, sample.prompt_id), {})["baseline"] = sample
    for sample in ar:
        key = (sample.case, sample.prompt_id)
        reference = outputs.get(key, {}).get("baseline")
        if sample.arm == "baseline" or reference is None or key in found:
            continue
        at = first_difference(reference.token_ids, sample.token_ids)
        if at is not None:
            found[key] = Divergence(
                case=sample.case,
                prompt_id=sample.prompt_id,
                position=at,
                baseline_token=_token(reference, at),
                candidate_token=_token(sample, at),
                margin_nats=None,
            )
    return tuple(found.values())


def found_in(sample: Sample, item: Divergence) -> bool:
    """Whether ``sample`` is an AR output of the candidate that holds this difference."""
    return (
        (sample.arm, sample.mode) == ("candidate", "ar")
        and (sample.case, sample.prompt_id) == (item.case, item.prompt_id)
        and _token(sample, item.position) == item.candidate_token
    )


def _share(sample: Sample) -> str:
    return f"{len(sample.token_ids)} of {sample.requested_tokens} tokens"


def _token(sample: Sample, index: int) -> int | None:
    return sample.token_ids[index] if index < len(sample.token_ids) else None


def _difference(ar: Sample, dspark: Sample) -> str | None:
    where = f"case {ar.case}, prompt {ar.prompt_id}"
    for sample in (ar, dspark):
        reason = incomplete(sample)
        if reason is not None:
            return f"{where}: {reason}"
    at = first_difference(ar.token_ids, dspark.token_ids)
    if at is None:
        return None
    return f"{where}: token {at} is {_token(dspark, at)} with DSpark and {_token(ar, at)} with AR"
