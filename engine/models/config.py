"""Shape of a decoder-only model, read from a Hugging Face config.json or from GGUF metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from engine.config import ConfigError

Architecture = Literal["llama", "qwen3"]
ARCHITECTURES: tuple[Architecture, ...] = ("llama", "qwen3")


@dataclass(frozen=True)
class ModelConfig:
    """Everything the layers need to know of a model. Sizes are element counts."""

    architecture: Architecture
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    rms_norm_eps: float
    rope_theta: float
    max_position: int
    tie_embeddings: bool
    eos_ids: tuple[int, ...] = ()
    bos_id: int | None = None

    @property
    def qk_norm(self) -> bool:
        """Whether queries and keys are normalised per head before rotation."""
        return self.architecture == "qwen3"


def read_json(path: Path) -> dict[str, Any]:
    """An object from a JSON file. Raises ConfigError if it is absent or is not one."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist; a model directory needs it.") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as JSON: {error}.") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path} should hold a JSON object, but holds a {type(value).__name__}.")
    return value


def load(directory: Path) -> ModelConfig:
    """Config of a Hugging Face model directory; generation_config.json wins for the stop ids."""
    raw = read_json(directory / "config.json")
    generation = directory / "generation_config.json"
    if generation.exists():
        stop = read_json(generation).get("eos_token_id")
        if stop is not None:
            raw = {**raw, "eos_token_id": stop}
    return from_hf(raw, str(directory / "config.json"))


def from_hf(raw: Mapping[str, Any], source: str = "config.json") -> ModelConfig:
    """Config from the fields of a config.json. Raises ConfigError for what is not supported."""
    architecture = _architecture(raw.get("model_type"), source)
    theta = rope_theta(raw, source)
    _refuse(raw, "attention_bias", source)
    _refuse(raw, "mlp_bias", source)
    _refuse(raw, "use_sliding_window", source)
    if raw.get("hidden_act", "silu") != "silu":
        raise ConfigError(f"{source}: hidden_act is {raw['hidden_act']!r}; this engine supports 'silu' only.")
    heads = _count(raw, "num_attention_heads", source)
    hidden = _count(raw, "hidden_size", source)
    return _checked(
        ModelConfig(
            architecture=architecture,
            vocab_size=_count(raw, "vocab_size", source),
            hidden_size=hidden,
            num_layers=_count(raw, "num_hidden_layers", source),
            num_heads=heads,
            num_kv_heads=_count(raw, "num_key_value_heads", source, default=heads),
            head_dim=_count(raw, "head_dim", source, default=hidden // heads),
            intermediate_size=_count(raw, "intermediate_size", source),
            rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
            rope_theta=theta,
            max_position=_count(raw, "max_position_embeddings", source),
            tie_embeddings=bool(raw.get("tie_word_embeddings", False)),
            eos_ids=_ids(raw.get("eos_token_id")),
            bos_id=raw.get("bos_token_id"),
        ),
        source,
    )


def rope_theta(raw: Mapping[str, Any], source: str) -> float:
    """Rotary base from ``rope_parameters`` or the older top-level keys; ConfigError for a scaled rope."""
    scaling = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind != "default":
        raise ConfigError(f"{source}: rope type is {kind!r}; this engine supports 'default' only.")
    return float(scaling.get("rope_theta", raw.get("rope_theta", 10_000.0)))


def from_gguf(fields: Mapping[str, Any], tie_embeddings: bool, source: str) -> ModelConfig:
    """Config from GGUF metadata. ``tie_embeddings``: the file has no ``output.weight``."""
    architecture = _architecture(fields.get("general.architecture"), source)

    def count(key: str, default: int | None = None) -> int:
        return _count(fields, f"{architecture}.{key}", source, default)

    heads = count("attention.head_count")
    hidden = count("embedding_length")
    scaling = fields.get(f"{architecture}.rope.scaling.type", "none")
    if scaling != "none":
        raise ConfigError(f"{source}: rope scaling is {scaling!r}; this engine supports none.")
    eps = float(fields.get(f"{architecture}.attention.layer_norm_rms_epsilon", 1e-6))
    return _checked(
        ModelConfig(
            architecture=architecture,
            vocab_size=count("vocab_size", len(fields.get("tokenizer.ggml.tokens", ())) or None),
            hidden_size=hidden,
            num_layers=count("block_count"),
            num_heads=heads,
            num_kv_heads=count("attention.head_count_kv", heads),
            head_dim=count("attention.key_length", hidden // heads),
            intermediate_size=count("feed_forward_length"),
            # GGUF keeps float32; seven digits give back the decimal that the model was trained with.
            rms_norm_eps=float(f"{eps:.6g}"),
            rope_theta=float(fields.get(f"{architecture}.rope.freq_base", 10_000.0)),
            max_position=count("context_length"),
            tie_embeddings=tie_embeddings,
            eos_ids=_ids(fields.get("tokenizer.ggml.eos_token_id")),
            bos_id=fields.get("tokenizer.ggml.bos_token_id"),
        ),
        source,
    )


def to_hf(config: ModelConfig) -> dict[str, Any]:
    """The config.json that ``transformers`` reads this model with; :func:`from_hf` reads it back."""
    name = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}[config.architecture]
    return {
        "architectures": [name],
        "model_type": config.architecture,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.intermediate_size,
        "hidden_act": "silu",
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "rope_parameters": {"rope_theta": config.rope_theta, "rope_type": "default"},
        "max_position_embeddings": config.max_position,
        "tie_word_embeddings": config.tie_embeddings,
        "attention_bias": False,
        "bos_token_id": config.bos_id,
        "eos_token_id": list(config.eos_ids) if len(config.eos_ids) != 1 else config.eos_ids[0],
        "dtype": "float32",
    }


def _architecture(name: object, source: str) -> Architecture:
    if name not in ARCHITECTURES:
        known = " and ".join(ARCHITECTURES)
        raise ConfigError(f"{source}: the architecture is {name!r}; this engine supports {known}.")
    return cast(Architecture, name)


def _count(raw: Mapping[str, Any], key: str, source: str, default: int | None = None) -> int:
    value = raw.get(key)
    if value is None:
        value = default
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{source}: {key} should be a positive integer, but is {value!r}.")
    return value


def _ids(value: object) -> tuple[int, ...]:
    if value is None:
        return ()
    if isinstance(value, int):
        return (value,)
    return tuple(int(item) for item in cast("list[int]", value))


def _refuse(raw: Mapping[str, Any], key: str, source: str) -> None:
    if raw.get(key):
        raise ConfigError(f"{source}: {key} is {raw[key]!r}; this engine supports models without it.")


def _checked(config: ModelConfig, source: str) -> ModelConfig:
    if config.num_heads % config.num_kv_heads:
        raise ConfigError(
            f"{source}: {config.num_heads} query heads should be a multiple of the KV heads, "
            f"but there are {config.num_kv_heads}."
        )
    if config.head_dim % 2:
        raise ConfigError(f"{source}: head_dim is {config.head_dim}; rotary embedding needs an even one.")
    return config
