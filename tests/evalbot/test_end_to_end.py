"""Whole evaluations of this very project, with the real harness and engine on the smallest model."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalbot.checkout import RefSpec
from evalbot.demo import clone
from evalbot.listener import Silent
from evalbot.pipeline import evaluate
from evalbot.rescore import rescore
from evalbot.types import Record
from tests.evalbot.fake_repo import commit_all

pytestmark = pytest.mark.slow

TINY_PLAN = """\
PLANS["tiny"] = RunPlan(
    name="tiny",
    cases=(
        Case(
            name="qwen3-256", role="scored", model=QWEN3, context_tokens=256, new_tokens=64,
            domains=("prose", "chat"), quads=2,
        ),
    ),
    accuracy=AccuracyPlan(model=QWEN3, context_tokens=256, windows=1, positions=32),
    warmup_tokens=32,
)


def main("""

BREAKS = {
    "sleeps": (
        "engine/decoding/speculative.py",
        "        proposal = _propose(",
        "        __import__('time').sleep(0.02)\n        proposal = _propose(",
    ),
    "skips-verification": (
        "engine/decoding/verify.py",
        "while prefix < len(draft) and draft[prefix] == target_argmax[prefix]:",
        "while prefix < len(draft):",
    ),
    "does-not-import": ("engine/llm.py", "from __future__ import annotations", "import missing_kernel"),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of this project's HEAD whose main has a plan that takes seconds."""
    copy = clone(tmp_path_factory.mktemp("project") / "clone")
    replace_once(copy / "harness/plans.py", "def main(", TINY_PLAN)
    commit_all(copy, "a plan of seconds")
    return copy


def replace_once(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert text.count(before) == 1, f"{path.name} holds {text.count(before)} times {before!r}"
    path.write_text(text.replace(before, after))


def scored(project: Path, change: str | None) -> Record:
    if change is not None:
        name, before, after = BREAKS[change]
        replace_once(project / name, before, after)
    try:
        record = evaluate(project, RefSpec(worktree=True), Silent(), plan="tiny")
    finally:
        if change is not None:
            replace_once(project / name, after, before)
    assert rescore(record) == record.verdict
    for hashed in ("harness_sha256", "corpus_sha256", "models_sha256"):
        assert getattr(record.identity.baseline, hashed) == getattr(record.identity.candidate, hashed)
    return record


def test_a_tree_equal_to_main_is_none(project: Path) -> None:
    record = scored(project, None)
    assert record.verdict.label == "eval-dspark:none", record.verdict.reason


def test_a_sleep_in_the_decode_loop_is_rejected(project: Path) -> None:
    record = scored(project, "sleeps")
    assert record.verdict.label == "eval-dspark:REJECT", record.verdict.reason
    assert record.verdict.axis == "dspark-floor"


def test_skipped_verification_is_rejected_for_losslessness_although_faster(project: Path) -> None:
    record = scored(project, "skips-verification")
    assert record.verdict.label == "eval-dspark:REJECT", record.verdict.reason
    assert record.verdict.axis == "losslessness"


def test_an_engine_that_does_not_import_is_build_failed(project: Path) -> None:
    record = scored(project, "does-not-import")
    assert record.verdict.label == "eval-dspark:build-failed", record.verdict.reason
    assert "missing_kernel" in record.verdict.reason
