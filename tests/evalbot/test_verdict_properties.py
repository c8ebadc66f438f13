"""What holds of every verdict, and of everything shown of it, whatever was measured."""

from __future__ import annotations

import io
import json
import math
import random
import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from evalbot import record as records
from evalbot import rows
from evalbot.comment import markdown
from evalbot.errors import BadRequest
from evalbot.score import Seen, analyse, decide, score
from evalbot.table import show
from evalbot.types import Facts, Record, Verdict
from harness.schema import Comparison, HarnessResult, Interval, Measurement, encode_json
from tests.evalbot.results import Behaviour, run
from tests.evalbot.test_record import record_of
from tests.evalbot.worlds import BARS, POLICY, TIMED, World, comparisons, runs_seen, worlds

quick = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=100)
TIERS = POLICY.tiers_pct.__struct_fields__


def judged(*runs: World) -> Verdict:
    """As the pipeline does it: a second measurement where the first one has a failure."""
    first, second = (world.seen() for world in runs)
    return decide((first, second) if first.failed else (first,), POLICY, Facts())


def rank(verdict: Verdict) -> int:
    """Rejected, nothing earned, then the tiers. That none is better than inconclusive nobody claims."""
    if verdict.tier is not None:
        return 2 + TIERS.index(verdict.tier)
    return 0 if verdict.outcome == "reject" else 1


@quick
@given(
    first=worlds(),
    second=worlds(),
    axis=st.sampled_from(TIMED) | st.just("main:dspark"),
    by=st.floats(0.0, 0.2),
)
def test_a_faster_candidate_never_gets_less(first: World, second: World, axis: str, by: float) -> None:
    slower, faster = judged(first, second), judged(first.faster(axis, by), second.faster(axis, by))
    assert rank(slower) <= rank(faster), (slower, faster)


@quick
@given(runs=st.lists(runs_seen(), min_size=1, max_size=2).map(tuple))
def test_a_tier_needs_every_gate_passed_in_every_run_and_its_bound(runs: tuple[Seen, ...]) -> None:
    verdict = decide(runs, POLICY, Facts())
    assert (verdict.tier is not None) == (verdict.outcome == "improved")
    if verdict.tier is not None:
        assert {gate.state for each in runs for gate in each.gates} == {"PASS"}
        assert not any(each.fault or each.absent or each.unfit for each in runs)
        assert verdict.bounds_pct is not None
        assert round(verdict.bounds_pct.low, 9) >= getattr(POLICY.tiers_pct, verdict.tier)


@quick
@given(runs=st.lists(runs_seen(), min_size=1, max_size=2).map(tuple), identical=st.booleans())
def test_a_rejection_needs_one_gate_that_failed_in_both_runs(runs: tuple[Seen, ...], identical: bool) -> None:
    verdict = decide(runs, POLICY, Facts(identical=identical))
    failed = [{gate.name for gate in each.gates if gate.state == "FAIL"} for each in runs]
    if verdict.outcome == "reject":
        assert len(runs) == 2
        assert not identical
        assert verdict.axis in failed[0] & failed[1]


@quick
@given(runs=st.lists(runs_seen(), min_size=1, max_size=2).map(tuple), seed=st.integers(0, 99))
def test_the_order_of_gates_changes_no_judgement(runs: tuple[Seen, ...], seed: int) -> None:
    shuffled = tuple(_shuffled_gates(each, seed) for each in runs)
    one, other = decide(runs, POLICY, Facts()), decide(shuffled, POLICY, Facts())
    for field in ("outcome", "tier", "label", "advice", "gain_pct", "bounds_pct"):
        assert getattr(one, field) == getattr(other, field)


def _shuffled_gates(seen: Seen, seed: int) -> Seen:
    order = list(seen.gates)
    random.Random(seed).shuffle(order)
    failed = tuple(gate for gate in order if gate.state == "FAIL")
    return Seen(tuple(order), failed, seen.headline, seen.fault, seen.absent, seen.unfit)


@settings(quick, max_examples=12)
@given(
    candidate=st.sampled_from(
        [
            Behaviour(),
            Behaviour(dspark_tok_s=55.0, noise=0.01),
            Behaviour(dspark_tok_s=45.0),
            Behaviour(noise=0.05),
        ]
    ),
    seed=st.integers(0, 99),
)
def test_the_order_of_samples_and_launches_changes_nothing_that_is_said(
    candidate: Behaviour, seed: int
) -> None:
    ordered = run(candidate=candidate, quads=2)
    found, other = record_of(ordered, ordered), record_of(*2 * (_shuffled_samples(ordered, seed),))
    assert other.verdict.reason == found.verdict.reason
    assert other.verdict.label == found.verdict.label
    assert rows.gate_rows(other) == rows.gate_rows(found)
    assert rows.axes(other) == rows.axes(found)


