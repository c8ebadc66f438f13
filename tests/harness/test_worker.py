"""The real worker around the real engine, on the tiny model."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from evalbot.tree import model_sha256
from harness import prompts, session
from harness.client import Client, Generation
from harness.corpus import Corpus, ModelView
from harness.metrics.acceptance import inconsistency
from harness.metrics.accuracy import Matrix
from harness.protocol import ids_sha256
from harness.schema import ArmSource, Case, Launch, ModelFiles, RunPlan
from tests.fakes.results import sample

REPOSITORY = Path(__file__).parents[2]
TINY = REPOSITORY / "corpus" / "models" / "qwen3-tiny"
MODEL = ModelFiles(
    name="qwen3-tiny", target=str(TINY / "target"), target_sha256="", draft=str(TINY / "draft")
)
NEW_TOKENS = 24
PLAN = RunPlan(
    name="worker",
    cases=(
        Case(name="c", role="scored", model=MODEL.name, context_tokens=200, new_tokens=8, domains=("prose",)),
    ),
)


def launch(tree: Path, task: object, model: ModelFiles = MODEL) -> tuple[Launch, object]:
    source = ArmSource(
        arm="candidate", tree=str(tree), worker=(sys.executable, "-m", "harness.worker"), commit_sha="abc"
    )
    place = session.Place(0, "c")
    return session.launch(source, PLAN, model, 256, place, time.perf_counter(), task)


@dataclass(frozen=True)
class Seen:
    launch: Launch
    prompt: prompts.Prompt
    ar: Generation
    dspark: Generation
    scores: Matrix
    refusal: Launch


@pytest.fixture(scope="module")
def view() -> ModelView:
    return Corpus(REPOSITORY / "corpus").view(MODEL.name, TINY / "target")


@pytest.fixture(scope="module")
def seen(view: ModelView) -> Seen:
    prompt = prompts.draw(view, "prose", 200, "1")

    def converse(client: Client, _: int) -> tuple[Generation, Generation, Matrix]:
        ar = client.generate(prompt.ids, "ar", NEW_TOKENS, ())
        dspark = client.generate(prompt.ids, "dspark", NEW_TOKENS, ())
        return ar, dspark, client.score((*prompt.ids, *ar.token_ids), NEW_TOKENS)

    record, value = launch(REPOSITORY, converse)
    assert record.failure is None
    refusal, _ = launch(REPOSITORY, lambda client, _: client.generate(prompt.ids * 2, "ar", 8, ()))
    ar, dspark, scores = value
    return Seen(record, prompt, ar, dspark, scores, refusal)


def test_the_worker_reports_the_configuration_it_serves(seen: Seen) -> None:
    engine = seen.launch.engine
    assert engine is not None
    assert engine.commit_sha == "abc"
    assert engine.overrides == {}
    assert engine.block_size == 7
    assert engine.weights_bytes > 0
    handed = [model_sha256(Path(path)) for path in (MODEL.target, MODEL.draft or "")]
    assert [engine.target_sha256, engine.draft_sha256] == handed


def test_both_modes_give_the_same_tokens(seen: Seen) -> None:
    assert len(seen.ar.token_ids) == NEW_TOKENS
    assert seen.ar.token_ids == seen.dspark.token_ids


def test_each_step_arrives_as_one_burst(seen: Seen) -> None:
    assert [burst.tokens for burst in seen.ar.bursts] == [1] * NEW_TOKENS
    assert seen.dspark.bursts[0].tokens == 1
    assert len(seen.dspark.bursts) < NEW_TOKENS


def test_reported_rounds_agree_with_the_bursts(seen: Seen) -> None:
    done = seen.dspark.done
    spoken = sample(
        rounds=[burst.tokens for burst in seen.dspark.bursts[1:]],
        token_ids=seen.dspark.token_ids,
        proposed=done.proposed,
        accepted=done.accepted,
        requested=NEW_TOKENS,
    )
    assert inconsistency(spoken, depth=7) is None
    assert done.prompt_sha256 == ids_sha256(seen.prompt.ids)
    assert done.prefill_tokens == len(seen.prompt.ids)


def test_the_reported_time_is_the_observed_one(seen: Seen) -> None:
    observed = seen.ar.bursts[-1].elapsed_s - seen.ar.bursts[0].elapsed_s
    assert seen.ar.done.decode_s == pytest.approx(observed, rel=0.25, abs=0.02)


def test_the_greedy_token_is_the_likeliest_of_its_row(seen: Seen) -> None:
    assert seen.scores.shape == (NEW_TOKENS, 100)
    assert np.array_equal(seen.scores.argmax(axis=1), seen.ar.token_ids)


def test_a_prompt_beyond_the_context_is_refused_in_the_engines_words(seen: Seen) -> None:
    failure = seen.refusal.failure
    assert failure is not None
    assert (failure.kind, failure.stage) == ("engine_error", "warmup")
    assert "the context holds 256" in failure.detail


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (None, "No module named 'engine'"),
        ("raise RuntimeError('broken import')", "RuntimeError: broken import"),
    ],
)
def test_an_engine_that_does_not_import_fails_at_the_start(
    tmp_path: Path, source: str | None, sentence: str
) -> None:
    (tmp_path / "harness").symlink_to(REPOSITORY / "harness")
    if source is not None:
        (tmp_path / "engine").mkdir()
        (tmp_path / "engine" / "__init__.py").write_text(source)
    record, _ = launch(tmp_path, lambda client, _: None)
    assert record.failure is not None
    assert record.failure.kind == "engine_error"
    assert sentence in record.failure.detail
    assert "Traceback" in record.failure.stderr_tail


def test_a_target_that_is_not_there_is_named(tmp_path: Path) -> None:
    gone = ModelFiles(name="gone", target=str(tmp_path / "gone"), target_sha256="")
    record, _ = launch(REPOSITORY, lambda client, _: None, gone)
    assert record.failure is not None
    assert record.failure.stage == "load"
    assert str(tmp_path / "gone") in record.failure.detail
