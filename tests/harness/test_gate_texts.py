"""What a gate shows never contradicts its state: rounding lifts nothing over a bar."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import gates
from harness.paired import Axis, Looks
from harness.schema import AccuracyBars, Case, Comparison, GateResult, Interval, Policy
from tests.fakes.results import result

CASE = Case(name="chat", role="scored", model="m", context_tokens=1, new_tokens=2, domains=("prose",))
NEAR = st.floats(0.97, 0.99) | st.floats(0.97995, 0.98005)


def axis(kind: str, baseline: float, ratio: float, bounds: Interval | None) -> dict[str, Axis]:
    compared = Comparison(
        name=f"chat:{kind}", unit="", baseline=baseline, candidate=baseline * ratio, ratio=ratio,
        interval=bounds, floor_bounds=bounds, pairs=8,
    )  # fmt: skip
    return {compared.name: Axis(compared, None, Looks((8,), 0))}


def numbers(gate: GateResult) -> list[float]:
    return [float(found) for found in re.findall(r"\d+\.\d+", gate.observed)]


@given(NEAR, st.floats(0.0, 0.02))
def test_the_shown_bounds_of_a_rate_give_its_state(low: float, width: float) -> None:
    axes = axis("ar", 50.0, low + width / 2, Interval(low=low, high=low + width))
    gate = gates.rate_floor("ar-floor", "chat:ar", 0.98, axes)
    _, least, most = numbers(gate)
    assert gate.state == ("PASS" if least >= 0.98 else "FAIL" if most < 0.98 else "NOT_RUN")


@given(st.floats(0.5, 4.0), NEAR.map(lambda ratio: ratio - 0.03))
def test_the_shown_count_and_floor_give_their_state(main: float, ratio: float) -> None:
    gate = gates.count_floor("tau-floor", CASE, "tau", 0.95, 0.0, axis("tau", main, ratio, None))
    found = re.search(r"is (\S+) .* floor of (\S+) ", gate.reason)
    assert found is not None
    assert gate.state == ("PASS" if float(found[1]) >= float(found[2]) else "FAIL")


def test_an_allowance_below_the_share_is_named_beside_it() -> None:
    axes = axis("accepted", 1.2469, 0.5249, None)
    found = gates.count_floor("accepted-floor", CASE, "accepted", 0.95, 0.005, axes)
    assert found.bar == ">= 95% of main less 0.005"
    assert found.reason.endswith("misses the floor of 1.1796 (95% of main less 0.005).")
    bare = gates.count_floor("accepted-floor", CASE, "accepted", 0.95, 0.0, axes)
    assert bare.bar == ">= 95% of main"
    assert bare.reason.endswith("misses the floor of 1.1846 (95% of main).")


@pytest.mark.parametrize(("top1", "kl"), [(0.89996, 0.0), (0.95, 0.1000004), (0.9, 0.1)])
def test_the_shown_accuracy_gives_its_state(top1: float, kl: float) -> None:
    gate = gates.accuracy(result(top1=top1, kl=kl), Policy())
    agreed, nats = numbers(gate)[-2:]
    assert gate.state == ("PASS" if agreed >= 0.9 and nats <= 0.1 else "FAIL")


def test_a_bar_of_half_a_percent_is_shown_as_it_is() -> None:
    bounds = Interval(low=0.99, high=1.01)
    gate = gates.rate_floor("ar-floor", "chat:ar", 0.985, axis("ar", 50.0, 1.0, bounds))
    assert gate.bar == ">= 98.5% of main"
    assert gate.reason.endswith("clears 0.985.")


def test_accuracy_bars_of_the_policy_are_the_ones_compared() -> None:
    strict = msgspec.structs.replace(Policy(), accuracy=AccuracyBars(top1_min=0.99))
    assert gates.accuracy(result(top1=0.98), strict).state == "FAIL"
