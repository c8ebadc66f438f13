"""Scenarios through the real manager, statistics and verdict: each case of others' faults ends as it should.

Effects are large, so that a busy machine cannot flip an outcome; where two arms are equal, the claim is only
that nothing is earned and nobody is rejected.
"""

from __future__ import annotations

from functools import cache

import pytest

from evalbot import emulate, rows
from evalbot.comment import markdown
from evalbot.listener import Silent
from evalbot.rescore import rescore
from evalbot.types import Record
from harness import compare, environment
from harness.schema import GateResult, RunPlan
from tests.fakes import emulated
from tests.fakes.emulated import GUARD_FIRST, GUARDED, ONCE, PREFILLED, SPEED

SEED = 1
NOTHING_EARNED = ("none", "inconclusive")


@pytest.fixture(autouse=True)
def here_and_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "PROBE_BYTES", 8 * 1024 * 1024)
    monkeypatch.setattr(emulate, "ask", lambda request, *_: emulated.run(request))


@cache
def scored(name: str, plan: str = "once") -> Record:
    plans: dict[str, RunPlan] = {each.name: each for each in (ONCE, SPEED, PREFILLED, GUARDED, GUARD_FIRST)}
    record = emulate.emulate(
        emulated.scenario(name), Silent(), plan=plans[plan], policy=emulated.POLICY, seed=SEED
    )
    assert rescore(record) == record.verdict
    assert record.facts.emulated
    return record


def gate(record: Record, name: str) -> GateResult:
    return next(gate for gate in record.gates if gate.name == name)


def rejects(record: Record, axis: str) -> None:
    assert record.verdict.outcome == "reject", record.verdict.reason
    assert record.verdict.axis == axis
    assert len(record.runs) == 2


def test_a_much_faster_engine_earns_the_highest_tier() -> None:
    record = scored("faster", "guarded")
    assert record.verdict.label == "eval-dspark:XL", record.verdict.reason
    assert {gate.state for gate in record.gates} == {"PASS"}


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        pytest.param("a03-dies-before-its-first-number", "build-failed", id="A03"),
        pytest.param("a19-main-fails", "error", id="A19"),
        pytest.param("a11-garbage-on-main", "error", id="A11-main"),
    ],
)
def test_a_run_without_numbers_rejects_nobody_and_draws_no_gate(name: str, outcome: str) -> None:
    record = scored(name, "guard-first")
    assert record.verdict.outcome == outcome, record.verdict.reason
    assert record.comparisons == ()
    assert {gate.state for gate in record.gates if gate.name != "baseline"} == {"NOT_RUN"}
    assert all(row.against == "" for row in rows.axes(record))
    assert "+0.0" not in markdown(record)


def test_what_main_failed_at_is_said_of_main() -> None:  # A19
    record = scored("a19-main-fails", "guard-first")
    assert "Main's own worker failed twice" in record.verdict.reason
    assert record.verdict.reason.endswith("The change was not judged.")


def test_gates_that_came_too_late_to_run_are_neither_pass_nor_fail() -> None:  # A04
    record = scored("a04-stops-after-the-scored-case", "guarded")
    assert record.verdict.outcome == "build-failed", record.verdict.reason
    states = {name: state for name, state, _, _ in rows.gate_rows(record)}
    assert states["tau-floor"] == "pass"
    assert {states[f"guard:long:{metric}"] for metric in ("decode", "prefill")} == {"not run"}
    row = next(row for row in rows.axes(record) if row.title.startswith("tau ("))
    assert row.main.split()[0] == row.change.split()[0]
    assert row.against.startswith("+0.00%")


def test_a_reject_quotes_one_axis_with_both_values_its_bar_and_its_change() -> None:  # A05
    record = scored("a05-c29-slower-under-noise", "speed")
    rejects(record, "dspark-floor")
    found = compare.find(record.comparisons, "short:dspark")
    assert found is not None
    assert found.ratio < 0.95
    for number in (found.candidate, found.baseline):
        assert f"{number:.2f}" in record.verdict.reason
    assert "short:dspark" in record.verdict.reason
    assert "below 0.98" in record.verdict.reason
    text = markdown(record)
    row = next(line for line in text.splitlines() if line.startswith("| DSpark decode"))
    assert f"| {100 * (found.ratio - 1):.1f}"[:5] in row
    assert "+0.0" not in row


def test_the_reason_is_a_sentence_about_the_worst_axis() -> None:  # A06
    record = scored("a06-one-axis-far-worse", "speed")
    rejects(record, "dspark-floor")
    assert "short:dspark" in record.verdict.reason
    assert "short:ar" not in record.verdict.reason
    assert not {"True", "False", "None"} & set(record.verdict.reason.split())


@pytest.mark.parametrize(
    ("name", "outcome", "said"),
    [
        ("a08-empty", "error", "returned no tokens"),
        ("a08-empty-in-later-launches", "reject", "returned no tokens"),
        ("a08-short", "reject", "12 of 24 tokens without a stop token"),
    ],
)
def test_empty_and_short_output_never_counts_as_equal(name: str, outcome: str, said: str) -> None:  # A08
    record = scored(name)
    assert record.verdict.outcome == outcome, record.verdict.reason
    assert gate(record, "losslessness").state == gate(record, "ar-tokens").state == "FAIL"
    assert said in record.verdict.reason


