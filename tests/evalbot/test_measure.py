"""What the manager is handed, and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalbot.errors import HarnessFailed
from evalbot.measure import ask
from harness.schema import ArmSource, RunRequest, encode_json
from tests.evalbot import results

NOSY = """
import json, pathlib, sys
directory = pathlib.Path(sys.argv[2]).parent
asked = json.loads(sys.stdin.buffer.read())
files = [path.name for path in directory.iterdir()]
print(json.dumps({"asked": sys.argv[1], "seed": asked["seed"], "files": files}))
"""
DEAF = "raise SystemExit('no mood')"
WRITES = """
import pathlib, sys
sys.stdin.read()
pathlib.Path(sys.argv[2]).write_bytes(pathlib.Path("answer.json").read_bytes())
"""


def tree(directory: Path, manager: str) -> Path:
    (directory / "tree" / "harness").mkdir(parents=True)
    (directory / "tree" / "harness" / "__init__.py").touch()
    (directory / "tree" / "harness" / "manager.py").write_text(manager)
    return directory / "tree"


def request(padding: int = 0) -> RunRequest:
    arm = ArmSource(arm="baseline", tree="t" * padding, worker=("w",), commit_sha="c")
    return RunRequest(plan=results.plan(), seed=4711, baseline=arm, candidate=arm, models=(), corpus="corpus")


def test_the_request_lies_in_no_file_while_workers_could_read_it(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    with pytest.raises(HarnessFailed):
        ask(request(), tree(tmp_path, NOSY), tmp_path / "measure", 20.0, seen.append)
    assert seen == [{"asked": "-", "seed": 4711, "files": []}]


def test_a_manager_that_does_not_listen_is_a_sentence_and_not_a_broken_pipe(tmp_path: Path) -> None:
    with pytest.raises(HarnessFailed, match="no mood"):
        ask(request(padding=200_000), tree(tmp_path, DEAF), tmp_path / "measure", 20.0, lambda event: None)


def test_a_result_is_gone_before_the_confirmation_whose_seed_follows_from_it(tmp_path: Path) -> None:
    run, made = results.run(), tree(tmp_path, WRITES)
    (made / "answer.json").write_bytes(encode_json(run))
    assert ask(request(), made, tmp_path / "measure", 20.0, lambda event: None) == run
    assert list((tmp_path / "measure").iterdir()) == []
