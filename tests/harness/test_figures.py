"""Numbers as text: never on another side of a bar than the number itself, and enough digits to check."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import figures
from harness.schema import Comparison, Interval, Measurement

BARS = st.sampled_from([2.0, 3.5, 6.0, 10.0, 18.0, 0.98])


@pytest.mark.parametrize(
    ("value", "shown"),
    [(9.9996, "+9.99%"), (10.0, "+10.00%"), (-0.001, "-0.01%"), (0.0, "+0.00%"), (-1e-12, "+0.00%")],
)
def test_rounding_never_lifts_a_number_over_a_bar(value: float, shown: str) -> None:
    assert figures.percent(value) == shown


def test_a_percentage_beyond_all_digits_is_no_riddle() -> None:
    assert figures.percent(1e20) == "+100000000000000000000.00%"
    with pytest.raises(OverflowError, match=r"1e\+30 % has too many digits to be shown"):
        figures.percent(1e30)


def test_what_is_claimed_to_be_enough_is_rounded_up() -> None:
    assert figures.percent(1.2301, signed=False, up=True) == "1.24%"
    assert figures.percent(1.23, signed=False, up=True) == "1.23%"


@given(st.floats(-50.0, 50.0), BARS)
def test_a_shown_percentage_is_on_its_own_side_of_every_bar(value: float, bar: float) -> None:
    assert (float(figures.percent(value).rstrip("%")) >= bar) == (round(value, 9) >= bar)


@given(st.floats(0.5, 2000.0), st.floats(0.5, 2.0), st.floats(0.5, 2000.0))
def test_the_shown_values_give_what_is_shown_beside_them(main: float, ratio: float, ar: float) -> None:
    change = main * ratio
    extra = figures.extra_digits([(change, main, figures.change), (main, ar, figures.times)])
    shown = {value: float(figures.number(value, extra)) for value in (main, change, ar)}
    assert figures.change(shown[change] / shown[main]) == figures.change(change / main)
    assert figures.times(shown[main] / shown[ar]) == figures.times(main / ar)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(2.909, "2.909"), (49.958, "49.96"), (112.44, "112.4"), (1538.3, "1538"), (0.0, "0.000")],
)
def test_a_number_keeps_four_significant_digits(value: float, shown: str) -> None:
    assert figures.number(value) == shown


@given(st.floats(-1000, 1000), BARS)
def test_a_value_beside_its_bar_stays_on_its_side(value: float, bar: float) -> None:
    assert (float(figures.beside(value, bar)) >= bar) == (value >= bar)
    assert (float(figures.beside(value, bar, most=True)) <= bar) == (value <= bar)


def test_a_value_just_below_a_tier_does_not_look_like_it() -> None:
    assert figures.beside(9.9996, 10.0) == "9.9996"
    assert figures.apart(1.17955, 1.1796, 4) == ("1.17955", "1.17960")


@given(st.floats(0.0, 10.0), st.floats(0.0, 10.0))
def test_two_measured_values_keep_their_order(value: float, bar: float) -> None:
    shown, limit = figures.apart(value, bar, 4)
    assert (float(shown) >= float(limit)) == (value >= bar)


@given(st.floats(1e-3, 5000.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.integers(0, 3))
def test_a_value_is_shown_within_its_interval(value: float, down: float, up: float, extra: int) -> None:
    bounds = Interval(low=value * (1 - down), high=value * (1 + up))
    shown = figures.measurement(
        Measurement(name="main:dspark", unit="tok/s", arm="baseline", value=value, n=16, interval=bounds),
        extra,
    )
    point, low, high = (float(part.strip("[],")) for part in shown.split()[:3])
    assert low <= point <= high


def test_a_rate_is_shown_with_its_interval_and_n() -> None:
    measured = Measurement(
        name="main:dspark", unit="tok/s", arm="baseline", value=112.44, n=16,
        interval=Interval(low=111.91, high=113.02),
    )  # fmt: skip
    assert figures.measurement(measured) == "112.4 [111.9, 113.0] n=16"
    assert figures.measurement(measured, unit="tok/s") == "112.4 tok/s [111.9, 113.0] n=16"
    assert figures.measurement(None) == "not measured"


def test_a_change_is_shown_with_its_interval_and_n() -> None:
    found = Comparison(
        name="main:dspark", unit="tok/s", baseline=50.0, candidate=55.0, ratio=1.1,
        interval=Interval(low=1.092, high=1.10999), pairs=8,
    )  # fmt: skip
    assert figures.comparison(found) == "+10.00% [+9.20%, +10.99%] n=8"
