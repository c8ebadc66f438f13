"""Tiny random checkpoints, written by ``transformers`` as any published model is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from engine.models import loading
from engine.models.decoder import CausalLM

VOCABULARY = 97
CONTEXT = 1024

_SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": CONTEXT,
    "eos_token_id": 5,
    "bos_token_id": 1,
    "initializer_range": 0.2,
}
ARCHITECTURES = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM)}


def random_model(architecture: str, *, tied: bool = False, **changes: Any) -> PreTrainedModel:
    """A model with weights and norms far enough from their defaults to tell every part apart."""
    config_class, model_class = ARCHITECTURES[architecture]
    torch.manual_seed(7)
    model = model_class(config_class(**{**_SHAPE, "tie_word_embeddings": tied, **changes})).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
    return model


def save(model: PreTrainedModel, directory: Path, *, sharded: bool = False) -> Path:
    model.save_pretrained(directory, max_shard_size="50KB" if sharded else "1GB")
    return directory


def load(path: Path) -> CausalLM:
    return loading.load(path, device=torch.device("cpu"), dtype=torch.float32)


def random_ids(count: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCABULARY, (count,), generator=generator).tolist()