def _shuffled_samples(result: HarnessResult, seed: int) -> HarnessResult:
    samples, launches = list(result.samples), list(result.launches)
    random.Random(seed).shuffle(samples)
    random.Random(seed + 1).shuffle(launches)
    return msgspec.structs.replace(result, samples=tuple(samples), launches=tuple(launches))


# What is not a number stays outside.


@cache
def base() -> Record:
    """A small record of a real judgement; what is shown of others is put into it."""
    return record_of(run(candidate=Behaviour(dspark_tok_s=55.0), quads=1))


def _floats(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Paths to every float of plain data."""
    if isinstance(value, float):
        return [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, item in items for found in _floats(item, (*path, key))]


@quick
@given(data=st.data(), bad=st.sampled_from([math.nan, math.inf, -math.inf]))
def test_nan_and_infinity_are_refused_wherever_they_stand(data: st.DataObject, bad: float) -> None:
    plain = json.loads(encode_json(base()))
    path = data.draw(st.sampled_from(_floats(plain)))
    _put(plain, path, bad)
    with pytest.raises(ValueError, match="never enter a record") as refused:
        encode_json(plain)
    assert str(path[-1]) in str(refused.value)


@settings(quick, max_examples=30)
@given(data=st.data(), bad=st.sampled_from(["NaN", "Infinity", "-Infinity", "1e999", "-1e999"]))
def test_a_record_file_that_holds_no_number_is_refused_with_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, bad: str
) -> None:
    plain = json.loads(encode_json(base()))
    _put(plain, data.draw(st.sampled_from(_floats(plain))), "HERE")
    path = tmp_path_factory.mktemp("records") / "record.json"
    path.write_text(json.dumps(plain).replace('"HERE"', bad))
    with pytest.raises(BadRequest, match=r"^\S+ is not a record of an evaluation: .+\.$"):
        records.read(Path(path))


def _put(plain: Any, path: tuple[str | int, ...], value: object) -> None:
    for key in path[:-1]:
        plain = plain[key]
    plain[path[-1]] = value


# What is shown can be worked out from what is shown.


@st.composite
def numbers(draw: st.DrawFn) -> dict[str, Comparison]:
    """Any numbers on the axes of ``base``."""
    return {each.name: draw(comparisons(each.name)) for each in base().comparisons}


def shown(found: dict[str, Comparison]) -> Record:
    """The record of ``base`` with these numbers and the verdict that they give."""
    known = base()
    measured = [
        Measurement(
            name=each.name, unit=each.unit, arm=each.arm, n=each.n,
            value=getattr(found[each.name], each.arm) if each.name in found else each.value,
            interval=_around(getattr(found[each.name], each.arm)) if each.name in found else None,
        )
        for each in known.measurements
    ]  # fmt: skip
    headline = found["chat:dspark"]
    seen = Seen(gates=tuple(gate for gate in known.gates if gate.state == "PASS"), headline=headline)
    return msgspec.structs.replace(
        known, comparisons=tuple(found.values()), measurements=tuple(measured),
        verdict=decide((seen,), POLICY, Facts()),
    )  # fmt: skip


def _around(value: float) -> Interval:
    return Interval(low=value * 0.99, high=value * 1.01)


@settings(quick, max_examples=60)
@given(found=numbers())
def test_every_shown_change_follows_from_what_is_shown(found: dict[str, Comparison]) -> None:
    record = shown(found)
    for axes, summary in (_from_markdown(record), _from_terminal(record)):
        assert list(axes) == [row.title for row in rows.axes(record)]
        _check(axes, summary, record)


@settings(quick, max_examples=20)
@given(
    dspark=st.floats(40.0, 65.0), ar=st.floats(20.0, 30.0), noise=st.sampled_from([0.001, 0.02, 0.1]),
    rounds=st.lists(st.integers(1, 6), min_size=1, max_size=3), seed=st.integers(0, 9),
)  # fmt: skip
def test_every_shown_change_of_a_run_follows_from_what_is_shown(
    dspark: float, ar: float, noise: float, rounds: list[int], seed: int
) -> None:
    candidate = Behaviour(dspark_tok_s=dspark, ar_tok_s=ar, noise=noise, rounds=tuple(rounds))
    record = record_of(run(candidate=candidate, quads=2, seed=seed))
    for axes, summary in (_from_markdown(record), _from_terminal(record)):
        _check(axes, summary, record)


@quick
@given(headline=comparisons("chat:dspark"))
def test_a_shown_bound_is_on_the_side_of_every_bar_that_the_real_one_is_on(headline: Comparison) -> None:
    record = shown({each.name: each for each in base().comparisons} | {headline.name: headline})
    by_title = {row.title: row for row in rows.axes(record)}
    if headline.interval is not None:
        bounds = _percentages(by_title["DSpark decode, tok/s"].against)[1:]
        for value, ratio in zip(bounds, (headline.interval.low, headline.interval.high), strict=True):
            assert [value >= bar for bar in BARS] == [round(100 * (ratio - 1), 9) >= bar for bar in BARS]
    verdict, reason = record.verdict, record.verdict.reason
    if verdict.tier is not None:
        low, bar = _after(reason, "lower bound")
        assert low >= bar == getattr(POLICY.tiers_pct, verdict.tier)
        assert not any(low >= above for above in BARS if above > bar)
    elif "even the upper bound" in reason:
        high, bar = _after(reason, "even the upper bound")
        assert high < bar
    elif "reach from below XS" in reason:
        low, high = _after(reason, "; the bounds")
        assert low < POLICY.tiers_pct.XS <= high


def _after(reason: str, words: str) -> tuple[float, float]:
    first, second = _percentages(reason.split(words)[1])[:2]
    return first, second


def _percentages(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"([+-]\d+\.\d+)%", text)]


Axes = dict[str, list[str]]


def _from_markdown(record: Record) -> tuple[Axes, dict[str, str]]:
    lines = re.sub(r"\\(.)", r"\1", markdown(record)).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    begin = next(index for index, row in enumerate(cells) if row[0] == "axis")
    end = next(index for index, row in enumerate(cells) if row[0] == "gate")
    return {row[0]: row[1:] for row in cells[begin + 2 : end]}, {row[0]: row[1] for row in cells[2:begin]}


def _from_terminal(record: Record, width: int = 240) -> tuple[Axes, dict[str, str]]:
    console = Console(file=io.StringIO(), width=width)
    show(record, console)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    begin = next(index for index, line in enumerate(lines) if line.startswith("axis "))
    end = next(index for index, line in enumerate(lines) if line.startswith("Brackets"))
    starts = [lines[begin].index(title) for title in rows.AXES] + [width]
    axes = {}
    for line in lines[begin + 1 : end]:
        title, *cells = (line[a:b].strip() for a, b in pairwise(starts))
        axes[title] = cells
    pairs = (re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in lines[: begin - 1])
    return axes, {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def _check(axes: Axes, summary: dict[str, str], record: Record) -> None:
    """Recomputes every derived figure from the figures beside it."""
    for title, (main, change, against, _) in axes.items():
        if against:
            assert _percentages(against)[0] == _down(_value(change) / _value(main)), (
                title,
                main,
                change,
                against,
            )
    for column in (0, 1):
        dspark, ar = axes["DSpark decode, tok/s"][column], axes["AR decode, tok/s"][column]
        assert axes["DSpark against AR"][column] == f"{_value(dspark) / _value(ar):.3f}x"
    moved = summary.get("moved by")
    if moved is not None:
        tau, step = _percentages(moved)
        tau_row = next(cells for title, cells in axes.items() if title.startswith("tau ("))
        assert tau == _percentages(tau_row[2])[0]
        assert step == _percentages(axes["time per round, ms"][2])[0]
        assert [int(n) for n in re.findall(r"\d+(?= rounds)|(?<=against )\d+", moved)] == [
            _n(tau_row[1]),
            _n(tau_row[0]),
        ]
        bigger = abs(math.log1p(tau / 100)) > abs(math.log1p(step / 100)) + 1e-3
        smaller = abs(math.log1p(tau / 100)) < abs(math.log1p(step / 100)) - 1e-3
        assert not (bigger and "mostly step cost" in moved)
        assert not (smaller and "mostly acceptance" in moved)
    assert summary["label"] == record.verdict.label


def _value(cell: str) -> float:
    return float(cell.split()[0])


def _n(cell: str) -> int:
    return int(cell.rsplit("n=", 1)[1])


def _down(ratio: float) -> float:
    return math.floor(round(100 * (ratio - 1), 9) * 100 + 5e-8) / 100


def test_the_label_of_a_tier_stands_with_a_bound_that_reaches_it() -> None:
    just_below = Comparison(
        name="chat:dspark", unit="tok/s", baseline=50.0, candidate=55.2, ratio=1.104,
        interval=Interval(low=1.099996, high=1.108), bounds=Interval(low=1.099996, high=1.108), pairs=8,
        quads=4, sign_flip_p=0.01,
    )  # fmt: skip
    verdict = decide((Seen(gates=(), headline=just_below),), POLICY, Facts())
    assert verdict.label == "eval-dspark:M"
    assert "+9.99% reaches M" in verdict.reason
    assert "+10.00%" not in verdict.reason


def test_a_verdict_is_the_same_from_the_same_runs() -> None:
    first, second = run(candidate=Behaviour(noise=0.05)), run(candidate=Behaviour(noise=0.05), seed=1)
    assert score((first, second), POLICY, Facts()) == score((first, second), POLICY, Facts())
    assert analyse(first, POLICY) == analyse(first, POLICY)
