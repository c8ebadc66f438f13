"""The installed code judges: it is main's, or the record says that it is not and may not be published."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from evalbot import judge, publish
from evalbot.errors import BadRequest
from evalbot.rescore import rescore
from tests.evalbot.test_publish import calibrated, record


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, package in judge.PACKAGES.items():
        shutil.copytree(package, tmp_path / name)
    return tmp_path


def test_a_tree_of_the_same_sources_is_the_judges_own_whatever_was_compiled_beside_them(tree: Path) -> None:
    (tree / "harness" / "__pycache__").mkdir(exist_ok=True)
    (tree / "harness" / "__pycache__" / "gates.pyc").write_bytes(b"made here")
    assert judge.stranger(tree) is None


@pytest.mark.parametrize("name", ["evalbot/score.py", "harness/gates.py", "harness/metrics/acceptance.py"])
def test_one_changed_line_makes_the_judge_a_stranger(tree: Path, name: str) -> None:
    with (tree / name).open("a") as file:
        file.write("# another main\n")
    said = judge.stranger(tree)
    assert said is not None
    assert said.startswith(f"Judged by {name.partition('/')[0]} ")
    assert ", main has " in said


def test_an_added_or_a_missing_file_or_package_is_a_difference(tree: Path) -> None:
    (tree / "evalbot" / "more.py").touch()
    assert judge.stranger(tree) is not None
    shutil.rmtree(tree / "evalbot")
    assert "main has none" in (judge.stranger(tree) or "")


def test_a_strangers_verdict_stands_here_and_may_not_be_published() -> None:
    ours, strange = record(calibrated()), record(calibrated(), stranger="Judged by evalbot 1.")
    assert ours.publishable
    assert (strange.publishable, strange.publishable_reason) == (False, publish.STRANGER)
    assert rescore(strange).outcome == rescore(ours).outcome
    with pytest.raises(BadRequest, match="being publishable"):
        rescore(msgspec.structs.replace(strange, publishable=True))
