"""GGUF files: metadata, and tensors dequantised to float32 under their Hugging Face names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader, dequantize
from torch import Tensor

from engine.config import ModelFileError, WeightsError
from engine.models.config import ModelConfig, from_gguf

_TOP_LEVEL = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_PER_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


@dataclass(frozen=True)
class GGUFModel:
    config: ModelConfig
    tensors: dict[str, Tensor]
    """float32, named as in a Hugging Face checkpoint."""
    fields: dict[str, Any]
    """All metadata, the tokenizer's included."""


def read(path: Path) -> GGUFModel:
    """Raises ModelFileError for an absent or damaged file, ConfigError for an unsupported model."""
    reader = _open(path)
    fields = _fields(reader)
    tied = all(tensor.name != "output.weight" for tensor in reader.tensors)
    config = from_gguf(fields, tied, str(path))
    tensors = {}
    for tensor in reader.tensors:
        name = huggingface_name(tensor.name, str(path))
        values = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy()).float()
        if config.architecture == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            values = split_rotary_pairs(values, config.head_dim)
        tensors[name] = values
    return GGUFModel(config, tensors, fields)


def read_fields(path: Path) -> dict[str, Any]:
    """The metadata alone. Raises ModelFileError as :func:`read` does."""
    return _fields(_open(path))


def huggingface_name(name: str, source: str) -> str:
    """``blk.3.attn_q.weight`` -> ``model.layers.3.self_attn.q_proj.weight``."""
    if name in _TOP_LEVEL:
        return _TOP_LEVEL[name]
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    if match is None or match[2] not in _PER_LAYER:
        raise WeightsError(f"{source}: tensor {name} has no place in the models this engine supports.")
    return f"model.layers.{match[1]}.{_PER_LAYER[match[2]]}.weight"


def split_rotary_pairs(weight: Tensor, head_dim: int) -> Tensor:
    """Undo GGUF's row order for Llama's q and k, [H * hd, in].

    GGUF stores the two members of each rotated pair next to each other (2i, 2i + 1); the half-split
    rotation of ``ops.rotary`` expects them head_dim / 2 apart.
    """
    pairs = weight.view(-1, head_dim // 2, 2, weight.shape[-1])
    return pairs.transpose(1, 2).reshape_as(weight).contiguous()


def _open(path: Path) -> GGUFReader:
    try:
        return GGUFReader(path)
    except FileNotFoundError:
        raise ModelFileError(f"{path} does not exist; check the path.") from None
    except (ValueError, IndexError, KeyError, TypeError, OSError, OverflowError) as error:
        size = path.stat().st_size
        raise ModelFileError(
            f"{path} ({size} bytes) is not a whole GGUF file: {error}; fetch it again."
        ) from error


def _fields(reader: GGUFReader) -> dict[str, Any]:
    return {name: field.contents() for name, field in reader.fields.items()}
