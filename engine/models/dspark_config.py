"""Shape of a DSpark draft, read from a DeepSpec config.json, and what makes it fit a target.

Five kinds of checkpoint go by similar names. Read here are DeepSpec's own dense DSpark drafts and
its retrained DFlash drafts (the same class with ``markov_rank`` 0). The others place their slots or
name their keys differently and would load into nonsense, so they are refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.config import ConfigError
from engine.models.config import ModelConfig, from_hf, to_hf
from engine.models.markov import MARKOV_HEADS

ARCHITECTURE = "Qwen3DSparkModel"

_FOREIGN_FORMATS = (
    ("speculators_model_type", "a 'speculators' draft, whose block slots are shifted by one"),
    ("dflash_config", "a z-lab DFlash draft, which proposes block - 1 tokens and stores no head"),
    ("dspark_block_size", "a DeepSeek-V4 bundled draft ('dspark_*' keys)"),
    ("dspark_config", "a draft with its keys nested under 'dspark_config'"),
    ("hc_mult", "a DeepSeek-V4 draft"),
)


@dataclass(frozen=True)
class DraftConfig:
    """A draft's own layers, and how it hangs on its target."""

    body: ModelConfig
    """Sizes of the draft layers; ``num_layers`` counts the draft's own."""
    block_size: int
    """Block inputs, the anchor included; also proposals per round, since every slot predicts."""
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    """Tapped decoder-layer outputs of the target, in the order of ``fc``'s input; -1 is the embedding."""
    num_target_layers: int
    markov_rank: int
    """0: no Markov head, slots are independent."""
    markov_head_type: str | None
    confidence_head: bool
    confidence_with_markov: bool
    tokenizer_sha256: str | None = None
    """Of the tokenizer.json that the draft was trained with, where the checkpoint says so."""

    @property
    def feature_size(self) -> int:
        """Width of a target feature row: taps times hidden size."""
        return len(self.target_layer_ids) * self.body.hidden_size


def from_deepspec(raw: Mapping[str, Any], source: str) -> DraftConfig:
    """Config from the fields of a draft's config.json. Raises ConfigError for what is not supported."""
    _refuse_foreign(raw, source)
    body = from_hf(raw, source)
    if any(kind != "full_attention" for kind in raw.get("layer_types") or ()):
        raise ConfigError(
            f"{source}: layer_types is {raw['layer_types']}; this engine supports 'full_attention' only."
        )
    rank = _whole(raw, "markov_rank", source, low=0)
    head_type = raw.get("markov_head_type", "vanilla") if rank else None
    if rank and head_type not in MARKOV_HEADS:
        raise ConfigError(
            f"{source}: markov_head_type is {head_type!r}; this engine supports {', '.join(MARKOV_HEADS)}."
        )
    confidence = bool(raw.get("enable_confidence_head", False))
    with_markov = confidence and bool(raw.get("confidence_head_with_markov", False))
    if with_markov and not rank:
        raise ConfigError(
            f"{source}: the confidence head should read the Markov embedding, but markov_rank is 0."
        )
    config = DraftConfig(
        body=body,
        block_size=_whole(raw, "block_size", source, low=1),
        mask_token_id=_whole(raw, "mask_token_id", source),
        target_layer_ids=_taps(raw, source),
        num_target_layers=_whole(raw, "num_target_layers", source, low=1),
        markov_rank=rank,
        markov_head_type=head_type,
        confidence_head=confidence,
        confidence_with_markov=with_markov,
        tokenizer_sha256=raw.get("target_tokenizer_sha256"),
    )
    if not 0 <= config.mask_token_id < body.vocab_size:
        raise ConfigError(
            f"{source}: mask_token_id is {config.mask_token_id}, outside the draft's vocabulary of "
            f"{body.vocab_size}: it must be 0..{body.vocab_size - 1}."
        )
    return config


