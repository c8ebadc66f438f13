from __future__ import annotations

import gguf as gguf_package
import pytest
import torch

from engine import tokenizer
from engine.config import ModelFileError, TokenizerError, WeightsError
from engine.models import gguf
from engine.runtime.model_runner import ModelRunner
from tests.engine import checkpoints, gguf_files


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_a_gguf_file_gives_the_logits_of_the_checkpoint_it_was_made_from(tmp_path, architecture, tied):
    model = checkpoints.random_model(architecture, tied=tied)
    directory = checkpoints.save(model, tmp_path / "hf")
    file = gguf_files.write(model, tmp_path / "model.gguf")
    ids = checkpoints.random_ids(30)
    logits = [ModelRunner.build(checkpoints.load(path), 32).prefill(ids).logits for path in (directory, file)]
    assert torch.equal(*logits)


def test_quantised_matrices_are_widened_to_float32(tmp_path):
    model = checkpoints.random_model("llama", hidden_size=96, intermediate_size=96)
    file = gguf_files.write(model, tmp_path / "q.gguf", quantise=gguf_package.GGMLQuantizationType.Q8_0)
    tensors = gguf.read(file).tensors
    original = model.state_dict()
    for name, tensor in tensors.items():
        assert tensor.dtype == torch.float32
        torch.testing.assert_close(tensor, original[name], atol=0.01, rtol=0)


def test_the_config_survives_the_way_through_gguf(tmp_path):
    model = checkpoints.random_model("qwen3")
    from_directory = checkpoints.load(checkpoints.save(model, tmp_path / "hf")).config
    config = gguf.read(gguf_files.write(model, tmp_path / "m.gguf")).config
    for field in ("num_heads", "num_kv_heads", "head_dim", "rms_norm_eps", "rope_theta", "max_position"):
        assert getattr(config, field) == getattr(from_directory, field)
    assert config.eos_ids == (0,)


def test_a_tensor_with_no_place_in_the_model_is_named():
    with pytest.raises(WeightsError, match=r"tensor blk\.0\.ssm_in\.weight has no place"):
        gguf.huggingface_name("blk.0.ssm_in.weight", "x.gguf")


@pytest.mark.parametrize("size", [0, 10, 200, 20_000])
def test_a_truncated_file_is_refused_with_its_size(tmp_path, size):
    file = gguf_files.write(checkpoints.random_model("llama"), tmp_path / "m.gguf")
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(ModelFileError, match=rf"m\.gguf \({size} bytes\) is not a whole GGUF file"):
        gguf.read(file)


def test_a_file_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(ModelFileError, match=r"none\.gguf does not exist"):
        gguf.read(tmp_path / "none.gguf")


def test_the_tokenizer_inside_the_file_merges_and_marks_specials(tmp_path):
    words = tokenizer.load(gguf_files.write(checkpoints.random_model("llama"), tmp_path / "m.gguf"))
    tokens = [*gguf_files.TOKENS, "an", "and"]
    assert [tokens[i] for i in words.encode("<end>and 12")] == ["<end>", "and", "Ġ", "1", "2"]
    assert words.decode(words.encode("an ant\n")) == "an ant\n"
    assert words.render([{"role": "user", "content": "hi"}]) == "<end>user\nhi"


def test_a_pre_tokenizer_that_is_not_known_is_refused_by_name(tmp_path):
    file = gguf_files.write(checkpoints.random_model("llama"), tmp_path / "m.gguf", split="tekken")
    with pytest.raises(TokenizerError, match=r"pre-tokenizer 'tekken'; this engine rebuilds 'gpt2'"):
        tokenizer.load(file)


@pytest.mark.parametrize("split", ["gpt-2", "qwen2"])
def test_every_known_pre_tokenizer_loads_and_gives_text_back(tmp_path, split):
    file = gguf_files.write(checkpoints.random_model("llama"), tmp_path / "m.gguf", split=split)
    words = tokenizer.load(file)
    text = "It's 42 and\n\n  more."
    assert words.decode(words.encode(text)) == text
