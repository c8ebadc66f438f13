"""Record -> Verdict again: what the numbers say must be what the record says they say."""

from __future__ import annotations

from evalbot.config import policy_sha256
from evalbot.errors import BadRequest
from evalbot.score import deciding, score
from evalbot.types import Analysis, Record, Verdict
from harness.schema import encode_json


def rescore(record: Record) -> Verdict:
    """The verdict from runs, policy and facts alone.

    Raises BadRequest if the record's own verdict or analysis differs from what its runs give.
    """
    bound = record.identity.policy_sha256
    if bound is not None and bound != policy_sha256(record.policy):
        raise BadRequest("The policy of the record is not the one its identity names: it was changed.")
    verdict = score(record.runs, record.policy, record.facts)
    analysis = deciding(record.runs, record.policy)
    stored = Analysis(measurements=record.measurements, comparisons=record.comparisons, gates=record.gates)
    if encode_json(verdict) != encode_json(record.verdict):
        raise BadRequest(
            f"The record says {record.verdict.label} ({record.verdict.reason}) but its runs give "
            f"{verdict.label} ({verdict.reason}): it was changed, or written by another evalbot version."
        )
    if encode_json(analysis) != encode_json(stored):
        raise BadRequest(
            "The measurements, comparisons or gates of the record are not those that its runs give: "
            "it was changed, or written by another evalbot version."
        )
    return verdict
