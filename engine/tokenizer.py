"""Text to token ids and back, with the chat template the model was served with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer as Encoder

from engine.config import TokenizerError
from engine.models.config import read_json
from engine.models.digest import file_sha256

FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
TEMPLATE_FILE = "chat_template.jinja"


class Tokenizer:
    """A tokenizer.json and, where the model has one, its chat template."""

    def __init__(
        self, encoder: Encoder, chat_template: str | None, variables: Mapping[str, Any], sha256: str
    ):
        """``variables``: what the template may read beside the messages, such as ``bos_token``."""
        self._encoder = encoder
        self._variables = dict(variables)
        self.chat_template = chat_template
        self.sha256 = sha256

    @property
    def vocab_size(self) -> int:
        """Ids in use, special tokens included; a model's embedding may be padded beyond it."""
        return self._encoder.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str) -> list[int]:
        """Token ids of ``text`` as it stands: nothing is put before or after it."""
        ids: list[int] = self._encoder.encode(text, add_special_tokens=False).ids
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, as :meth:`encode` gives them, on all cores."""
        return [found.ids for found in self._encoder.encode_batch(list(texts), add_special_tokens=False)]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ``ids``, special tokens left out."""
        text: str = self._encoder.decode(list(ids), skip_special_tokens=True)
        return text

    def chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Token ids of a conversation, up to and including the header of the assistant's answer.

        messages: ``{"role": ..., "content": ...}`` in order. Raises TokenizerError when the model has
        no chat template or the template refuses the messages.
        """
        return self.encode(self.render(messages))

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The conversation as the text that :meth:`chat` encodes."""
        if self.chat_template is None:
            raise TokenizerError(
                "This model has no chat template, so messages cannot be rendered; encode plain text instead."
            )

        def refuse(message: str) -> None:
            raise TokenizerError(f"The chat template refuses these messages: {message}.")

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = refuse
        try:
            template = environment.from_string(self.chat_template)
            return template.render(messages=messages, add_generation_prompt=True, **self._variables)
        except jinja2.TemplateError as error:
            raise TokenizerError(f"The chat template cannot be rendered: {error}.") from error


def load(path: Path) -> Tokenizer:
    """Tokenizer of a model directory or a GGUF file. Raises TokenizerError when it is absent or damaged."""
    if path.suffix == ".gguf":
        return _from_gguf(path)
    if not path.is_dir():
        raise TokenizerError(f"{path} is not a model directory, so there is no tokenizer to read.")
    file = path / FILE
    if not file.exists():
        raise TokenizerError(
            f"{file} does not exist; a model needs its own tokenizer, there is no substitute."
        )
    try:
        encoder = Encoder.from_file(str(file))
    except Exception as error:  # tokenizers raises bare Exception for every malformed file
        raise TokenizerError(f"{file} is not a tokenizer: {error}; fetch the model again.") from error
    config = read_json(path / CONFIG_FILE) if (path / CONFIG_FILE).exists() else {}
    if (path / TEMPLATE_FILE).exists():
        config["chat_template"] = (path / TEMPLATE_FILE).read_text(encoding="utf-8")
    return _configured(encoder, config, file_sha256(file))


def _from_gguf(path: Path) -> Tokenizer:
    # Only this format needs the gguf package.
    from engine.models import gguf, gguf_tokenizer

    fields = gguf.read_fields(path)
    text = json.dumps(gguf_tokenizer.tokenizer_json(fields, str(path)), ensure_ascii=False)
    config = gguf_tokenizer.tokenizer_config_json(fields)
    return _configured(Encoder.from_str(text), config, hashlib.sha256(text.encode()).hexdigest())


def _configured(encoder: Encoder, config: Mapping[str, Any], sha256: str) -> Tokenizer:
    specials = {key: _content(config[key]) for key in ("bos_token", "eos_token") if config.get(key)}
    return Tokenizer(encoder, config.get("chat_template"), specials, sha256)


def _content(token: str | Mapping[str, Any]) -> str:
    return token if isinstance(token, str) else str(token["content"])
