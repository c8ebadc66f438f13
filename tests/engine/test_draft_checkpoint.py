"""Which drafts load, which are refused, and what the refusal says."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.config import ConfigError, EngineError, WeightsError
from engine.decoding import speculative
from engine.decoding.proposal import DSparkProposer
from engine.models import draft_checkpoint
from engine.models.decoder import CausalLM
from engine.models.dspark import DSparkDraft, Vocabulary
from engine.models.dspark_config import from_deepspec, to_deepspec
from engine.runtime.draft_runner import DraftRunner
from engine.runtime.model_runner import ModelRunner
from tests.engine import tiny
from tests.engine.parity import DRAFT, prompts

HASH, OTHER_HASH = "a" * 64, "b" * 64


@pytest.fixture
def copy(tmp_path):
    """Makes a copy of the tiny draft with some config keys and tensors replaced (None removes)."""

    def make(tensors=None, **keys):
        directory = tmp_path / "draft"
        shutil.copytree(DRAFT, directory)
        config = json.loads((directory / "config.json").read_text()) | keys
        config = {key: value for key, value in config.items() if value is not None or key not in keys}
        (directory / "config.json").write_text(json.dumps(config))
        if tensors:
            stored = load_file(directory / "model.safetensors") | tensors
            kept = {name: tensor for name, tensor in stored.items() if tensor is not None}
            save_file(kept, directory / "model.safetensors")
        return directory

    return make


def load(directory, **options):
    return draft_checkpoint.load(directory, tiny.target(), **options)


def run(draft, target=None, prompt="code_main", **options):
    """Tokens and accepted drafts of 24 new tokens."""
    model = target or tiny.target()
    steps = list(
        speculative.generate(
            ModelRunner.build(model, 256, draft.config.target_layer_ids),
            DSparkProposer(DraftRunner.build(draft, 256)),
            prompts()[prompt]["ids"],
            proposals=draft.config.block_size,
            max_new_tokens=24,
            **options,
        )
    )
    return tiny.tokens(steps), [step.accepted for step in steps]


def test_stored_vocabulary_equal_to_the_targets_is_the_targets():
    vocabulary = load(DRAFT).vocabulary
    assert vocabulary.embed_tokens is tiny.target().embed_tokens
    assert vocabulary.lm_head is tiny.target().lm_head


def test_vocabulary_that_is_not_stored_is_the_targets(copy):
    directory = copy({"embed_tokens.weight": None, "lm_head.weight": None})
    assert load(directory).vocabulary.lm_head is tiny.target().lm_head
    assert run(load(directory)) == run(load(DRAFT))


def test_vocabulary_that_differs_from_the_targets_stays_the_drafts_own(copy):
    head = load_file(DRAFT / "model.safetensors")["lm_head.weight"].flip(0).contiguous()
    draft = load(copy({"lm_head.weight": head}))
    assert torch.equal(draft.vocabulary.lm_head.weight, head.float())
    assert draft.vocabulary.embed_tokens is tiny.target().embed_tokens
    assert run(draft)[0] == run(load(DRAFT))[0]


def test_saved_draft_reads_back_tensor_for_tensor_without_its_vocabulary(tmp_path):
    draft_checkpoint.save(load(DRAFT), tmp_path / "saved")
    again = load(tmp_path / "saved")
    stored, original = (
        load_file(tmp_path / "saved" / "model.safetensors"),
        load_file(DRAFT / "model.safetensors"),
    )
    assert set(original) - set(stored) == {"embed_tokens.weight", "lm_head.weight"}
    assert all(torch.equal(stored[name], original[name]) for name in stored)
    assert again.config == load(DRAFT).config


@pytest.mark.parametrize("kind", ["vanilla", "gated", "rnn", None])
def test_every_head_type_loads_decodes_and_stays_lossless(tmp_path, kind):
    torch.manual_seed(1)
    config = replace(
        tiny.draft().config,
        markov_rank=8 if kind else 0,
        markov_head_type=kind,
        confidence_head=bool(kind),
        confidence_with_markov=bool(kind),
    )
    draft_checkpoint.save(DSparkDraft(config, tiny.draft().vocabulary), tmp_path)
    draft = load(tmp_path)
    assert draft.config == config
    assert run(draft)[0] == prompts()["code_main"]["ar_ids"][:24]
    if kind is None:
        with pytest.raises(ConfigError, match="no confidence head: set it to 0"):
            DSparkProposer(DraftRunner.build(draft, 64), confidence_threshold=0.5)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"speculators_model_type": "dspark"}, "'speculators' draft"),
        ({"dflash_config": {"block_size": 16}}, "z-lab DFlash"),
        ({"dspark_block_size": 5}, "DeepSeek-V4 bundled"),
        ({"dspark_config": {"block_size": 7}}, "nested under 'dspark_config'"),
        ({"hc_mult": 4}, "DeepSeek-V4"),
        ({"architectures": ["DSparkDraftModel"]}, "DSparkDraftModel.*Qwen3DSparkModel"),
        ({"architectures": None}, "architectures is None"),
    ],
)
def test_foreign_format_is_refused_by_name(copy, keys, says):
    with pytest.raises(ConfigError, match=says):
        load(copy(**keys))


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"mask_token_id": -1}, r"mask_token_id is -1, .*vocabulary of 100: it must be 0\.\.99"),
        ({"mask_token_id": 100}, "mask_token_id is 100"),
        ({"mask_token_id": None}, "mask_token_id should be a whole number, but is None"),
        ({"markov_head_type": "transformer"}, "'transformer'.*vanilla, gated, rnn"),
        ({"markov_rank": 0}, "markov_rank is 0"),
        ({"markov_rank": -1}, "markov_rank should be a whole number of 0 or more, but is -1"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "rope type is 'yarn'"),
        (
            {"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 2.0}},
            "rope type is 'linear'",
        ),
        ({"target_layer_ids": [1, 2, 5]}, r"holds 5, .*6 layers are -1\.\.4: the last layer"),
        ({"target_layer_ids": [-2, 1, 2]}, "holds -2"),
        ({"target_layer_ids": [1, 1, 2]}, "list of different layer numbers"),
        ({"target_layer_ids": []}, "list of different layer numbers"),
        ({"num_target_layers": 36}, "number of target layers is 36, but this target's is 6"),
        ({"hidden_size": 64}, "hidden size is 64, but this target's is 128"),
        ({"vocab_size": 228}, "228 rows and the target's 100"),
        ({"eos_token_id": 97}, r"ids \[97\], but the target's stop ids are \[98\]"),
        ({"max_position_embeddings": 512}, "reaches 512 positions, but the target's context is 1024"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
        ({"block_size": 0}, "block_size should be a whole number of 1 or more"),
        ({"block_size": True}, "block_size should be a whole number of 1 or more, but is True"),
    ],
)
def test_config_that_does_not_fit_is_refused_with_both_sides(copy, keys, says):  # B34
    with pytest.raises(ConfigError, match=says):
        load(copy(**keys))


def test_legacy_rope_keys_mean_the_same(copy):
    legacy = load(copy(rope_parameters=None, rope_theta=10_000.0, rope_scaling=None))
    assert legacy.config == load(DRAFT).config


def test_tokenizer_of_other_ids_is_refused_with_both_hashes(copy):  # B34
    directory = copy(target_tokenizer_sha256=HASH)
    assert load(directory, tokenizer_sha256=HASH).config.tokenizer_sha256 == HASH
    with pytest.raises(ConfigError, match=f"{HASH}.*{OTHER_HASH}"):
        load(directory, tokenizer_sha256=OTHER_HASH)


def padded(tensor, rows):
    return torch.cat((tensor, torch.full((rows, tensor.shape[1]), 0.5, dtype=tensor.dtype)))


def test_draft_padded_beyond_the_targets_vocabulary_proposes_no_padding(copy):  # B34
    stored = load_file(DRAFT / "model.safetensors")
    names = [
        "embed_tokens.weight",
        "lm_head.weight",
        "markov_head.markov_w1.weight",
        "markov_head.markov_w2.weight",
    ]
    # A head row this large would win every slot if padding could be proposed.
    wide = {name: padded(stored[name], 128) for name in names}
    wide["lm_head.weight"][100:] = 9.0
    directory = copy(wide, vocab_size=228, target_tokenizer_sha256=HASH)
    draft = load(directory, tokenizer_sha256=HASH)
    assert draft.vocabulary.size == 100
    assert run(draft) == run(load(DRAFT))


def test_target_padded_beyond_the_drafts_vocabulary_is_served(copy):  # B34
    wide = CausalLM(replace(tiny.target().config, vocab_size=228)).requires_grad_(False)
    state = dict(tiny.target().state_dict())
    for name in ("embed_tokens.weight", "lm_head.weight"):
        # Copies of a row whose token never wins: padding that stays silent.
        state[name] = torch.cat((state[name], state[name][98].expand(128, -1)))
    wide.load_state_dict(state)
    wide.prepare_inference()
    draft = draft_checkpoint.load(copy(target_tokenizer_sha256=HASH), wide, tokenizer_sha256=HASH)
    assert draft.vocabulary.size == 100
    assert run(draft, wide) == run(load(DRAFT))
    sampled = run(draft, wide, temperature=1.0, generator=torch.Generator().manual_seed(2))
    assert len(sampled[0]) == 24
    padding_anchor = DSparkProposer(DraftRunner.build(draft, 64)).propose(150, 7, 0.0)
    assert len(padding_anchor.tokens) == 0


def test_mask_id_beyond_a_shared_embedding_is_refused(copy):  # B34
    stored = load_file(DRAFT / "model.safetensors")
    wide = {
        f"markov_head.markov_w{i}.weight": padded(stored[f"markov_head.markov_w{i}.weight"], 128)
        for i in (1, 2)
    }
    directory = copy(
        {**wide, "embed_tokens.weight": None, "lm_head.weight": None},
        vocab_size=228,
        mask_token_id=200,
        target_tokenizer_sha256=HASH,
    )
    with pytest.raises(ConfigError, match=r"mask_token_id is 200, .*has 100 rows"):
        load(directory, tokenizer_sha256=HASH)


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        ({"fc.weight": None}, r"1 missing \(fc.weight\)"),
        ({"d2t": torch.ones(4)}, r"1 unexpected \(d2t\)"),
        ({"fc.weight": torch.ones(128, 512)}, r"should have shape \[128, 384\], but has \[128, 512\]"),
        ({"norm.weight": torch.full((128,), float("nan"))}, "NaN or infinity"),
    ],
)
def test_corrupted_weights_are_refused_by_tensor(copy, tensors, says):
    with pytest.raises(WeightsError, match=says):
        load(copy(tensors))


def test_truncated_file_is_refused(copy):
    directory = copy()
    whole = (directory / "model.safetensors").read_bytes()
    (directory / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(WeightsError, match=f"{len(whole) // 2} bytes"):
        load(directory)


def test_absent_draft_is_refused(tmp_path):
    with pytest.raises(EngineError, match="does not exist"):
        load(tmp_path)


def test_config_reads_back_what_it_writes():
    config = replace(tiny.draft().config, tokenizer_sha256=HASH)
    assert from_deepspec(to_deepspec(config), "written") == config


def test_parameters_of_a_draft_are_those_that_its_checkpoint_stores():
    target = tiny.target()
    draft = DSparkDraft(tiny.draft().config, Vocabulary(target.embed_tokens, target.lm_head, 100))
    assert set(dict(draft.named_parameters())) == set(draft.state_dict())
    assert len(draft.state_dict()) == 29
