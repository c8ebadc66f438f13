"""Acceptance in the record: counted from what arrived, checked by rescore, shown under a fold."""

from __future__ import annotations

import msgspec
import pytest

from evalbot import by_round
from evalbot.comment import markdown
from evalbot.errors import BadRequest
from evalbot.rescore import rescore
from harness import compare
from tests.evalbot.results import Behaviour, run
from tests.evalbot.test_record import record_of

RUN = run(candidate=Behaviour(rounds=(1, 2, 4)))
RECORD = record_of(RUN)


def test_every_case_and_arm_has_its_rounds_counted_from_the_bursts() -> None:
    assert [(item.case, item.arm) for item in RECORD.acceptance] == [
        (case, arm) for case in ("chat", "long") for arm in ("baseline", "candidate")
    ]
    for item in RECORD.acceptance:
        bursts = [s.bursts[1:] for s in compare.of(RUN, item.case, item.arm, "dspark")]
        assert item.rounds == sum(map(len, bursts)) == sum(item.histogram)
        assert item.committed_tokens == sum(burst.tokens for each in bursts for burst in each)
        assert item.accepted_drafts == item.committed_tokens - item.rounds


def test_the_record_holds_the_same_tau_as_the_table_and_says_what_it_is() -> None:
    scored = RECORD.acceptance[1]
    tau = compare.value_of(RECORD.measurements, "chat:tau", "candidate")
    assert tau is not None
    assert scored.committed_tokens / scored.rounds == tau.value
    assert RECORD.definitions["tau"].startswith("tau = committed tokens / verify rounds")


def test_changed_acceptance_is_noticed() -> None:
    first, *rest = RECORD.acceptance
    more = msgspec.structs.replace(first, accepted_drafts=first.accepted_drafts + 1)
    with pytest.raises(BadRequest, match="acceptance of the record"):
        rescore(msgspec.structs.replace(RECORD, acceptance=(more, *rest)))
    with pytest.raises(BadRequest, match="acceptance of the record"):
        rescore(msgspec.structs.replace(RECORD, acceptance=()))


def test_the_fold_shows_histogram_survival_and_definition_and_nothing_without_rounds() -> None:
    text = by_round.folded(RECORD)
    assert text.startswith("\n<details><summary>")
    assert text.endswith("</details>\n")
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
    item = RECORD.acceptance[1]
    assert f"| {item.rounds} | {item.committed_tokens / item.rounds:.3f} |" in table[3]
    assert ", ".join(f"{i}: {n}" for i, n in enumerate(item.histogram)) in table[3]
    assert "tau = committed tokens" in text
    assert by_round.folded(record_of()) == ""
    assert "<details>" not in markdown(RECORD)


def test_what_a_worker_did_not_count_is_not_known() -> None:
    unknown = msgspec.structs.replace(
        RECORD.acceptance[0], proposed_drafts=None, idle_rounds=None, survival=None
    )
    text = by_round.folded(msgspec.structs.replace(RECORD, acceptance=(unknown,)))
    assert text.count(by_round.UNKNOWN) == 3
