"""What a person sees: table, Markdown, progress."""

from __future__ import annotations

import io
import re

import msgspec
import pytest
from rich.console import Console

from evalbot import rows
from evalbot.comment import escape, markdown
from evalbot.progress import Lines, Live, progress
from evalbot.table import WIDE, show
from evalbot.types import Facts, Stop
from harness.figures import ABSENT
from tests.evalbot.results import Behaviour, run
from tests.evalbot.test_record import record_of

FAST = record_of(run(candidate=Behaviour(dspark_tok_s=55.0)))


def shown(record: object, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    show(record, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_and_holds_every_axis_and_gate(width: int) -> None:
    text = shown(FAST, width)
    flat = " ".join(text.split())
    assert max(map(len, text.split("record\n")[0].splitlines()[:-2])) <= width
    for title in (
        "eval-dspark:M",
        "DSpark decode",
        "AR decode",
        "tau (ceiling 8)",
        "time per round",
        "perplexity",
    ):
        assert title in flat
    for gate in FAST.gates:
        assert gate.name in flat
    assert "measure again" in flat


def test_what_was_not_measured_is_never_drawn_as_pass_or_fail_or_zero() -> None:
    only_ar = record_of(run(candidate=Behaviour(modes=("ar",))))
    states = {name: state for name, state, _, _ in rows.gate_rows(only_ar)}
    assert states["tau-floor"] == "not run"
    assert states["dspark-floor"] == "not run"
    dspark = rows.axes(only_ar)[0]
    assert dspark.change == ABSENT
    assert dspark.against == ""


def test_an_undecided_gate_shows_what_it_saw() -> None:
    noisy = record_of(run(candidate=Behaviour(noise=0.1)))
    seen = {name: (state, text) for name, state, text, _ in rows.gate_rows(noisy)}
    state, text = seen["dspark-floor"]
    assert state == "undecided"
    assert "of main [" in text


@pytest.mark.parametrize("width", [100, 140])
def test_a_contributor_reads_value_interval_n_and_what_could_be_seen(width: int) -> None:
    noisy = record_of(run(candidate=Behaviour(noise=0.02)), run(candidate=Behaviour(noise=0.02), seed=1))
    text = shown(noisy, width)
    assert "2 times, seeds 0, 1; the tables show the last" in text
    assert "running second in a pair: DSpark decode" in " ".join(text.split())
    for title in ("DSpark decode, tok/s", "time per round, ms", "tau (ceiling 8)"):
        row = next(row for row in rows.axes(noisy) if row.title == title)
        for cell in (row.main, row.change, row.against):
            assert re.fullmatch(r"\S+ \[\S+, \S+\] n=\d+", cell), (title, cell)
            for word in cell.split():
                assert word in text
    speed = rows.axes(noisy)[0]
    assert speed.could_see
    assert f"could see {speed.could_see}" in text if width < WIDE else speed.could_see in text


def test_what_a_run_could_see_stands_where_it_proved_nothing() -> None:
    by_title = {row.title: row for row in rows.axes(FAST)}
    assert by_title["DSpark decode, tok/s"].could_see == ""
    assert by_title["AR decode, tok/s"].could_see.endswith("%")
    assert by_title["tau (ceiling 8)"].could_see == ""


def test_an_undecided_gate_is_told_apart_from_one_that_did_not_run() -> None:
    partial = msgspec.structs.replace(run(candidate=Behaviour(noise=0.1)), accuracy=())
    for text in (shown(record_of(partial), 140), markdown(record_of(partial))):
        assert re.search(r"accuracy\W+not run", text)
        assert re.search(r"dspark-floor\W+undecided", text)


def test_a_slower_text_is_told_apart_from_a_slower_kernel() -> None:
    fewer = record_of(run(candidate=Behaviour(dspark_tok_s=40.0, rounds=(2, 2, 3, 2))))
    kernel = record_of(run(candidate=Behaviour(dspark_tok_s=40.0)))
    assert "mostly acceptance" in dict(rows.summary(fewer))["moved by"]
    assert "mostly step cost" in dict(rows.summary(kernel))["moved by"]
    assert "moved by" not in dict(rows.summary(record_of(run())))


def test_the_reproducing_command_names_exact_commits_and_the_seed() -> None:
    assert rows.reproduce(FAST) == "evalbot score aaaaaaaaaaaa --base bbbbbbbbbbbb --plan fake --seed 0"


def test_a_record_without_numbers_still_says_why() -> None:
    record = record_of(facts=Facts(stop=Stop(cause="needs-rebase", sentence="It conflicts in a.py.")))
    assert "It conflicts in a.py." in shown(record, 80)
    assert "It conflicts in a.py." in escaped(markdown(record))


def test_foreign_text_cannot_become_markup_in_a_comment() -> None:
    hostile = "a|b `x` <img> @team [l](https://evil.example) ``` \n# big"
    record = record_of(facts=Facts(stop=Stop(cause="build-failed", sentence=hostile)))
    named = msgspec.structs.replace(
        record, request=msgspec.structs.replace(record.request, head="x`y|z\n# big")
    )
    text = markdown(named)
    assert not re.search(r"(?<!\\)@team|(?<!\\)<img>|https://|\n# big|^```", text, flags=re.MULTILINE)
    assert "\n" not in escape(hostile)


def test_away_from_a_terminal_progress_is_a_line_a_stage() -> None:
    console = Console(file=io.StringIO(), width=80)
    with progress(console) as listener:
        assert isinstance(listener, Lines)
        listener.stage("build", "main")
        listener.event({"event": "launch_started", "done": 1, "total": 2})
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "build: main\n"


def test_away_from_a_terminal_a_long_stage_says_every_half_minute_how_far_it_is() -> None:
    now = 0.0
    console = Console(file=io.StringIO(), width=40)
    lines = Lines(console, lambda: now)
    lines.stage("measure", "plan cpu-quick, seed 1")
    for done in range(1, 9):
        now += 10.0
        lines.event({"case": "chat", "arm": "candidate", "done": done, "total": 8, "eta_s": 65.4})
    now += 100.0
    lines.event({"event": "unknown"})
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == [
        "measure: plan cpu-quick, seed 1",
        "measure: chat, candidate, 3 of 8 launches, 1:05 left",
        "measure: chat, candidate, 6 of 8 launches, 1:05 left",
    ]


def test_on_a_terminal_progress_says_what_runs_how_far_and_time_left() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    with progress(console) as listener:
        assert isinstance(listener, Live)
        listener.stage("measure", "plan cpu-quick, seed 1")
        listener.event({"case": "chat", "arm": "candidate", "done": 3, "total": 8, "eta_s": 65.0})
        listener.event({"event": "unknown", "done": "many", "eta_s": None})
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "measure" in text


def test_lines_to_copy_are_whole_whatever_the_width() -> None:
    assert rows.reproduce(FAST) in shown(FAST, 40)


def escaped(text: str) -> str:
    """Markdown as it is shown: escapes resolved."""
    return re.sub(r"\\(.)", r"\1", text)
