"""Published evaluations of others through our judge: their label by their rule, the right outcome by ours."""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec
import pytest

from evalbot.score import decide
from evalbot.types import Facts, Verdict
from harness.schema import Interval
from tests.evalbot.public_records import CAREFUL, POLICY, PUBLISHED, STRICT, judge, seen
from tests.fakes.published import RECORDS, SPREADS_PCT, PublicRecord

BY_ID = {record.id: record for record in RECORDS}
REJECTED = [record for record in RECORDS if record.right_outcome == "reject"]
UNDER_OVERRIDE = ("pr868-run1", "pr869-run1")
"""tau fell although both arms ran under one override, which explains times and no difference in counts."""


def each(records: list[PublicRecord] | tuple[PublicRecord, ...]) -> list[object]:
    return [pytest.param(record, id=record.id) for record in records]


def reaches(verdict: Verdict, right_outcome: str) -> bool:
    if right_outcome == "not-gradable":
        return verdict.tier is None and verdict.outcome != "reject"
    outcome, _, tier = right_outcome.partition(":")
    return (verdict.outcome, verdict.tier) == (outcome, tier or None)


def test_the_file_is_whole() -> None:
    assert len(BY_ID) == len(RECORDS) == 41
    assert sum(record.consistent is True for record in RECORDS) == 29


@pytest.mark.parametrize("record", each([record for record in RECORDS if record.consistent]))
def test_a_consistent_label_follows_from_its_numbers(record: PublicRecord) -> None:
    assert judge(record, PUBLISHED).label == f"eval-dspark:{record.published_label}"


@pytest.mark.parametrize("record", each([record for record in RECORDS if record.rule_label is not None]))
def test_the_published_rule_gives_what_the_file_says_it_gives(record: PublicRecord) -> None:
    assert judge(record, PUBLISHED).label == f"eval-dspark:{record.rule_label}"


@pytest.mark.parametrize("record", each(RECORDS))
def test_the_right_outcome_is_reached(record: PublicRecord) -> None:
    verdict = judge(record, CAREFUL)
    assert reaches(verdict, record.right_outcome), (record.right_outcome, verdict.label, verdict.reason)


@pytest.mark.parametrize("name", UNDER_OVERRIDE)
def test_a_lost_tau_is_rejected_under_an_override_of_both_arms_and_speed_is_not_read(name: str) -> None:
    record = BY_ID[name]
    verdict = judge(record, CAREFUL)
    assert verdict.outcome == "reject"
    assert verdict.axis in ("tau-floor", "accepted-floor")
    run = seen(record, CAREFUL)
    kept = replace(run, failed=tuple(g for g in run.failed if g.name == "configuration"))
    assert decide((kept, kept), POLICY, Facts()).outcome == "error"


@pytest.mark.parametrize("record", each(RECORDS))
def test_a_gate_without_figures_leaves_no_tier(record: PublicRecord) -> None:
    assert judge(record, STRICT).tier is None


@pytest.mark.parametrize("record", each(RECORDS))
def test_only_a_measured_failure_rejects_however_gaps_are_read(record: PublicRecord) -> None:
    for reading in (CAREFUL, STRICT):
        if judge(record, reading).outcome == "reject":
            assert record.right_outcome == "reject"


@pytest.mark.parametrize("record", each([record for record in REJECTED if record.id not in UNDER_OVERRIDE]))
def test_a_rejection_names_the_worst_gate_with_its_numbers(record: PublicRecord) -> None:
    verdict, failed = judge(record, CAREFUL), seen(record, CAREFUL).failed
    assert verdict.axis == failed[0].name
    assert verdict.reason.startswith(failed[0].reason.rstrip("."))
    assert verdict.reason not in ("True.", "False.")
    if len(failed) > 1:
        assert f"{len(failed) - 1} more gate" in verdict.reason
    for gate in failed:
        assert gate.name == "losslessness" or len(re.findall(r"\d+\.\d+", gate.reason)) >= 2, gate


@pytest.mark.parametrize(
    ("name", "gates"),
    [
        ("pr897-run1", {"losslessness"}),
        ("pr902-run1", {"tau-floor", "accepted-floor", "dspark-floor"}),
        ("pr948-run2", {"tau-floor", "accepted-floor", "dspark-floor"}),
        ("pr987-run1", {"dspark-floor", "guard:dspark-decode@4k:decode"}),
    ],
)
def test_every_failed_gate_of_a_rejected_record_is_found(name: str, gates: set[str]) -> None:
    assert {gate.name for gate in seen(BY_ID[name], CAREFUL).failed} == gates


def test_the_worst_axis_is_named_and_not_the_one_that_was_published() -> None:
    assert "dspark-decode@16k:dspark runs at 91.88" in judge(BY_ID["pr987-run1"], CAREFUL).reason


def test_metrics_that_are_all_zero_are_no_regression() -> None:
    record = BY_ID["pr930-run1"]
    verdict = judge(record, CAREFUL)
    assert verdict.outcome == "error"
    assert "DSpark decode (dspark-decode@16k)" in verdict.reason
    assert not seen(record, CAREFUL).failed


def test_arms_measured_with_different_rulers_are_an_error_whatever_they_read() -> None:
    record = BY_ID["pr878-run2"]
    assert {gate.name for gate in seen(record, CAREFUL).failed} == {"ar-floor", "dspark-floor"}
    assert judge(record, CAREFUL).outcome == "error"
    assert "different rulers" in judge(record, CAREFUL).reason


@pytest.mark.parametrize("name", ["pr867-run1", "pr872-run1"])
def test_a_gain_under_an_override_is_not_gradable(name: str) -> None:
    verdict = judge(BY_ID[name], CAREFUL)
    assert (verdict.outcome, verdict.axis) == ("error", "configuration")


def test_a_gain_inside_the_spread_of_its_axis_is_not_a_gain() -> None:
    record = BY_ID["pr1007-run1"]
    assert record.axis_gain_pct is not None
    assert record.axis_gain_pct < SPREADS_PCT[record.axis]
    assert judge(record, CAREFUL).gain_pct == pytest.approx(record.best_dspark_gain_pct, abs=0.005)


def test_no_record_outruns_its_tau() -> None:
    for record in RECORDS:
        if record.dspark_vs_ar and record.pr_tau:
            assert record.dspark_vs_ar <= POLICY.max_dspark_ar_per_tau * record.pr_tau


def test_as_an_interval_the_spread_of_an_axis_leaves_no_tier_either() -> None:
    record = BY_ID["pr1007-run1"]
    found, half = seen(record, PUBLISHED), SPREADS_PCT[record.axis] / 100
    point = found.headline
    assert point is not None
    assert decide((found,), POLICY, Facts()).tier == "XS"
    bounds = Interval(low=point.ratio - half, high=point.ratio + half)
    wide = replace(found, headline=msgspec.structs.replace(point, interval=bounds, bounds=bounds))
    assert decide((wide,), POLICY, Facts()).outcome == "inconclusive"
