"""Models: fetched by main, hashed by us, and never a reason to blame a change."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalbot.checkout import RefSpec
from evalbot.listener import Silent
from evalbot.pipeline import evaluate
from evalbot.tree import model_sha256
from evalbot.types import Record
from tests.evalbot.fake_repo import CONFIG, FakeRepo

FETCH = """\
import json, sys
if {fail!r}:
    sys.exit({fail!r})
print("downloading ...")
print(json.dumps({{"path": {path!r}, "sha256": {sha256!r}}}))
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "model.safetensors").write_bytes(b"weights")
    return directory


def scored(repo: FakeRepo, path: Path, sha256: str, fail: str = "") -> Record:
    repo.write("engine/fetch.py", FETCH.format(path=str(path), sha256=sha256, fail=fail))
    repo.write(
        "evalbot.toml", CONFIG.replace('target = "corpus/tiny"', 'fetch = ["{python}", "-m", "engine.fetch"]')
    )
    repo.commit("fetch")
    repo.branch("work", dspark_tok_s=55.0)
    return evaluate(repo.root, RefSpec(head="work"), Silent(), seed=7)


def test_a_fetched_model_is_used_and_its_hash_is_part_of_the_identity(repo: FakeRepo, model: Path) -> None:
    record = scored(repo, model, model_sha256(model))
    assert record.verdict.outcome == "improved"
    assert record.identity.baseline.models_sha256 == record.identity.candidate.models_sha256 is not None


def test_a_flipped_byte_of_a_model_is_an_error_that_names_both_hashes(
    repo: FakeRepo, model: Path
) -> None:  # A23
    expected = model_sha256(model)
    (model / "model.safetensors").write_bytes(b"weightz")
    record = scored(repo, model, expected)
    assert record.verdict.outcome == "error"
    for named in (str(model), expected, model_sha256(model)):
        assert named in record.verdict.reason


def test_a_model_that_cannot_be_fetched_is_an_error_in_the_fetchers_words(
    repo: FakeRepo, model: Path
) -> None:
    record = scored(repo, model, "", fail="The wheel cannot be downloaded: no network.")
    assert record.verdict.outcome == "error"
    assert "no network" in record.verdict.reason


def test_a_model_that_the_plan_names_and_the_configuration_does_not_is_an_error(repo: FakeRepo) -> None:
    repo.write("evalbot.toml", CONFIG.replace("[models.tiny]", "[models.other]"))
    repo.commit("config")
    repo.branch("work", dspark_tok_s=55.0)
    record = evaluate(repo.root, RefSpec(head="work"), Silent())
    assert record.verdict.outcome == "error"
    assert "has no [models.tiny]" in record.verdict.reason
