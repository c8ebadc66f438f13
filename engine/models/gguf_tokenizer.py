"""tokenizer.json and tokenizer_config.json rebuilt from GGUF metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.config import TokenizerError

_CONTROL = 3
"""GGUF token type of special tokens, matched before the text is split."""

_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_PRE_TOKENIZERS: dict[str, dict[str, Any]] = {
    # Every digit is a token of its own; the rest is split with GPT-2's pattern.
    "smollm": {
        "type": "Sequence",
        "pretokenizers": [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL],
    },
    "gpt-2": _BYTE_LEVEL,
    "qwen2": {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": _QWEN2_PATTERN}, "behavior": "Isolated", "invert": False},
            {**_BYTE_LEVEL, "use_regex": False},
        ],
    },
}
_NORMALIZERS = {"qwen2": {"type": "NFC"}}


def tokenizer_json(fields: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Content of a tokenizer.json. Raises TokenizerError for a kind of tokenizer not supported."""
    kind, split = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre")
    if kind != "gpt2" or split not in _PRE_TOKENIZERS:
        known = ", ".join(_PRE_TOKENIZERS)
        raise TokenizerError(
            f"{source}: the tokenizer is {kind!r} with the pre-tokenizer {split!r}; "
            f"this engine rebuilds 'gpt2' with one of: {known}."
        )
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    types: list[int] = fields["tokenizer.ggml.token_type"]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": index,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for index, (token, type_) in enumerate(zip(tokens, types, strict=True))
            if type_ == _CONTROL
        ],
        "normalizer": _NORMALIZERS.get(split),
        "pre_tokenizer": _PRE_TOKENIZERS[split],
        "post_processor": None,
        "decoder": _BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in fields["tokenizer.ggml.merges"]],
        },
    }


def tokenizer_config_json(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Content of a tokenizer_config.json: special tokens by text, and the chat template."""
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    named = {
        "bos_token": "bos_token_id",
        "eos_token": "eos_token_id",
        "pad_token": "padding_token_id",
        "unk_token": "unknown_token_id",
    }
    specials = {
        name: tokens[fields[f"tokenizer.ggml.{key}"]]
        for name, key in named.items()
        if f"tokenizer.ggml.{key}" in fields
    }
    return {
        **specials,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "chat_template": fields.get("tokenizer.chat_template"),
    }
