"""The bundled demo: its patch must go on applying to this very tree."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from evalbot.checkout import RefSpec
from evalbot.demo import PROJECT, bundled_patch, clone
from evalbot.errors import BadRequest
from evalbot.listener import Silent
from evalbot.pipeline import evaluate
from tests.evalbot.fake_repo import FakeRepo


def test_the_bundled_patch_applies_and_touches_only_the_depth_policy() -> None:
    patch = bundled_patch()
    done = subprocess.run(
        ["git", "apply", "--numstat", "--check", str(patch)],
        cwd=PROJECT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [line.split("\t")[2] for line in done.stdout.splitlines()] == ["engine/decoding/depth.py"]


@pytest.mark.parametrize("detached", [False, True])
def test_the_clone_has_a_main_to_score_against_whatever_was_checked_out(
    repo: FakeRepo, tmp_path: Path, detached: bool
) -> None:
    repo.branch("work", dspark_tok_s=55.0)
    patch = tmp_path / "faster.patch"
    patch.write_text(repo.git("diff", "main", "work") + "\n")
    if detached:
        repo.git("checkout", "--quiet", "--detach", "main")
        repo.git("branch", "--quiet", "-D", "main")
    copy = clone(tmp_path / "clone", repo.root)
    assert evaluate(copy, RefSpec(patch=patch), Silent(), seed=1).verdict.label == "eval-dspark:M"


def test_a_demo_without_its_patch_or_its_repository_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="exactly one patch"):
        bundled_patch(tmp_path)
    with pytest.raises(BadRequest, match="cannot clone"):
        clone(tmp_path / "clone", tmp_path / "nowhere")
