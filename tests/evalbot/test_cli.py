"""The command line: exit codes, sentences instead of tracebacks, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.schema import encode_json
from tests.evalbot.fake_repo import FakeRepo
from tests.evalbot.results import Behaviour, run
from tests.evalbot.test_record import record_of

PROJECT = Path(__file__).resolve().parents[2]
# As the installed command starts: packages of the directory it is called in are never imported (-P).
COMMAND = (sys.executable, "-P", "-c", "from evalbot.cli import main; main()")


def evalbot(*arguments: str, cwd: Path = PROJECT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=cwd, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(PROJECT), "COLUMNS": "100"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("behaviour", "status", "label"),
    [
        ({"dspark_tok_s": 55.0}, 0, "eval-dspark:M"),
        ({"ar_tok_s": 25.1}, 0, "eval-dspark:none"),
        ({"dspark_tok_s": 40.0}, 1, "eval-dspark:REJECT"),
        ({"crash": True}, 1, "eval-dspark:build-failed"),
        ({"noise": 0.1}, 3, "eval-dspark:inconclusive"),
        ({"kill_manager": True}, 4, "eval-dspark:error"),
    ],
)
def test_the_exit_status_says_the_outcome(
    repo: FakeRepo, tmp_path: Path, behaviour: dict[str, object], status: int, label: str
) -> None:
    repo.branch("work", **behaviour)
    out = tmp_path / "record.json"
    done = evalbot("score", "work", "--seed", "3", "--json", str(out), cwd=repo.root)
    assert done.returncode == status, done.stdout + done.stderr
    assert label in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    record = json.loads(out.read_bytes())
    assert record["verdict"]["label"] == label
    again = evalbot("rescore", str(out))
    assert again.returncode == 0
    assert json.loads(again.stdout) == record["verdict"]


@pytest.mark.parametrize(
    "arguments",
    [("score", "work", "--worktree"), ("score", "--seed", "-1"), ("score", "--no-such"), ("paint",)],
)
def test_wrong_usage_is_status_2(repo: FakeRepo, arguments: tuple[str, ...]) -> None:
    assert evalbot(*arguments, cwd=repo.root).returncode == 2


def test_the_help_says_with_which_status_a_missing_branch_ends(repo: FakeRepo) -> None:
    said = " ".join(evalbot("score", "--help", cwd=repo.root).stdout.split())
    assert "A branch or plan that does not exist is an error, status 4." in said
    assert evalbot("score", "no-such", cwd=repo.root).returncode == 4


def test_away_from_a_terminal_it_says_a_line_a_stage_and_the_table_goes_to_stdout(repo: FakeRepo) -> None:
    repo.branch("work", dspark_tok_s=55.0)
    done = evalbot("score", "work", cwd=repo.root)
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == [
        "check out", "pin", "plan", "build", "build", "measure",
    ]  # fmt: skip
    assert "\x1b" not in done.stdout + done.stderr


def test_a_record_that_could_not_be_kept_is_said_before_anything_is_measured(
    repo: FakeRepo, tmp_path: Path
) -> None:
    repo.branch("work", dspark_tok_s=55.0)
    (tmp_path / "file").touch()
    for place in (tmp_path / "file" / "record.json", tmp_path):
        for arguments in (("score", "work"), ("score", "--emulate", "no-such.toml")):
            done = evalbot(*arguments, "--json", str(place), cwd=repo.root)
            assert done.returncode == 4
            assert done.stdout == ""
            assert f"could not be written to {place}" in " ".join(done.stderr.split())
            assert "Nothing was measured" in done.stderr


def test_the_record_has_a_place_of_its_own_by_default(repo: FakeRepo, tmp_path: Path) -> None:
    head = repo.branch("work", dspark_tok_s=55.0)
    evalbot("score", "work", cwd=repo.root)
    (written,) = (tmp_path / "cache" / "runs").iterdir()
    assert head[:10] in written.name


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_no_process_no_file_and_no_record(
    repo: FakeRepo, tmp_path: Path, private_places: Path, number: signal.Signals
) -> None:
    up = tmp_path / "up"
    repo.branch("work", hang=True, pid_file=str(up))
    before = repo.state()
    process = subprocess.Popen(
        [*COMMAND, "score", "work"],
        cwd=repo.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )  # fmt: skip
    deadline = time.monotonic() + 30
    while not up.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Interrupted" in said
    assert "Traceback" not in said
    assert list(private_places.iterdir()) == []
    assert not (tmp_path / "cache").exists()
    assert repo.state() == before
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(private_places) not in left


def test_keep_leaves_the_trees_and_says_where(repo: FakeRepo, private_places: Path) -> None:
    repo.branch("work", dspark_tok_s=55.0)
    done = evalbot("score", "work", "--keep", cwd=repo.root)
    (kept,) = private_places.iterdir()
    assert (kept / "candidate" / "engine" / "behaviour.json").exists()
    assert str(kept) in done.stdout.replace("\n", "")


def test_a_malformed_record_is_a_sentence_and_status_4(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text("{}")
    for command in ("rescore", "render"):
        done = evalbot(command, str(path))
        assert done.returncode == 4
        assert "is not a record of an evaluation" in done.stderr
        assert "Traceback" not in done.stderr


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    assert "Traceback" in evalbot("rescore", str(tmp_path / "nothing.json"), "--debug").stderr


def test_render_shows_a_table_or_markdown(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(encode_json(record_of(run(candidate=Behaviour(dspark_tok_s=55.0)))))
    assert "against main" in evalbot("render", str(path)).stdout
    assert evalbot("render", str(path), "--format", "md").stdout.startswith("### `eval-dspark:M`")


def test_schema_prints_json() -> None:
    assert "$defs" in json.loads(evalbot("schema").stdout)


def test_doctor_names_each_fact_and_what_to_do() -> None:
    done = evalbot("doctor")
    for name in ("python", "git", "torch", "cores", "memory", "model", "sandbox", "gpu"):
        assert name in done.stdout
    assert done.returncode in (0, 4)
