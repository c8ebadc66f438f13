"""The second-architecture guard ships the models of the parity set and a tokenizer that agrees with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.engine.parity import PARITY, prompts

MODELS = Path(__file__).parents[2] / "corpus" / "models" / "qwen3-tiny"


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_file(str(MODELS / "target" / "tokenizer.json"))


@pytest.mark.parametrize(
    "name",
    [
        *("target/config.json", "target/generation_config.json", "target/model.safetensors"),
        *("draft/config.json", "draft/model.safetensors"),
    ],
)
def test_guard_models_are_those_of_the_parity_set(name):
    assert (MODELS / name).read_bytes() == (PARITY / name).read_bytes()


def test_tokenizer_gives_the_recorded_ids_and_text(tokenizer):
    for prompt in prompts().values():
        assert tokenizer.encode(prompt["text"]).ids == prompt["ids"]
        assert tokenizer.decode(prompt["ar_ids"]) == prompt["ar_text"]


def test_every_character_has_an_id_and_only_printable_ascii_its_own(tokenizer):
    printable = "".join(map(chr, range(32, 127)))
    assert tokenizer.encode(printable).ids == list(range(95))
    assert tokenizer.encode("\n\t\r\x00\x7fé€\u2028😀<eos>").ids == [95] * 9 + [28, 69, 79, 83, 30]
    assert tokenizer.get_vocab_size() == 100
