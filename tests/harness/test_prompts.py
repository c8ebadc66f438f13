"""Prompts come from pinned text or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from harness import plans, prompts
from harness.corpus import Corpus, CorpusError, ModelView
from harness.prompts import SyntheticPrompt, draw, refuse_synthetic
from tests.fakes import corpus as fake
from tests.fakes.corpus import FakeCorpus

replace = msgspec.structs.replace


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> FakeCorpus:
    return fake.make(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def view(made: FakeCorpus) -> ModelView:
    return Corpus(made.root).view(fake.MODEL, made.target)


def test_a_prompt_is_a_window_under_an_instruction_in_the_template(view: ModelView) -> None:
    prompt = draw(view, "prose", 400, "1/case/0/0")
    text = view._tokenizer.decode(list(prompt.ids))
    assert text.startswith("<user>")
    assert text.endswith("<answer>")
    assert "Go on:" in text or "What next?" in text


@pytest.mark.parametrize("context", [100, 400, 1500, 3500])
def test_lengths_are_jittered_below_the_asked_length(view: ModelView, context: int) -> None:
    lengths = {len(draw(view, "prose", context, f"1/{i}").ids) for i in range(20)}
    assert max(lengths) <= context
    assert min(lengths) >= (1 - prompts.JITTER) * context - 2
    assert len(lengths) > 3


def test_the_same_key_gives_the_same_prompt_and_another_quad_another(view: ModelView) -> None:
    first = draw(view, "code", 300, "1/case/0/0")
    assert first == draw(view, "code", 300, "1/case/0/0")
    assert first.ids != draw(view, "code", 300, "1/case/1/0").ids
    assert first.ids != draw(view, "code", 300, "2/case/0/0").ids


def test_a_window_starts_where_a_line_does(view: ModelView) -> None:
    for i in range(10):
        origin = draw(view, "prose", 300, f"1/{i}").origin
        text = view.passage("prose", origin.path).text
        assert origin.start == 0 or text[origin.start - 1] == "\n"


def test_a_context_no_text_can_fill_is_refused(view: ModelView) -> None:
    with pytest.raises(CorpusError, match="plan a shorter context"):
        draw(view, "prose", 10**6, "1")
    with pytest.raises(CorpusError, match="plan a longer context"):
        draw(view, "prose", 20, "1")


def test_a_prompt_from_the_corpus_is_accepted(view: ModelView) -> None:
    for domain in fake.DOMAINS:
        refuse_synthetic(view, draw(view, domain, 300, "1"))


def test_one_changed_id_makes_a_prompt_synthetic(view: ModelView) -> None:  # A24
    prompt = draw(view, "prose", 300, "1")
    changed = prompts.Prompt((*prompt.ids[:50], prompt.ids[50] ^ 1, *prompt.ids[51:]), prompt.origin)
    with pytest.raises(SyntheticPrompt, match="no synthetic ids"):
        refuse_synthetic(view, changed)


def test_consecutive_ids_are_refused_whatever_origin_they_claim(view: ModelView) -> None:  # B32
    origin = draw(view, "prose", 300, "1").origin
    with pytest.raises(SyntheticPrompt):
        refuse_synthetic(view, prompts.Prompt(tuple(range(90)), origin))


def test_an_instruction_of_ones_own_is_refused(view: ModelView) -> None:
    real = draw(view, "prose", 300, "1").origin
    passage = view.passage("prose", real.path).text[real.start : real.end]
    phrasing = "Repeat the letter a for ever: {passage}"
    ids = view.encode(view.entry.prefix + phrasing.replace("{passage}", passage) + view.entry.suffix)
    with pytest.raises(SyntheticPrompt):
        refuse_synthetic(view, prompts.Prompt(ids, prompts.Origin(**{**vars(real), "phrasing": phrasing})))


def test_a_missing_tokenizer_is_no_reason_for_a_fallback(made: FakeCorpus, tmp_path: Path) -> None:  # A24
    with pytest.raises(CorpusError, match=r"tokenizer\.json does not exist"):
        Corpus(made.root).view(fake.MODEL, tmp_path)


def test_an_edited_text_is_refused_by_name(tmp_path: Path) -> None:
    made = fake.make(tmp_path)
    file = made.root / "texts" / "prose" / "0.txt"
    file.write_text(file.read_text().replace("river", "rivet", 1))
    with pytest.raises(CorpusError, match=r"texts/prose/0\.txt has sha256"):
        Corpus(made.root)


def test_another_tokenizer_is_refused_although_the_texts_are_right(tmp_path: Path) -> None:
    made = fake.make(tmp_path)
    file = made.target / "tokenizer.json"
    file.write_text(file.read_text().replace('"a":65', '"a":66').replace('"b":66', '"b":65'))
    file.write_text(file.read_text().replace('"a": 65', '"a": 66').replace('"b": 66', '"b": 65'))
    with pytest.raises(CorpusError, match="the tokenizer is not the one that was pinned"):
        Corpus(made.root).view(fake.MODEL, made.target)


def test_another_template_is_refused(tmp_path: Path) -> None:  # B33
    made = fake.make(tmp_path)
    manifest = made.root / "manifest.toml"
    manifest.write_text(manifest.read_text().replace("<answer>", "<think><answer>"))
    with pytest.raises(CorpusError, match="chat template of fake"):
        Corpus(made.root).view(fake.MODEL, made.target)


def test_a_model_the_corpus_does_not_know_is_named(made: FakeCorpus) -> None:
    with pytest.raises(CorpusError, match="no rendering for model 'other'; it knows fake"):
        Corpus(made.root).view("other", made.target)


def test_accuracy_windows_have_the_exact_length_and_differ(view: ModelView) -> None:
    windows = [prompts.accuracy_window(view, "accuracy", 500, i, 3, seed=1) for i in range(3)]
    assert [len(window.ids) for window in windows] == [500] * 3
    assert len({window.id for window in windows}) == 3


REPOSITORY = Path(__file__).parents[2]


def test_the_shipped_corpus_is_what_its_manifest_says() -> None:
    corpus = Corpus(REPOSITORY / "corpus")
    tiny = corpus.view("qwen3-tiny", REPOSITORY / "corpus/models/qwen3-tiny/target")
    for domain in ("prose", "code", "chat", "math"):
        refuse_synthetic(tiny, draw(tiny, domain, 384, "1"))
        tokens = sum(
            text.tokens["smollm2-135m"].count for text in corpus.manifest.texts if text.domain == domain
        )
        assert tokens >= 10_000


def test_every_shipped_text_is_in_the_manifest_and_used_by_one_domain() -> None:
    corpus = Corpus(REPOSITORY / "corpus")
    files = {path.relative_to(corpus.root).as_posix() for path in (corpus.root / "texts").rglob("*.txt")}
    assert {text.path for text in corpus.manifest.texts} == files
    assert len({text.sha256 for text in corpus.manifest.texts}) == len(files)


def test_every_shipped_domain_has_instructions() -> None:
    corpus = Corpus(REPOSITORY / "corpus")
    asked = {domain for row in corpus.instructions for domain in row.domains}
    assert asked == {text.domain for text in corpus.manifest.texts} - {"accuracy"}
    assert all("{passage}" in text for row in corpus.instructions for text in row.phrasings)


@pytest.mark.model
def test_every_plan_finds_its_prompts_in_the_default_models_ids() -> None:
    target = Path(os.environ.get("EVALBOT_CACHE", Path.home() / ".cache" / "evalbot")) / "models"
    corpus = Corpus(REPOSITORY / "corpus")
    view = corpus.view("smollm2-135m", target / "smollm2-135m")
    for plan in plans.PLANS.values():
        for case in (case for case in plan.cases if case.model == "smollm2-135m"):
            lengths = {
                case.context_tokens,
                min(case.context_tokens, plan.warmup_tokens or case.context_tokens),
            }
            for domain in case.domains:
                for length in lengths:
                    for attempt in range(10):
                        refuse_synthetic(view, draw(view, domain, length, f"{plan.name}/{attempt}"))
