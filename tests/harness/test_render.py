"""Numbers as text: never on another side of a bar than the number itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness import render
from harness.schema import Interval, Measurement, Policy
from tests.fakes.results import result


def test_a_rate_is_shown_with_its_interval_and_n() -> None:
    measured = Measurement(
        name="main:dspark",
        unit="tok/s",
        arm="baseline",
        value=112.44,
        n=16,
        interval=Interval(low=111.91, high=113.02),
    )
    assert render.measurement(measured) == "112.4 tok/s [111.9, 113.0] n=16"


def test_what_was_not_measured_is_not_zero() -> None:
    assert render.measurement(None) == render.comparison(None) == "not measured"


@given(st.floats(-1000, 1000), st.sampled_from([2.0, 3.5, 6.0, 10.0, 18.0, 0.98]))
def test_rounding_never_crosses_a_bar(value: float, bar: float) -> None:
    assert (float(render.beside(value, bar)) >= bar) == (value >= bar)


def test_a_value_just_below_a_tier_does_not_look_like_it() -> None:
    assert render.beside(9.9996, 10.0) == "9.9996"


def test_every_measured_axis_is_in_the_table() -> None:
    rows = {row[0]: row for row in render.table(result(dspark=1.1), Policy())}
    assert rows["main:dspark"][3].startswith("+10.00 %")
    assert rows["main:ttft"][3] == "not measured"
    assert "main:tau" in rows
