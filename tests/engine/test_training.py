"""The trainer sees what inference sees, its closed-form gradient is right, and it learns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine.config import ConfigError
from engine.llm import LLM
from engine.models import draft_checkpoint
from engine.models.decoder import CausalLM
from engine.models.dspark import DSparkDraft
from engine.training import loss, run, teacher
from engine.training.dataset import Bucket, BucketPlan, distinct_4gram_ratio, valid_ends
from engine.training.evaluate import held_out, walk
from engine.training.forward import block_hidden, choose_anchors
from engine.training.optim import one_cycle, orthogonalised
from engine.training.prompts import PromptBuilder, Text
from engine.training.recipe import TINY, Recipe
from engine.training.report import evaluate_prompts, table
from engine.training.trainer import Trainer
from tests.engine import tiny
from tests.engine.parity import DRAFT, TARGET, read_json

PROMPTS = read_json("greedy")["prompts"]
QWEN3_TINY = Path(__file__).parents[2] / "corpus" / "models" / "qwen3-tiny" / "target"


@pytest.fixture
def target() -> CausalLM:
    return tiny.target()


@pytest.fixture
def draft() -> DSparkDraft:
    return tiny.draft()


def _bucket(target: CausalLM, draft: DSparkDraft, prompt: list[int], new: list[int]) -> Bucket:
    ids = torch.tensor([prompt + new])
    taps = draft.config.target_layer_ids
    features, hidden = teacher.features(target, ids, taps, 0, torch.ones(len(taps)))
    plan = BucketPlan(len(prompt), 1, len(new), 1.0, 1)
    return Bucket(plan, ids, features, hidden, 0, torch.tensor([ids.shape[1]]))


def test_masked_training_pass_gives_each_anchor_the_view_it_has_alone(
    target: CausalLM, draft: DSparkDraft
) -> None:
    prompt = PROMPTS[0]
    bucket = _bucket(target, draft, prompt["ids"], prompt["ar_ids"])
    anchors = torch.tensor([[70, 71, 90, 3]])
    together = block_hidden(draft, bucket, anchors)
    for index in range(anchors.shape[1]):
        alone = block_hidden(draft, bucket, anchors[:, index : index + 1])
        torch.testing.assert_close(together[:, index : index + 1], alone, atol=2e-5, rtol=1e-5)


def test_simulated_rounds_are_those_of_the_real_loop(target: CausalLM, draft: DSparkDraft) -> None:
    llm = LLM.load(TARGET, DRAFT, device="cpu")
    for prompt in PROMPTS[:4]:
        steps = list(llm.generate(prompt["ids"], mode="dspark", max_new_tokens=64, stop_ids=[98]))
        depth = steps[1].proposed
        new = prompt["ar_ids"][:64]
        found = held_out(draft, target.lm_head.weight, _bucket(target, draft, prompt["ids"], new), (depth,))
        assert found[depth].rounds == len(steps) - 1
        assert found[depth].committed == sum(len(step.token_ids) for step in steps[1:])


def test_walk_counts_the_bonus_token_and_stops_with_the_text() -> None:
    found = walk([2, 0, 0, 7, 0], depth=7)
    assert (found.rounds, found.committed) == (2, 4)
    assert found.tau == 2.0
    assert walk([5], depth=7).tau is None


def test_closed_form_gradient_equals_autograd() -> None:
    torch.manual_seed(0)
    rows, vocab, d, r = 10, 23, 6, 4
    head, hidden_t = torch.randn(vocab, d), torch.randn(rows, d)
    leaves = [torch.randn(rows, d), torch.randn(rows, r), torch.randn(vocab, r)]
    weights = torch.rand(rows)
    ours = [leaf.clone().requires_grad_() for leaf in leaves]
    total, stats = loss.head_loss(*ours, head, hidden_t, weights, shares=(0.3, 0.7), chunk=4)
    total.backward()
    plain = [leaf.clone().requires_grad_() for leaf in leaves]
    log_q = (plain[0] @ head.t() + plain[1] @ plain[2].t()).log_softmax(-1)
    log_p = (hidden_t @ head.t()).log_softmax(-1)
    kl = (log_p.exp() * (log_p - log_q)).sum(-1)
    ce = -log_q.gather(1, log_p.argmax(-1, keepdim=True)).squeeze(1)
    scale = weights / (weights.sum() + 1e-6)
    expected = (scale * (0.3 * kl + 0.7 * ce)).sum()
    expected.backward()
    torch.testing.assert_close(total, expected)
    for mine, theirs in zip(ours, plain, strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, atol=1e-6, rtol=1e-5)
    overlap = 1 - 0.5 * (log_p.exp() - log_q.exp()).abs().sum(-1)
    torch.testing.assert_close(stats.overlap, overlap)


def test_slots_whose_label_lies_behind_the_end_are_not_supervised(
    target: CausalLM, draft: DSparkDraft
) -> None:
    bucket = replace(_bucket(target, draft, list(range(40)), [5] * 10), valid_end=torch.tensor([46]))
    anchors = choose_anchors(bucket, 64, 7, 0.0, torch.Generator().manual_seed(0))
    assert anchors.positions.min() >= 40
    assert anchors.positions.max() <= 44
    last = anchors.positions == 44
    assert anchors.valid[last][:, 0].all()
    assert not anchors.valid[last][:, 1:].any()


def test_a_continuation_is_worth_learning_through_its_stop_token() -> None:
    written = torch.tensor([[4, 2, 2, 9], [4, 5, 6, 7]])
    assert valid_ends(10, written, (2,)).tolist() == [12, 14]


def test_loops_have_few_distinct_4grams() -> None:
    assert distinct_4gram_ratio([1, 2, 3] * 30) < 0.1
    assert distinct_4gram_ratio(list(range(30))) == 1.0


def test_muon_update_is_close_to_orthogonal() -> None:
    torch.manual_seed(1)
    singular = torch.linalg.svdvals(orthogonalised(torch.randn(2, 16, 40)))
    assert singular.min() > 0.5
    assert singular.max() < 1.4


def test_learning_rate_warms_up_and_ends_at_zero() -> None:
    assert one_cycle(0.02) == pytest.approx(0.5)
    assert one_cycle(0.04) == pytest.approx(1.0)
    assert one_cycle(1.0) == pytest.approx(0.0)


def test_every_prompt_of_a_bucket_has_its_length(tmp_path: Path) -> None:
    class Characters:
        def encode(self, text: str) -> list[int]:
            return [ord(char) for char in text]

        def chat(self, messages: list[dict[str, str]]) -> list[int]:
            return self.encode("<user>" + messages[0]["content"] + "<assistant>")

    builder = PromptBuilder(Characters(), [Text("prose", tuple(range(97, 117)) * 40)], seed=3)
    for length in (150, 200, 333):
        ids = builder.prompt(length)
        assert len(ids) == length
        assert "".join(map(chr, ids[:6])) == "<user>"
        assert 0 not in ids


def _train(
    folder: Path, *, steps: int, resume: bool = False, recipe: Recipe = TINY
) -> list[list[float | None]]:
    texts = folder / "texts.jsonl"
    source = Path(run.__file__).read_text(encoding="utf-8")
    rows = [json.dumps(["source", "code", source[start : start + 2500]]) for start in range(0, 5000, 250)]
    texts.write_text("\n".join(rows) + "\n", encoding="utf-8")
    run.train(
        str(QWEN3_TINY),
        recipe,
        texts,
        folder / "out",
        seconds=600,
        steps=steps,
        compile_loss=False,
        resume=resume,
    )
    curve: list[list[float | None]] = json.loads((folder / "out" / "curve.json").read_text(encoding="utf-8"))
    return curve


def test_training_learns_resumes_and_writes_a_draft_that_loads(tmp_path: Path, target: CausalLM) -> None:
    first = _train(tmp_path, steps=2)
    longer = _train(tmp_path, steps=20, resume=True)
    assert longer[: len(first)] == first
    assert longer[-1][1] == 20
    before, after = first[-1][2], longer[-1][2]
    assert before is not None
    assert after is not None
    assert after < 0.7 * before
    assert draft_checkpoint.load(tmp_path / "out", target).config.block_size == TINY.block_size
    llm = LLM.load(TARGET, tmp_path / "out", device="cpu")
    steps = list(llm.generate(PROMPTS[0]["ids"], mode="dspark", max_new_tokens=48, stop_ids=[98]))
    assert [token for step in steps for token in step.token_ids] == PROMPTS[0]["ar_ids"][:48]


def test_every_round_trains_on_sequences_of_its_own_and_resumes(
    tmp_path: Path, target: CausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[torch.Tensor] = []
    learn_from = Trainer.learn_from

    def watch(trainer: Trainer, train: Sequence[Bucket]) -> None:
        seen.extend(bucket.ids for bucket in train)
        learn_from(trainer, train)

    monkeypatch.setattr(Trainer, "learn_from", watch)
    recipe = replace(TINY, rounds=3)
    curve = _train(tmp_path, steps=6, recipe=recipe)
    assert [point[1] for point in curve if point[3] is not None] == [2, 4, 6]
    assert len(seen) == 3
    assert not any(torch.equal(one[:1], other[:1]) for one, other in pairwise(seen))
    seen.clear()
    assert _train(tmp_path, steps=8, resume=True, recipe=recipe)[:3] == curve
    assert len(seen) == 1, "the last round is gone on with, no other is made again"


def test_resuming_without_a_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no run to resume"):
        run.train(str(QWEN3_TINY), TINY, tmp_path / "no.jsonl", tmp_path, seconds=1, resume=True)


def test_the_report_keeps_short_and_looping_continuations_apart(target: CausalLM) -> None:
    prompts = [{"domain": "code", "context": len(p["ids"]), "ids": p["ids"]} for p in PROMPTS[:3]]

    class Hash:
        sha256 = None

    result = evaluate_prompts(target, Hash(), DRAFT, prompts, 48)
    admitted = result["groups"].get("pooled", {"prompts": 0})["prompts"]
    assert admitted + sum(result["left_out"].values()) == 3
    assert "Left out" in table(result)


def test_a_run_may_start_from_a_trained_draft(tmp_path: Path, target: CausalLM) -> None:
    first = _train(tmp_path, steps=2)
    model, _ = run.load_target(str(QWEN3_TINY))
    trained = draft_checkpoint.load(tmp_path / "out", model)
    config, vocabulary = trained.config, trained.vocabulary
    scales = torch.tensor([2.0, 4.0, 0.5])
    fresh = DSparkDraft(config, vocabulary)
    run._start_from(fresh, tmp_path / "out", model, scales)
    features = torch.randn(5, config.feature_size)
    scaled = (features.unflatten(1, (3, -1)) / scales[:, None]).flatten(1)
    torch.testing.assert_close(fresh.context(scaled), trained.context(features), atol=1e-4, rtol=1e-4)
    assert first[-1][3] is not None


def test_the_average_of_two_checkpoints_is_their_mean(tmp_path: Path, target: CausalLM) -> None:
    other = tmp_path / "other"
    doubled = {name: value * 3 for name, value in tiny.draft().state_dict().items()}
    twin = DSparkDraft(tiny.draft().config, tiny.draft().vocabulary)
    twin.load_state_dict(doubled)
    draft_checkpoint.save(tiny.draft(), tmp_path / "own", dtype=torch.float32)
    draft_checkpoint.save(twin, other, dtype=torch.float32)
    run.average(tmp_path / "own", other, tmp_path / "mean")
    mean = draft_checkpoint.load(tmp_path / "mean", target)
    torch.testing.assert_close(mean.fc.weight, tiny.draft().fc.weight * 2)
    save_file({"fc.weight": torch.ones(2, 2)}, other / "model.safetensors")
    with pytest.raises(ConfigError, match="different names or shapes"):
        run.average(tmp_path / "own", other, tmp_path / "mean")
