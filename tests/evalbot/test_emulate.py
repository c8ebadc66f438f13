"""``evalbot score --emulate``: a real manager process, a record that owns up, sentences for what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalbot import record as records
from evalbot.comment import markdown
from evalbot.emulate import emulate
from evalbot.listener import Silent
from evalbot.rescore import rescore
from evalbot.types import ArmIdentity, Record
from tests.evalbot.test_cli import evalbot
from tests.fakes.emulated import scenario

EMULATED = "Emulated: no engine was measured."


def test_the_command_line_plays_a_scenario_and_no_reader_can_take_it_for_an_engine(tmp_path: Path) -> None:
    file, out = scenario("a03-dies-before-its-first-number"), tmp_path / "record.json"
    done = evalbot("score", "--emulate", str(file), "--seed", "5", "--json", str(out), cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.startswith(EMULATED)
    assert "eval-dspark:build-failed" in done.stdout
    assert f"evalbot score --emulate {file} --plan emulator --seed 5" in done.stdout
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["plan", "measure"]
    record = records.read(out)
    assert record.notes[0].startswith(EMULATED)
    assert record.identity.baseline == record.identity.candidate == ArmIdentity()
    assert (record.identity.head_sha, record.identity.base_sha) == (None, None)
    assert markdown(record).startswith(f"**{EMULATED}**")
    assert rescore(record) == record.verdict


@pytest.mark.slow
def test_two_equal_engines_get_their_verdict_within_the_plan_of_seconds(tmp_path: Path) -> None:
    out = tmp_path / "record.json"
    evalbot("score", "--emulate", str(scenario("equal")), "--seed", "5", "--json", str(out), cwd=tmp_path)
    record = records.read(out)
    assert record.verdict.outcome in ("none", "inconclusive"), record.verdict.reason
    assert {gate.state for gate in record.gates if not gate.undecided} == {"PASS"}


@pytest.mark.parametrize("also", [("main",), ("--worktree",), ("--patch", "x.patch")])
def test_a_scenario_is_scored_alone(tmp_path: Path, also: tuple[str, ...]) -> None:
    assert evalbot("score", "--emulate", str(scenario("equal")), *also, cwd=tmp_path).returncode == 2


def said(record: Record) -> str:
    assert record.verdict.outcome == "error"
    assert record.facts.emulated
    assert record.runs == ()
    return record.verdict.reason


def test_an_unknown_key_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[candidate]\nround_msec = 2.0\n")
    reason = said(emulate(path, Silent()))
    assert reason == (
        "The scenario mine.toml cannot be used: [candidate] has the unknown key 'round_msec' "
        "(did you mean round_ms?)."
    )


def test_a_scenario_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    assert "cannot be read" in said(emulate(tmp_path / "gone.toml", Silent()))


def test_a_plan_that_would_fetch_a_model_is_refused() -> None:
    reason = said(emulate(scenario("equal"), Silent(), plan="cpu-quick"))
    assert "smollm2-135m, which would have to be fetched" in reason
    assert "--plan emulator" in reason


def test_an_unknown_plan_is_an_error_that_lists_the_plans() -> None:
    assert "emulator" in said(emulate(scenario("equal"), Silent(), plan="emulater"))
