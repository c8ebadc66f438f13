"""Record -> Verdict again: what the numbers say must be what the record says they say."""

from __future__ import annotations

from evalbot import by_round, publish
from evalbot.config import policy_sha256
from evalbot.errors import BadRequest
from evalbot.score import deciding, needs_confirmation, score
from evalbot.types import Analysis, Record, Verdict
from harness.calibration import pooled
from harness.schema import encode_json


def rescore(record: Record) -> Verdict:
    """The verdict from runs, policy and facts alone.

    Raises BadRequest if the record's own verdict or analysis differs from what its runs give.
    """
    bound = record.identity.policy_sha256
    if bound is not None and bound != policy_sha256(record.policy):
        raise BadRequest("The policy of the record is not the one its identity names: it was changed.")
    _check_calibration(record)
    _check_runs(record)
    verdict = score(record.runs, record.policy, record.facts)
    analysis = deciding(record.runs, record.policy)
    stored = Analysis(measurements=record.measurements, comparisons=record.comparisons, gates=record.gates)
    if encode_json(verdict) != encode_json(record.verdict):
        raise BadRequest(
            f"The record says {record.verdict.label} ({record.verdict.reason}) but its runs give "
            f"{verdict.label} ({verdict.reason}): it was changed, or written by another evalbot version."
        )
    rounds = encode_json(by_round.acceptance(record.runs)) == encode_json(record.acceptance)
    if encode_json(analysis) != encode_json(stored) or not rounds:
        raise BadRequest(
            "The measurements, comparisons, gates or acceptance of the record are not those that its runs "
            "give: it was changed, or written by another evalbot version."
        )
    return verdict


def _check_runs(record: Record) -> None:
    """A second run must be due, fresh and of the same plan, and no run may ignore what builds differ by."""
    runs, known = record.runs, record.facts.calibration
    expected = known.between_builds() if known is not None else {}
    if any(run.between_builds != expected for run in runs):
        raise BadRequest(
            "A run of the record takes other differences between builds than its calibration has."
        )
    if len(runs) < 2:
        return
    first, second = runs[0], runs[1]
    fresh = first.seed != second.seed and first.prompt_seed != second.prompt_seed
    due = needs_confirmation(first, record.policy, record.facts)
    if len(runs) > 2 or not fresh or not due or first.plan != second.plan:
        raise BadRequest(
            "The second run of the record is no fresh confirmation of the first: it was not due, or has the "
            "same seed, or another plan."
        )


def _check_calibration(record: Record) -> None:
    """The calibration must be what its own runs give, and what is said of publishing what follows from it.

    Only the reason that no calibration matched is taken as it stands: those that did not are not kept.
    """
    found = record.facts.calibration
    if record.calibration != found:
        raise BadRequest("The record holds two different calibrations: it was changed.")
    if found is not None and found != pooled(found.machine, found.epoch, found.runs):
        raise BadRequest(
            "The calibration of the record is not what its own runs give: it was changed, or written by "
            "another evalbot version."
        )
    given = publish.judge(
        record.facts, record.identity.baseline, record.runs, record.created_at, record.publishable_reason
    )
    if given != (record.publishable, record.publishable_reason):
        raise BadRequest(
            "What the record says of being publishable is not what its calibration gives: it was changed, or "
            "written by another evalbot version."
        )
