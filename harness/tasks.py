"""What a launch is asked to do: admit prompts, time them, score windows, or weigh a first difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from harness import prompts, schedule
from harness.client import Client, Generation
from harness.corpus import CorpusError, ModelView
from harness.metrics.accuracy import Matrix
from harness.plausibility import distinct_4gram
from harness.prompts import Prompt
from harness.schedule import Slot
from harness.schema import Admission, Case, Divergence, Mode, Policy, ReportedGeneration, RunPlan, Sample

MAX_DRAWS = 8
"""Windows tried for each prompt before the corpus is called unfit for the model."""
LEAST_CONTINUATION = 0.75
"""Share of the asked tokens that a continuation must reach: a rate over a few tokens says little."""
WARMUP_NEW_TOKENS = 8

IMPOSSIBLE_NATS = 1e6
"""Stands for the margin of a token to which main gives no probability at all: infinity enters no record."""

Spoken = Callable[[Divergence], tuple[tuple[int, ...], tuple[int, ...]]]
"""Ids of the prompt on which a difference was found, and all that the candidate generated after it."""

Drawn = dict[tuple[str, int], tuple[Prompt, ...]]
"""Prompts of each (case, quad), one per domain."""


@dataclass(frozen=True)
class Admitted:
    prompts: Drawn
    record: tuple[Admission, ...]


def admit(
    client: Client, view: ModelView, wanted: Sequence[tuple[Case, range]], policy: Policy, seed: int
) -> Admitted:
    """Draw the prompts of the ``wanted`` quads and keep those that main continues at length without a loop.

    The rule sees main's AR output only, so no candidate can bend the choice. Raises CorpusError when
    a domain yields no such window in ``MAX_DRAWS`` draws.
    """
    client.stage = "generate"
    drawn: Drawn = {}
    record: list[Admission] = []
    for case, quads in wanted:
        for quad in quads:
            drawn[case.name, quad] = tuple(
                _admit_one(client, view, case, f"{seed}/{case.name}/{quad}", domain, policy, record)
                for domain in case.domains
            )
    return Admitted(drawn, tuple(record))


def time_prompts(
    client: Client,
    view: ModelView,
    case: Case,
    slot: Slot,
    chosen: Sequence[Prompt],
    plan: RunPlan,
    seed: int,
    launch: int,
) -> tuple[Sample, ...]:
    """Warm up on other prompts, then time every prompt of the quad in every mode of the case."""
    warm_up(client, view, case, plan, f"{seed}/{case.name}/{slot.quad}/warmup")
    client.stage = "generate"
    samples = []
    for index, prompt in enumerate(chosen):
        prompts.refuse_synthetic(view, prompt)
        for mode in schedule.modes(seed, case, slot, index):
            seen = client.generate(prompt.ids, mode, case.new_tokens, view.entry.stop_ids)
            samples.append(_sample(case, slot, launch, prompt, mode, seen, view.entry.stop_ids))
    return tuple(samples)


def warm_up(client: Client, view: ModelView, case: Case, plan: RunPlan, key: str) -> None:
    """Untimed generations in every mode, on prompts that are not measured.

    An engine fixes its depth per generation, from the context, so one DSpark generation at the case's
    context visits the verify width that is timed there; shorter ones visit the other bands.
    """
    client.stage = "warmup"
    length = min(case.context_tokens, plan.warmup_tokens or case.context_tokens)
    prompt = prompts.draw(view, case.domains[0], length, key)
    for mode in case.modes:
        client.generate(prompt.ids, mode, min(WARMUP_NEW_TOKENS, case.new_tokens), view.entry.stop_ids)


def score_windows(client: Client, windows: Sequence[Prompt], positions: int) -> list[Matrix]:
    """Log-probabilities [positions, vocab] of each window."""
    return [client.score(window.ids, positions) for window in windows]


def weigh(client: Client, found: Sequence[Divergence], spoken: Spoken) -> tuple[Divergence, ...]:
    """How much main prefers its own token at each difference, and its own choice at any token after it.

    After a difference the two texts are no longer comparable, so main is asked what it would say after the
    candidate's own tokens. One pass scores them all.
    """
    weighed = []
    for item in found:
        if item.baseline_token is None or item.candidate_token is None:
            weighed.append(item)
            continue
        prompt, output = spoken(item)
        rows = client.score((*prompt, *output), len(output))[item.position :]
        said = np.array(output[item.position :], dtype=np.int64)
        of_said = rows[np.arange(len(said)), said].astype(np.float64)
        lost = rows.max(axis=1) - of_said
        worst = int(lost.argmax())
        weighed.append(
            msgspec.structs.replace(
                item,
                margin_nats=_finite(float(rows[0, item.baseline_token]) - float(of_said[0])),
                worst_position=item.position + worst,
                worst_margin_nats=_finite(float(lost[worst])),
            )
        )
    return tuple(weighed)


def _finite(margin: float) -> float | None:
    """None where main gives neither of two tokens a probability, which is no margin."""
    return None if np.isnan(margin) else float(np.clip(margin, -IMPOSSIBLE_NATS, IMPOSSIBLE_NATS))


def _admit_one(
    client: Client,
    view: ModelView,
    case: Case,
    key: str,
    domain: str,
    policy: Policy,
    record: list[Admission],
) -> Prompt:
    for attempt in range(MAX_DRAWS):
        prompt = prompts.draw(view, domain, case.context_tokens, f"{key}/{attempt}")
        prompts.refuse_synthetic(view, prompt)
        seen = client.generate(prompt.ids, "ar", case.new_tokens, view.entry.stop_ids)
        distinct = distinct_4gram(seen.token_ids)
        long_enough = len(seen.token_ids) >= LEAST_CONTINUATION * case.new_tokens
        admitted = long_enough and distinct is not None and distinct >= policy.min_distinct_4gram
        record.append(
            Admission(
                case=case.name,
                prompt_id=prompt.id,
                domain=domain,
                tokens=len(seen.token_ids),
                distinct_4gram=distinct,
                admitted=admitted,
            )
        )
        if admitted:
            return prompt
    raise CorpusError(
        f"None of {MAX_DRAWS} windows of domain {domain!r} was continued by main without a loop and to "
        f"{LEAST_CONTINUATION:.0%} of {case.new_tokens} tokens (case {case.name}): pin other texts."
    )


def _sample(
    case: Case,
    slot: Slot,
    launch: int,
    prompt: Prompt,
    mode: Mode,
    seen: Generation,
    stop_ids: tuple[int, ...],
) -> Sample:
    done = seen.done
    return Sample(
        case=case.name,
        arm=slot.arm,
        mode=mode,
        quad=slot.quad,
        slot=slot.slot,
        launch=launch,
        prompt_id=prompt.id,
        domain=prompt.origin.domain,
        prompt_tokens=len(prompt.ids),
        prompt_sha256=prompt.sha256,
        requested_tokens=case.new_tokens,
        token_ids=seen.token_ids,
        bursts=seen.bursts,
        reported=ReportedGeneration(
            prefill_tokens=done.prefill_tokens,
            prompt_sha256=done.prompt_sha256,
            proposed=done.proposed,
            accepted=done.accepted,
            decode_s=done.decode_s,
            finish_reason=done.finish_reason,
            temperature=done.temperature,
            peak_memory_bytes=done.peak_memory_bytes,
        ),
        observed_stop=seen.token_ids[-1:] != () and seen.token_ids[-1] in stop_ids,
    )
