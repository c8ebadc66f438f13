"""A checkpoint that is not whole is refused in a sentence that names the tensor or the file."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.config import ConfigError, ModelFileError, WeightsError
from tests.engine import checkpoints

NAME = "model.layers.1.mlp.up_proj.weight"


@pytest.fixture
def directory(tmp_path):
    return checkpoints.save(checkpoints.random_model("llama"), tmp_path)


def change(directory, edit) -> None:
    file = directory / "model.safetensors"
    # Copies: the tensors are views of the file that is about to be overwritten.
    tensors = {name: tensor.clone() for name, tensor in load_file(file).items()}
    edit(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


def test_a_missing_tensor_is_named(directory):
    change(directory, lambda tensors: tensors.pop(NAME))
    with pytest.raises(WeightsError, match=r"1 missing \(layers\.1\.mlp\.up_proj\.weight\)"):
        checkpoints.load(directory)


def test_an_unexpected_tensor_is_named(directory):
    change(directory, lambda tensors: tensors.update({"model.layers.0.mlp.gate.bias": torch.ones(3)}))
    with pytest.raises(WeightsError, match=r"1 unexpected \(layers\.0\.mlp\.gate\.bias\)"):
        checkpoints.load(directory)


def test_a_mis_shaped_tensor_is_named_with_both_shapes(directory):
    change(directory, lambda tensors: tensors.update({NAME: tensors[NAME][:, :-1].contiguous()}))
    with pytest.raises(WeightsError, match=r"up_proj\.weight should have .* \[80, 48\], but has \[80, 47\]"):
        checkpoints.load(directory)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite_are_refused(directory, value):
    change(directory, lambda tensors: tensors[NAME].view(-1)[5].fill_(value))
    with pytest.raises(WeightsError, match=r"layers\.1\.mlp\.up_proj\.weight holds NaN or infinity"):
        checkpoints.load(directory)


def test_weights_that_are_zero_throughout_are_refused(directory):
    change(directory, lambda tensors: tensors[NAME].zero_())
    with pytest.raises(WeightsError, match=r"layers\.1\.mlp\.up_proj\.weight is zero throughout"):
        checkpoints.load(directory)


def test_a_truncated_file_is_named_with_its_size(directory):
    file = directory / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(WeightsError, match=r"model\.safetensors \(1000 bytes\) is not a whole"):
        checkpoints.load(directory)


def test_a_directory_without_weights_is_refused(directory):
    (directory / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"neither model\.safetensors nor model\.safetensors\.index\.json"):
        checkpoints.load(directory)


def test_a_path_that_is_no_model_is_refused(tmp_path):
    with pytest.raises(ModelFileError, match=r"neither a model directory nor a \.gguf file"):
        checkpoints.load(tmp_path / "nothing")


@pytest.fixture
def sharded(tmp_path):
    return checkpoints.save(checkpoints.random_model("llama"), tmp_path, sharded=True)


def test_a_missing_shard_is_named(sharded):
    shard = sorted(sharded.glob("model-*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(WeightsError, match=f"{shard.name} does not exist"):
        checkpoints.load(sharded)


def test_a_tensor_that_the_index_promises_and_no_shard_holds_is_named(sharded):
    index = sharded / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["model.extra"] = next(iter(content["weight_map"].values()))
    index.write_text(json.dumps(content))
    with pytest.raises(WeightsError, match=r"promises tensors that its shards lack: model\.extra"):
        checkpoints.load(sharded)


def test_a_tied_model_ignores_a_stored_copy_of_its_head(tmp_path):
    directory = checkpoints.save(checkpoints.random_model("llama", tied=True), tmp_path)
    change(directory, lambda tensors: tensors.update({"lm_head.weight": torch.ones(97, 48)}))
    model = checkpoints.load(directory)
    assert model.lm_head.weight is model.embed_tokens.weight


def edit_config(directory, **changes) -> None:
    file = directory / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model_type": "gpt2"}, "the architecture is 'gpt2'; this engine supports llama and qwen3"),
        ({"attention_bias": True}, "attention_bias is True; this engine supports models without it"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; this engine supports 'silu' only"),
        (
            {"rope_parameters": {"rope_type": "yarn"}},
            "rope type is 'yarn'; this engine supports 'default'",
        ),
        ({"num_hidden_layers": 0}, "num_hidden_layers should be a positive integer, but is 0"),
        ({"hidden_size": "48"}, "hidden_size should be a positive integer, but is '48'"),
        ({"num_key_value_heads": 4}, "6 query heads should be a multiple of the KV heads, but there are 4"),
    ],
)
def test_a_config_that_is_not_supported_is_refused_by_name(directory, changes, sentence):
    edit_config(directory, **changes)
    with pytest.raises(ConfigError, match=sentence):
        checkpoints.load(directory)


def test_a_config_that_is_not_json_is_refused(directory):
    (directory / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"config\.json cannot be read as JSON"):
        checkpoints.load(directory)


def test_the_older_top_level_rope_theta_is_read(directory):
    edit_config(directory, rope_parameters=None, rope_theta=123.0)
    assert checkpoints.load(directory).config.rope_theta == 123.0


def test_generation_config_decides_the_stop_ids(directory):
    (directory / "generation_config.json").write_text('{"eos_token_id": [5, 9]}')
    assert checkpoints.load(directory).config.eos_ids == (5, 9)
