"""A result as plain text."""

from __future__ import annotations

from harness import render
from harness.schema import Policy
from tests.fakes.results import result


def test_every_measured_axis_is_in_the_table() -> None:
    rows = {row[0]: row for row in render.table(result(dspark=1.1), Policy())}
    assert rows["main:dspark"][1].split()[1] == "tok/s"
    assert rows["main:dspark"][3].startswith("+10.00%")
    assert rows["main:ttft"][3] == "not measured"
    assert "main:tau" in rows
