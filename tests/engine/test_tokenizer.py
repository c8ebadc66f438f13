from __future__ import annotations

import hashlib
import json

import pytest
import tokenizers

from engine import tokenizer
from engine.config import TokenizerError
from engine.stream import TextStream

MESSAGES = [{"role": "user", "content": "a b"}]


@pytest.fixture
def directory(tmp_path):
    vocabulary = {"<s>": 0, "a": 1, "b": 2, "user": 3, "Hi": 4}
    encoder = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<s>"))
    encoder.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    encoder.add_special_tokens(["<s>"])
    encoder.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def configure(directory, **content) -> None:
    (directory / "tokenizer_config.json").write_text(json.dumps(content))


def test_chat_encodes_the_rendered_template(directory):
    configure(directory, bos_token="<s>", chat_template="{{ bos_token }} {{ messages[0].content }}")
    assert tokenizer.load(directory).chat(MESSAGES) == [0, 1, 2]


def test_a_template_file_wins_over_the_config(directory):
    configure(directory, chat_template="a")
    (directory / "chat_template.jinja").write_text("{{ messages[0].role }}")
    assert tokenizer.load(directory).chat(MESSAGES) == [3]


def test_messages_without_a_chat_template_are_refused(directory):
    with pytest.raises(TokenizerError, match="no chat template"):
        tokenizer.load(directory).chat(MESSAGES)


def test_what_a_template_objects_to_is_passed_on(directory):
    configure(directory, chat_template="{{ raise_exception('roles must alternate') }}")
    with pytest.raises(TokenizerError, match="refuses these messages: roles must alternate"):
        tokenizer.load(directory).chat(MESSAGES)


def test_a_broken_template_is_refused(directory):
    configure(directory, chat_template="{% if %}")
    with pytest.raises(TokenizerError, match="cannot be rendered"):
        tokenizer.load(directory).chat(MESSAGES)


def test_a_template_cannot_reach_into_python(directory):
    configure(directory, chat_template="{{ messages.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(TokenizerError, match="cannot be rendered"):
        tokenizer.load(directory).chat(MESSAGES)


def test_a_missing_tokenizer_has_no_substitute(tmp_path):
    with pytest.raises(TokenizerError, match=r"tokenizer\.json does not exist; .* there is no substitute"):
        tokenizer.load(tmp_path)


def test_a_damaged_tokenizer_is_refused(directory):
    (directory / "tokenizer.json").write_text('{"version": "1.0"')
    with pytest.raises(TokenizerError, match=r"tokenizer\.json is not a tokenizer"):
        tokenizer.load(directory)


def test_sha256_is_that_of_the_tokenizer_file(directory):
    expected = hashlib.sha256((directory / "tokenizer.json").read_bytes()).hexdigest()
    assert tokenizer.load(directory).sha256 == expected


class Bytes:
    """A tokenizer whose ids are the bytes of UTF-8."""

    def decode(self, ids):
        return bytes(ids).decode("utf-8", errors="replace")


@pytest.mark.parametrize("burst", [1, 2, 3, 5])
def test_streamed_text_never_splits_a_character(burst):
    text = "naïve 東京 🙂 end"
    ids = list(text.encode())
    stream = TextStream(Bytes())
    pieces = [stream.add(ids[first : first + burst]) for first in range(0, len(ids), burst)]
    assert "".join(pieces) == text
    assert stream.rest() == ""


def test_an_unfinished_character_is_shown_once_nothing_follows():
    stream = TextStream(Bytes())
    assert stream.add([ord("a"), 0xE6]) == "a"
    assert stream.rest() == "\N{REPLACEMENT CHARACTER}"
