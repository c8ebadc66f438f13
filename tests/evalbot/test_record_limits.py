"""What a record may not replace, and what of one is refused before anything is computed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalbot import record as records
from evalbot.errors import BadRequest, InfraError
from tests.evalbot.results import run
from tests.evalbot.test_cli import evalbot
from tests.evalbot.test_record import altered, record_of

RECORD = record_of(run())


def pipe(place: Path) -> Path:
    os.mkfifo(place / "pipe")
    return place / "pipe"


def link_to_a_device(place: Path) -> Path:
    (place / "link").symlink_to(os.devnull)
    return place / "link"


@pytest.mark.parametrize("made", [pipe, link_to_a_device, lambda place: Path(os.devnull)])
def test_what_is_no_regular_file_is_never_replaced(tmp_path: Path, made: Callable[[Path], Path]) -> None:
    path = made(tmp_path)
    before = path.lstat(), sorted(path.parent.glob(".*")), sorted(tmp_path.iterdir())
    with pytest.raises(InfraError, match=f"could not be written to {path}: Not a regular file. Nothing was"):
        records.require_writable(path)
    with pytest.raises(InfraError, match=f"cannot be written to {path}: Not a regular file"):
        records.write(RECORD, path)
    after = path.lstat(), sorted(path.parent.glob(".*")), sorted(tmp_path.iterdir())
    assert after[1:] == before[1:]
    assert (after[0].st_ino, stat.S_IFMT(after[0].st_mode)) == (
        before[0].st_ino,
        stat.S_IFMT(before[0].st_mode),
    )


def test_a_link_to_a_file_stays_a_link_and_the_file_gets_the_record(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "link.json"
    for name in ("old.json", "new.json"):
        link.unlink(missing_ok=True)
        link.symlink_to(Path("there") / name)
        if name == "old.json":
            link.write_text("old")
        records.require_writable(link)
        records.write(RECORD, link)
        assert link.is_symlink()
        assert records.read(tmp_path / "there" / name) == RECORD


def test_every_command_refuses_a_pipe_before_it_works(tmp_path: Path) -> None:
    path = pipe(tmp_path)
    for command in (("simulate", "--trials", "1000000"), ("calibrate",), ("score", "--emulate", "no.toml")):
        done = evalbot(*command, "--json", str(path))
        assert done.returncode == 4
        assert done.stdout == ""
        assert "Not a regular file" in done.stderr
        assert stat.S_ISFIFO(path.stat().st_mode)


def large_burst(sample: Any) -> None:
    sample["bursts"][0][1] = 10**9


def large_round(sample: Any) -> None:
    sample["reported"]["proposed"][0] = 65_537


@pytest.mark.parametrize("enlarge", [large_burst, large_round])
def test_a_count_that_no_engine_sends_is_refused_at_once(
    tmp_path: Path, enlarge: Callable[[Any], None]
) -> None:
    def change(plain: Any) -> None:
        enlarge(next(sample for sample in plain["runs"][0]["samples"] if sample["mode"] == "dspark"))

    path = tmp_path / "record.json"
    path.write_bytes(altered(RECORD, change))
    with pytest.raises(BadRequest, match="a burst or a round of more than 65,536 tokens"):
        records.read(path)


@pytest.mark.parametrize("content", ['{"a":' + "[" * 100_000, '{"schema_version": 1' + "0" * 400 + "}"])
def test_a_document_that_no_reader_holds_is_a_sentence(tmp_path: Path, content: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(content)
    with pytest.raises(BadRequest):
        records.read(path)


def no_prompt(plain: Any) -> None:
    for sample in plain["runs"][0]["samples"]:
        sample["prompt_tokens"] = 0


def no_rate(plain: Any) -> None:
    for measured in plain["measurements"]:
        measured["value"] = 0.0


def no_rounds(plain: Any) -> None:
    for item in plain["acceptance"]:
        item["rounds"] = 0


@pytest.mark.parametrize(
    ("command", "mutilate"),
    [
        (("rescore",), no_prompt),
        (("render",), no_rate),
        (("render", "--format", "md"), no_rounds),
    ],
)
def test_a_mutilated_record_is_said_to_be_one(
    tmp_path: Path, command: tuple[str, ...], mutilate: Callable[[Any], None]
) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(altered(RECORD, mutilate))
    done = evalbot(*command, str(path))
    assert done.returncode == 4
    assert f"{path} is not a whole record: its numbers cannot be judged (" in done.stderr
    assert "evalbot itself failed" not in done.stderr
    assert "Traceback" in evalbot(*command, str(path), "--debug").stderr
