"""Simulated evaluations: what is drawn is what is judged, and honest rates come out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalbot import scenarios
from evalbot.bench_stats import ROWS, table
from evalbot.errors import BadRequest
from evalbot.power import looks_of, pairs_needed
from evalbot.scenarios import BUILT_IN, PLAN, SCORED, Scenario
from evalbot.simulate import Summary, merged, simulate, trial
from harness.noise import NoiseModel
from harness.schema import Policy
from tests.evalbot.test_cli import evalbot

POLICY = Policy()


def run(name: str, trials: int = 60, seed: int = 3) -> Summary:
    return simulate(BUILT_IN[name], trials, seed, POLICY)


@pytest.mark.parametrize("name", ["null", "null-linear", "null-walk", "null-thermal", "bad-box"])
def test_equal_engines_get_no_tier_and_no_reject(name: str) -> None:
    seen = run(name)
    assert seen.tiers == {"no tier": 60}
    assert "reject" not in seen.outcomes


def test_a_true_gain_is_found_and_a_true_loss_rejected() -> None:
    assert run("gain-6").outcomes["improved"] >= 54
    assert run("loss-3").outcomes["reject"] >= 54


def test_on_a_bad_box_a_true_gain_is_inconclusive_and_nothing_worse() -> None:
    assert set(run("bad-box-gain-6", 20).outcomes) <= {"inconclusive", "improved"}


def test_without_noise_the_shown_gain_is_the_true_one_at_the_first_look() -> None:
    seen = trial(Scenario(description="", gains_pct={SCORED: 6.5}), 1, POLICY)
    assert seen.verdict.gain_pct == pytest.approx(6.5)
    assert (seen.verdict.tier, seen.pairs) == ("M", 8)


def test_a_slot_effect_is_no_gain() -> None:
    slow_second = NoiseModel(slot_effect=0.05)
    seen = trial(Scenario(description="", noise=slow_second), 1, POLICY)
    assert seen.verdict.outcome in ("none", "inconclusive")
    assert seen.verdict.gain_pct == pytest.approx(0.0, abs=1e-9)
    assert seen.headline.order_effect == pytest.approx(-0.0488, abs=1e-3)


def test_the_same_seed_draws_the_same_trials_and_parts_add_up() -> None:
    assert run("gain-3", 10) == run("gain-3", 10)
    assert run("gain-3", 10).pairs != run("gain-3", 10, seed=4).pairs
    whole = merged([run("null", 10, seed=1), run("null", 20, seed=2)])
    assert whole.trials == 30
    assert len(whole.pairs) == 30
    assert sum(whole.outcomes.values()) == sum(whole.tiers.values()) == 30


def test_thirteen_axes_are_timed() -> None:
    assert sum(len(scenarios.timed(case)) for case in PLAN.cases) == 13


def test_a_scenario_of_the_emulator_is_simulated_by_its_speeds(tmp_path: Path) -> None:
    path = tmp_path / "faster.toml"
    path.write_text("[noise]\nlaunch_sd = 0.006\n[candidate]\nround_ms = 2.0\nar_ms = 1.8\n")
    found = scenarios.find(str(path))
    assert found.gains_pct[SCORED] == pytest.approx(30.0)
    assert found.gains_pct["scored:ar"] == pytest.approx(100 * (2.0 / 1.8 - 1))
    assert trial(found, 1, POLICY).verdict.tier == "XL"


def test_speculating_less_is_rejected_in_a_simulation_too(tmp_path: Path) -> None:
    path = tmp_path / "less.toml"
    path.write_text("[baseline]\nround_sizes = [3, 2]\n[candidate]\nround_sizes = [2]\nround_ms = 1.5\n")
    assert trial(scenarios.find(str(path)), 1, POLICY).verdict.axis == "tau-floor"


def test_what_cannot_be_simulated_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text("[candidate]\ndspark_wrong_at = 3\n")
    with pytest.raises(BadRequest, match=r"wrong.toml sets dspark_wrong_at.*score --emulate"):
        scenarios.find(str(path))
    with pytest.raises(BadRequest, match=r"no scenario 'nul': .* null, "):
        scenarios.find("nul")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[candidate]\nar_ms = 0", "sets ar_ms to 0: what takes no time has no speed to compare"),
        ("[both]\nround_ms = 0\nprefill_us = 0", "sets prefill_us, round_ms to 0"),
        ("[baseline]\nround_weights = [1]", "main accepts nothing: there is no acceptance to compare"),
        ("[both]\nround_sizes = [1]", "main accepts nothing"),
        ("[candidate]\nar_ms = 1e-308", "differ in speed by more than a factor of 1,000,000"),
    ],
)
def test_speeds_that_cannot_be_compared_are_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "odd.toml"
    path.write_text(text)
    with pytest.raises(BadRequest, match=f"odd.toml.*{said}"):
        scenarios.find(str(path))


def test_the_loudest_scenario_is_simulated_and_nothing_is_found(tmp_path: Path) -> None:
    path = tmp_path / "loud.toml"
    path.write_text(
        "[noise]\nlaunch_sd = 1\nstall_probability = 0.5\nstall_size = 100\ndrift = 'walk'\n"
        "drift_size = 1\nslot_effect = -1\n[candidate]\nround_weights = [1]\n"
    )
    seen = trial(scenarios.find(str(path)), 1, POLICY)
    assert (seen.verdict.tier, seen.verdict.axis) == (None, "tau-floor")


def test_the_numbers_are_one_json_document(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = evalbot("simulate", "--scenario", "null", "--trials", "12", "--json", str(out))
    assert done.returncode == 0, done.stderr
    assert "95% interval holds the truth" in done.stdout
    said = json.loads(out.read_text())
    assert said["trials"] == sum(said["outcomes"].values()) == 12
    assert set(said["outcomes"]) >= {"improved", "none", "reject", "inconclusive", "error"}
    assert set(said) >= {"coverage", "gain_bias_pct", "pairs_median"}
    assert json.loads(evalbot("simulate", "--trials", "12", "--json", "-").stdout) == said


def test_a_missed_bar_is_said() -> None:
    fine = run("null", 10)
    found = {row.scenario: fine for row in ROWS}
    text, good = table(found)
    assert not good, "ten trials of equal engines do not meet the bars of true effects"
    assert "| gain-3 | improved | >= 95 % | 0.00 % [0.00, 30.85] | 10 | **missed** |" in text
    assert "| null | any tier | <= 1 % | 0.00 % [0.00, 30.85] | 10 | met |" in text


def test_half_an_effect_needs_about_four_times_the_pairs() -> None:
    found = pairs_needed(1.0, 0.9, 0.01, 0.95)
    assert found is not None
    assert (found.pairs, found.looks) == (16, (8, 12, 16))
    half = pairs_needed(0.5, 0.9, 0.01, 0.95)
    assert half is not None
    assert half.pairs > 3 * found.pairs
    assert pairs_needed(0.001, 0.9, 0.05, 0.95) is None


@pytest.mark.parametrize(
    ("pairs", "looks"), [(4, (4,)), (8, (8,)), (16, (8, 12, 16)), (32, (8, 12, 16, 24, 32))]
)
def test_looks_keep_their_proportions(pairs: int, looks: tuple[int, ...]) -> None:
    assert looks_of(pairs) == looks


def test_an_effect_that_depends_on_the_prompt_is_covered_as_often_as_it_says() -> None:
    seen = run("null-prompts", 150)
    assert seen.tiers == {"no tier": 150}
    assert seen.coverage >= 0.90


def test_a_shipped_plan_is_simulated_by_its_own_cases() -> None:
    from harness.plans import PLANS

    seen = trial(BUILT_IN["null"], 1, POLICY, PLANS["cpu-quick"])
    assert seen.pairs == 4
    with pytest.raises(BadRequest, match=r"no plan 'cpu-slow'; there are cpu-quick"):
        scenarios.plan("cpu-slow")
