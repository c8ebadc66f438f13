"""Algorithm 1 against the recorded schedules, and the output law its early stop protects."""

from __future__ import annotations

import pytest

from engine.decoding.scheduler import schedule
from tests.engine.parity import read_json

SCHEDULER = read_json("scheduler")


@pytest.mark.parametrize("case", SCHEDULER["cases"], ids=lambda case: case["id"])
def test_lengths_and_throughput_equal_the_recorded_ones(case):
    result = schedule(case["confidence"], case["sps"])
    assert list(result.lengths) in case.get("expected_any_of", [case.get("expected")])
    assert result.throughput == pytest.approx(case["throughput"], rel=1e-8)


def test_early_stop_keeps_the_output_law_of_the_papers_appendix_a():
    law = SCHEDULER["appendix_a_output_law"]
    sps = SCHEDULER["cases"][0]["sps"]
    survival = sum(min(law["p"][x], law["q"][x]) for x in "AB")
    emitted = dict.fromkeys("AB", 0.0)
    for drafted in "AB":
        (length,) = schedule([[survival, law["confidence_after"][drafted]]], sps).lengths
        if length == 0:
            for token in "AB":
                emitted[token] += law["q"][drafted] * law["p"][token]
            continue
        passes = min(1.0, law["p"][drafted] / law["q"][drafted])
        emitted[drafted] += law["q"][drafted] * passes
        excess = {x: max(law["p"][x] - law["q"][x], 0.0) for x in "AB"}
        for token in "AB":
            emitted[token] += law["q"][drafted] * (1 - passes) * excess[token] / sum(excess.values())
    assert emitted == pytest.approx(law["with_early_stop"])


def test_capacity_table_shorter_than_the_requests_is_refused():
    with pytest.raises(ValueError, match="3 active requests need at least 3"):
        schedule([[0.5], [0.5], [0.5]], [1.0, 1.0])


def test_lengths_end_where_the_capacity_table_ends():
    assert schedule([[1.0, 1.0, 1.0]], [1.0, 1.0]).lengths == (1,)


def test_no_requests_need_no_table():
    assert schedule([], []).lengths == ()