def to_deepspec(config: DraftConfig) -> dict[str, Any]:
    """The config.json of a draft; :func:`from_deepspec` reads it back."""
    raw = {
        **to_hf(config.body),
        "architectures": [ARCHITECTURE],
        "model_type": "qwen3",
        "layer_types": ["full_attention"] * config.body.num_layers,
        "num_target_layers": config.num_target_layers,
        "block_size": config.block_size,
        "mask_token_id": config.mask_token_id,
        "target_layer_ids": list(config.target_layer_ids),
        "markov_rank": config.markov_rank,
        "enable_confidence_head": config.confidence_head,
    }
    if config.markov_rank:
        raw["markov_head_type"] = config.markov_head_type
    if config.confidence_head:
        raw["confidence_head_with_markov"] = config.confidence_with_markov
    if config.tokenizer_sha256 is not None:
        raw["target_tokenizer_sha256"] = config.tokenizer_sha256
    return raw


def require_fit(draft: DraftConfig, target: ModelConfig, tokenizer_sha256: str | None, source: str) -> None:
    """Raise ConfigError, naming both sides, unless ``draft`` was made for a target like this one.

    Vocabularies of different width are padding when both sides carry the same tokenizer hash, and
    another vocabulary otherwise.
    """
    pairs = (
        ("hidden size", draft.body.hidden_size, target.hidden_size),
        ("number of target layers", draft.num_target_layers, target.num_layers),
    )
    for what, ours, theirs in pairs:
        if ours != theirs:
            raise ConfigError(
                f"{source}: the draft was made for a target whose {what} is {ours}, but this target's is "
                f"{theirs}: load the target it was trained for."
            )
    if draft.body.max_position < target.max_position:
        raise ConfigError(
            f"{source}: the draft reaches {draft.body.max_position} positions, but the target's context is "
            f"{target.max_position}: load the target it was trained for."
        )
    known = draft.tokenizer_sha256 is not None and tokenizer_sha256 is not None
    if known and draft.tokenizer_sha256 != tokenizer_sha256:
        raise ConfigError(
            f"{source}: the draft was trained with the tokenizer of sha256 {draft.tokenizer_sha256}, but the "
            f"target's is {tokenizer_sha256}: their token ids do not mean the same."
        )
    if draft.body.vocab_size != target.vocab_size and not known:
        raise ConfigError(
            f"{source}: the draft's vocabulary has {draft.body.vocab_size} rows and the target's "
            f"{target.vocab_size}, and no tokenizer hash shows that one is the other with padding."
        )
    if stray := set(draft.body.eos_ids) - set(target.eos_ids):
        raise ConfigError(
            f"{source}: the draft ends sequences on ids {sorted(stray)}, but the target's stop ids are "
            f"{sorted(target.eos_ids)}: they were made for different tokenizers."
        )
    last = target.num_layers - 1
    for tap in draft.target_layer_ids:
        if not -1 <= tap < last:
            raise ConfigError(
                f"{source}: target_layer_ids holds {tap}, but the taps of a target with {target.num_layers} "
                f"layers are -1..{last - 1}: the last layer's output is never tapped."
            )


def _refuse_foreign(raw: Mapping[str, Any], source: str) -> None:
    for key, what in _FOREIGN_FORMATS:
        if key in raw:
            raise ConfigError(
                f"{source}: this is {what} (it has the key {key!r}); this engine reads DeepSpec "
                f"checkpoints ({ARCHITECTURE}) only."
            )
    names = raw.get("architectures")
    if names != [ARCHITECTURE]:
        raise ConfigError(
            f"{source}: architectures is {names!r}; this engine reads DeepSpec drafts, whose config says "
            f"[{ARCHITECTURE!r}]."
        )


def _taps(raw: Mapping[str, Any], source: str) -> tuple[int, ...]:
    taps = raw.get("target_layer_ids")
    whole = isinstance(taps, list) and all(type(tap) is int for tap in taps)
    if not taps or not whole or len(set(taps)) != len(taps):
        raise ConfigError(
            f"{source}: target_layer_ids should be a list of different layer numbers, but is {taps!r}."
        )
    return tuple(taps)


def _whole(raw: Mapping[str, Any], key: str, source: str, low: int | None = None) -> int:
    value = raw.get(key)
    if type(value) is not int or (low is not None and value < low):
        bound = "" if low is None else f" of {low} or more"
        raise ConfigError(f"{source}: {key} should be a whole number{bound}, but is {value!r}.")
    return value
