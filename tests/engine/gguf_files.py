"""Tiny GGUF files, written with the ``gguf`` package in the layout that llama.cpp reads."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from transformers import PreTrainedModel

TOKENS = ["<end>", *(chr(code) for code in range(33, 127)), "Ġ", "Ċ"]
MERGES = ["a n", "an d"]
TEMPLATE = "{% for m in messages %}<end>{{ m['role'] }}\n{{ m['content'] }}{% endfor %}"

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write(
    model: PreTrainedModel,
    path: Path,
    *,
    split: str = "smollm",
    quantise: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
) -> Path:
    """The model as GGUF; matrices stored as ``quantise``, Llama's q and k rows in pair order."""
    config = model.config
    writer = gguf.GGUFWriter(path, config.model_type)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    # Merged tokens follow the single ones, as in a trained vocabulary.
    tokens = [*TOKENS, *(merge.replace(" ", "") for merge in MERGES)]
    writer.add_token_list(tokens)
    writer.add_token_types([3, *[1] * (len(tokens) - 1)])
    writer.add_token_merges(MERGES)
    writer.add_eos_token_id(0)
    writer.add_chat_template(TEMPLATE)
    tied = config.tie_word_embeddings
    for name, parameter in model.state_dict().items():
        if tied and name == "lm_head.weight":
            continue
        array = parameter.float().numpy()
        if config.model_type == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            array = _pair_order(array, config.head_dim)
        kind = quantise if array.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(_gguf_name(name), gguf.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _gguf_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if not stem.startswith("model.layers."):
        return f"{_NAMES[stem]}.weight"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{_NAMES[part]}.weight"


def _pair_order(array: np.ndarray, head_dim: int) -> np.ndarray:
    halves = array.reshape(-1, 2, head_dim // 2, array.shape[-1])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(array.shape))
