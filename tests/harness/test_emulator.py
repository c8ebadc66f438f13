"""The emulator: what a scenario says is what the manager sees."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import compare, environment, gates
from harness.emulator import WORDS, counters, speak
from harness.metrics import acceptance, throughput
from harness.protocol import Generate
from harness.scenario import Behaviour, ScenarioError, Where, parse, read
from harness.schema import Arm, HarnessResult, Mode, Sample
from tests.fakes import emulated
from tests.fakes.emulated import ONCE, POLICY

STOP = 98


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "PROBE_BYTES", 8 * 1024 * 1024)


def asked(mode: Mode = "dspark", budget: int = 24, prompt: tuple[int, ...] = (1, 2, 3)) -> Generate:
    return Generate(
        id=1, prompt_ids=prompt, mode=mode, max_new_tokens=budget, temperature=0.0, stop_ids=(STOP,)
    )


def ids(does: Behaviour, mode: Mode = "dspark", budget: int = 24) -> list[int]:
    spoken = speak(does, asked(mode, budget))
    return [*spoken.first, *(token for step in spoken.steps for token in step.tokens)]


def samples(run: HarnessResult, arm: Arm, mode: Mode) -> list[Sample]:
    return compare.of(run, "short", arm, mode)


def rate(run: HarnessResult, arm: Arm, mode: Mode) -> float:
    window = throughput.pooled(throughput.decode_window(s.bursts) for s in samples(run, arm, mode))
    assert window is not None
    return window.tok_s


def test_both_modes_say_the_same_words_and_another_prompt_gets_others() -> None:
    assert ids(Behaviour(), "ar") == ids(Behaviour(), "dspark")
    assert speak(Behaviour(), asked()) == speak(Behaviour(), asked())
    assert speak(Behaviour(), asked()) != speak(Behaviour(), asked(prompt=(3, 2, 1)))
    assert max(ids(Behaviour(), budget=500)) < WORDS


@given(st.integers(1, 60), st.integers(1, 8), st.integers(0, 6))
def test_no_budget_is_exceeded_or_missed(budget: int, first: int, drafts: int) -> None:  # B09
    does = Behaviour(first_tokens=first, proposals=drafts, round_weights=(1, 1, 1, 1, 1, 1))
    assert len(ids(does, budget=budget)) == budget
    assert all(len(step.tokens) <= drafts + 1 for step in speak(does, asked(budget=budget)).steps)


@given(st.integers(0, 23))
def test_a_stop_token_anywhere_in_a_block_ends_both_modes_alike(at: int) -> None:  # B08
    does = Behaviour(stop_at=at, round_sizes=(5,))
    assert ids(does, "ar") == ids(does, "dspark")
    assert ids(does)[-1] == STOP
    assert len(ids(does)) == at + 1


@given(st.integers(1, 23))
def test_one_that_runs_past_a_stop_token_does_so_only_inside_a_round(at: int) -> None:  # B08
    spoken = ids(Behaviour(stop_at=at, round_sizes=(5,), runs_past_stop=True))
    ends_a_round = at % 5 == 0 or at == 23
    assert len(spoken) == (at + 1 if ends_a_round else 24)


def test_a_wrong_depth_spoils_rounds_of_that_size_alone() -> None:
    honest, wrong = (ids(Behaviour(round_sizes=(2, 3), dspark_wrong_depth=d)) for d in (None, 3))
    assert [i for i in range(24) if honest[i] != wrong[i]] == [5, 10, 15, 20]
    assert ids(Behaviour(dspark_wrong_depth=3), "ar") == honest


def test_weights_set_how_often_a_round_commits_what() -> None:
    steps = speak(Behaviour(round_weights=(0, 0, 1, 3)), asked(budget=4000)).steps
    sizes = [len(step.tokens) for step in steps[:-1]]
    assert set(sizes) == {3, 4}
    assert sizes.count(4) / len(sizes) == pytest.approx(0.75, abs=0.05)


@pytest.mark.parametrize(
    ("changes", "proposed", "accepted"),
    [
        ({}, (4, 4), (1, 2)),
        ({"counters": "zero"}, (4, 4), (0, 0)),
        ({"counters": "absent"}, (), ()),
        ({"claimed_rounds": 1}, (4, 4, 4), (1, 2, 1)),
        ({"claimed_accepted": 1, "claimed_proposed": -1}, (3, 3), (2, 3)),
        ({"widths": (1, 2)}, (1, 2), (1, 2)),
    ],
)
def test_counts_are_reported_as_the_scenario_lies(
    changes: dict[str, object], proposed: tuple[int, ...], accepted: tuple[int, ...]
) -> None:
    does = Behaviour(round_sizes=(2, 3), **changes)
    assert counters(does, speak(does, asked(budget=6)).steps) == (proposed, accepted)


def test_a_rule_holds_at_its_lengths_launches_and_mode_alone() -> None:
    does = Behaviour(
        where=(
            Where(does={"loops": True}, from_tokens=100, to_tokens=200),
            Where(does={"fault": "crash"}, from_launch=3, to_launch=3),
            Where(does={"overshoot": 1}, mode="dspark"),
        )
    )
    assert [does.under(0, tokens, "ar").loops for tokens in (99, 100, 200, 201)] == [False, True, True, False]
    assert [does.under(launch).fault for launch in (2, 3, 4)] == [None, "crash", None]
    assert [does.under(0, 1, mode).overshoot for mode in ("ar", "dspark")] == [0, 1]
    assert does.under(0) is does


def test_defaults_of_both_arms_are_changed_by_each() -> None:
    found = parse({"both": {"ar_ms": 5.0, "loops": True}, "candidate": {"ar_ms": 1.0}})
    assert (found.baseline.ar_ms, found.candidate.ar_ms) == (5.0, 1.0)
    assert found.candidate.loops


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[candidat]", "has the unknown key 'candidat' (did you mean candidate?)"),
        ("[both]\nar_tok_s = 5", "[both] has the unknown key 'ar_tok_s'"),
        ("[noise]\nsd = 1", "[noise] has the unknown key 'sd'"),
        (
            "[[candidate.where]]\ndoes = { speed = 1 }",
            "does of [[candidate.where]] has the unknown key 'speed'",
        ),
        ("[[candidate.where]]\nlaunch = 1", "[[candidate.where]] has the unknown key 'launch'"),
        ("[candidate]\nar_ms = 'fast'", "[candidate]: Expected `float`, got `str` - at `$.ar_ms`"),
        ("candidate = 3", "[candidate] is not a table"),
        ("[both]\nwhere = 3", "where of [both] is not a list: each rule is a table [[both.where]]"),
        ("[candidate.where]\nfrom_launch = 1", "where of [candidate] is not a list"),
        ("[candidate]\nwhere = [3]", "[[candidate.where]] is not a table"),
        ("[noise]\nlaunch_sd = 1.1", "[noise]: Expected `float` <= 1.0 - at `$.launch_sd`"),
        ("[noise]\nstall_size = 101", "[noise]: Expected `float` <= 100.0 - at `$.stall_size`"),
        ("[noise]\ndrift_size = -1.1", "[noise]: Expected `float` >= -1.0 - at `$.drift_size`"),
        ("[noise]\nslot_effect = 1.1", "[noise]: Expected `float` <= 1.0 - at `$.slot_effect`"),
        ("[noise]\nslot_effect = nan", "[noise]: slot_effect is not a finite number"),
        ("[both]\nar_ms = 1000001", "[both]: Expected `float` <= 1000000.0 - at `$.ar_ms`"),
        ("[both]\nround_ms = 1e7", "at `$.round_ms`"),
        ("[both]\nprefill_us = 1e7", "at `$.prefill_us`"),
        ("[both]\nmargin_nats = -inf", "[both]: margin_nats is not a finite number"),
        ("[both]\nround_weights = [1, nan]", "[both]: round_weights is not a finite number"),
        ("[both]\nround_weights = [0, 0]", "[both]: round_weights do not add up to a finite number above 0"),
        ("[both]\nround_weights = [1e308, 1e308]", "round_weights do not add up to a finite number"),
        (
            "[[both.where]]\ndoes = { round_weights = [0] }",
            "does of [[both.where]]: round_weights do not add up",
        ),
        ("[[both.where]]\ndoes = { ar_ms = inf }", "does of [[both.where]]: ar_ms is not a finite number"),
        (f"[both]\nar_ms = 1{400 * '0'}", "[both]: "),
        ("[candidate", "cannot be used"),
    ],
)
def test_what_a_scenario_may_not_hold_is_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(ScenarioError) as error:
        read(path)
    assert str(error.value).startswith("The scenario wrong.toml cannot be used: ")
    assert said in str(error.value)
    assert str(error.value).endswith(".")


def test_a_scenario_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot be read: No such file"):
        read(tmp_path / "gone.toml")


@pytest.mark.parametrize("file", sorted(emulated.SCENARIOS.glob("*.toml")), ids=lambda file: file.stem)
def test_every_bundled_scenario_can_be_read_and_says_what_it_is(file: Path) -> None:
    assert read(file).description


def test_a_worker_that_cannot_read_its_scenario_says_so(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "harness.emulator", str(tmp_path / "gone.toml"), "candidate")
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=emulated.REPOSITORY)
    assert done.returncode == 2
    assert "cannot be read" in done.stderr


def test_the_emulator_starts_without_numpy() -> None:
    probe = "import sys, harness.emulator; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_tau_counts_the_bonus_token_and_stays_within_depth_and_one() -> None:  # B01
    run = emulated.measure("b01-seven-drafts-in-ten-rounds", budget(18))
    counts = acceptance.pooled(samples(run, "candidate", "dspark"))
    assert counts is not None
    assert (counts.rounds % 10, counts.accepted / counts.rounds) == (0, 0.7)
    tau = compare.value_of(compare.measurements(run, POLICY), "short:tau", "candidate")
    assert tau is not None
    assert tau.value == pytest.approx(1.7)
    assert tau.unit == "tokens/round"


def test_tau_is_pooled_over_rounds_and_no_mean_of_prompts() -> None:  # B03
    run = emulated.measure("b03-prompts-of-unequal-tau")
    spoken = samples(run, "candidate", "dspark")
    taus = [23 / (len(sample.bursts) - 1) for sample in spoken]
    pooled = 23 * len(spoken) / sum(len(sample.bursts) - 1 for sample in spoken)
    assert pooled != pytest.approx(sum(taus) / len(taus), rel=1e-3)
    tau = compare.value_of(compare.measurements(run, POLICY), "short:tau", "candidate")
    assert tau is not None
    assert tau.value == pytest.approx(pooled)


def test_proposed_drafts_are_those_that_were_verified() -> None:  # B05
    run = emulated.measure("b05-verify-widths-vary")
    sample = samples(run, "candidate", "dspark")[0]
    assert sample.reported.proposed[:3] == (4, 2, 1)
    counts = acceptance.pooled([sample])
    assert counts is not None
    assert counts.proposed < 4 * counts.rounds
    assert next(g for g in gates.judge(run, POLICY) if g.name == "plausibility:counters").state == "PASS"


def test_rounds_that_propose_nothing_are_counted() -> None:  # B06
    run = emulated.measure("b06-proposes-rarely-and-is-always-right")
    spoken = samples(run, "candidate", "dspark")
    for sample in spoken:
        # The token budget cuts the last round.
        assert sample.reported.proposed[:-1] == sample.reported.accepted[:-1]
    counts = acceptance.pooled(spoken)
    assert counts is not None
    assert 0.85 < counts.idle_rounds / counts.rounds < 0.95


def test_tokens_are_counted_from_ids_and_not_from_chunks() -> None:  # B26
    run = emulated.measure("b26-many-tokens-in-a-chunk")
    chunked = samples(run, "candidate", "ar")
    assert {len(sample.bursts) for sample in chunked} == {7}
    assert {sum(burst.tokens for burst in sample.bursts) for sample in chunked} == {24}
    assert rate(run, "candidate", "ar") / rate(run, "baseline", "ar") == pytest.approx(1.0, abs=0.3)


def test_many_tokens_at_first_do_not_raise_the_rate() -> None:  # B27
    run = emulated.measure("b27-many-tokens-at-first")
    assert {sample.bursts[0].tokens for sample in samples(run, "candidate", "ar")} == {6}
    assert rate(run, "candidate", "ar") / rate(run, "baseline", "ar") == pytest.approx(1.0, abs=0.2)


def test_warm_up_visits_each_mode_and_verify_width_before_anything_is_timed() -> None:  # B30
    run = emulated.measure("b30-compiles-at-first-use")
    for mode in ("ar", "dspark"):
        for sample in samples(run, "candidate", mode):
            assert sample.bursts[-1].elapsed_s < 0.3


def test_one_crash_is_tried_again_and_the_run_goes_on() -> None:
    run = emulated.measure("crash-once")
    failed = [launch for launch in run.launches if launch.failure is not None]
    assert [launch.launch for launch in failed] == [2]
    assert run.error is None
    assert len(samples(run, "candidate", "ar")) == len(samples(run, "baseline", "ar"))


def test_silence_ends_at_the_request_timeout() -> None:
    started = time.perf_counter()
    run = emulated.measure("hangs", msgspec.structs.replace(ONCE, request_timeout_s=1.0))
    assert time.perf_counter() - started < 15
    assert {launch.failure.kind for launch in run.launches if launch.failure} == {"timeout"}


def test_noise_reaches_the_launches_that_the_model_names() -> None:
    run = emulated.measure("second-of-a-pair-is-slower")
    for mode in ("ar", "dspark"):
        slots = {s.slot: s for s in run.samples if s.mode == mode}
        seconds = [slots[i].bursts[-1].elapsed_s - slots[i].bursts[0].elapsed_s for i in range(4)]
        assert min(seconds[1], seconds[3]) > 1.3 * max(seconds[0], seconds[2])


def budget(tokens: int) -> object:
    cases = tuple(msgspec.structs.replace(case, new_tokens=tokens) for case in ONCE.cases)
    return msgspec.structs.replace(ONCE, cases=cases)