def test_speed_from_garbage_at_another_context_is_rejected_for_its_tokens() -> None:  # A11
    record = scored("a11-garbage-at-the-guards-context", "guard-first")
    rejects(record, "ar-tokens")
    assert gate(record, "plausibility:output").state == "FAIL"
    assert "case long" in record.verdict.reason


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("a28-noise-of-two-percent", id="A28-A34"),
        pytest.param("c27-linear-drift", id="C27"),
        pytest.param("c29-a-box-too-noisy", id="C29"),
    ],
)
def test_equal_engines_earn_nothing_and_are_not_rejected_on_a_restless_box(name: str) -> None:
    assert scored(name, "speed").verdict.outcome in NOTHING_EARNED


def test_two_processes_are_too_few_for_a_tier_however_fast() -> None:  # A28
    record = scored("faster", "once")
    assert record.verdict.outcome == "inconclusive"
    assert gate(record, "losslessness").state == "NOT_RUN"


def test_a_box_too_noisy_says_what_it_could_have_seen() -> None:  # C29
    verdict = scored("c29-a-box-too-noisy", "speed").verdict
    assert verdict.smallest_effect_pct is not None
    assert verdict.smallest_effect_pct > 5
    assert "would have been seen with a probability of 80%" in verdict.reason


def test_a_large_loss_is_seen_through_noise() -> None:  # C29
    assert scored("a05-c29-slower-under-noise", "speed").verdict.outcome == "reject"


def test_speculating_less_is_rejected_although_faster_and_within_the_floor_of_tau() -> None:  # A30
    record = scored("a30-speculates-less")
    rejects(record, "accepted-floor")
    assert gate(record, "tau-floor").state == "PASS"


def test_a_small_loss_of_tau_holds_both_floors() -> None:  # A30
    record = scored("a30-holds-its-tau")
    assert gate(record, "tau-floor").state == gate(record, "accepted-floor").state == "PASS"


def test_a_gain_beside_the_scored_axis_earns_no_tier_and_names_no_winner() -> None:  # A34
    record = scored("a34-a-guard-gains", "guarded")
    gained = compare.find(record.comparisons, "long:dspark")
    assert gained is not None
    assert gained.ratio > 1.4
    assert record.verdict.outcome in NOTHING_EARNED
    assert record.verdict.axis in (None, "short:dspark")
    assert "long" not in record.verdict.label


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        pytest.param("b04-counts-contradict-each-other", "reject", id="B04"),
        pytest.param("b04-rounds-that-did-not-happen", "reject", id="B04-rounds"),
        pytest.param("b07-counters-at-zero", "reject", id="B07-zero"),
        pytest.param("b07-counters-absent", "reject", id="B07-absent"),
        pytest.param("b11-counts-after-the-end", "reject", id="B11"),
    ],
)
def test_counts_that_contradict_what_arrived_earn_nothing(name: str, outcome: str) -> None:
    record = scored(name)
    assert record.verdict.outcome == outcome, record.verdict.reason
    assert gate(record, "plausibility:counters").state == "FAIL"
    tau = compare.value_of(record.measurements, "short:tau", "candidate")
    assert tau is not None
    assert 2 < tau.value < 4


def test_always_accepted_drafts_do_not_excuse_that_few_are_proposed() -> None:  # B06
    record = scored("b06-proposes-rarely-and-is-always-right")
    rejects(record, "accepted-floor")


def test_output_past_a_stop_token_inside_a_round_is_rejected() -> None:  # B08
    rejects(scored("b08-runs-past-a-stop-token"), "losslessness")


def test_a_wrong_token_at_one_depth_alone_is_rejected() -> None:
    rejects(scored("b21-wrong-at-one-depth"), "losslessness")


def test_more_tokens_than_asked_for_void_the_launch() -> None:  # B09
    record = scored("b09-overshoots-the-budget")
    assert record.verdict.outcome == "build-failed"
    assert "9 tokens arrived, 8 were asked for" in record.verdict.reason


@pytest.mark.parametrize("name", ["b28-prompt-cache-owned-up-to", "b28-prompt-cache-hidden"])
def test_a_prompt_cache_is_rejected_whether_owned_up_to_or_not(name: str) -> None:  # B28
    rejects(scored(name), "plausibility:prefill")


def test_work_moved_before_the_first_token_is_no_gain() -> None:
    record = scored("works-before-the-first-token", "prefilled")
    rejects(record, "prefill-floor")
    assert gate(record, "dspark-floor").state == "PASS"


def test_drafts_remembered_from_the_ar_run_of_a_prompt_are_rejected() -> None:
    record = scored("remembers-what-ar-said")
    rejects(record, "plausibility:repeatable")
    assert "burst" in record.verdict.reason


def test_a_prompt_cache_on_main_judges_nobody() -> None:  # B28
    record = scored("b28-prompt-cache-on-both")
    assert record.verdict.outcome == "error"
    assert "a prompt cache answered the rest" in record.verdict.reason
