from __future__ import annotations

import json

import pytest

from engine.__main__ import main
from tests.engine.parity import DRAFT
from tests.engine.test_qwen3_tiny import MODELS

GENERATE = ["generate", "def main(argv):", "--device", "cpu", "--max-new", "24"]
TINY = ["--model", str(MODELS / "target"), "--draft", str(MODELS / "draft")]


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("mode", ["ar", "dspark"])
def test_json_is_one_object_with_tokens_tau_and_rounds(capsys, mode):
    code, out, err = run(capsys, *GENERATE, *TINY, "--mode", mode, "--json")
    assert (code, err) == (0, "")
    said = json.loads(out)
    assert said["mode"] == mode
    assert said["new_tokens"] == len(said["token_ids"]) == 24
    assert said["rounds"] * said["tau"] == pytest.approx(23)
    assert said["accepted"] <= said["proposed"]
    assert (said["tau"] == 1.0) == (mode == "ar")


def test_text_streams_and_ends_with_rate_tau_and_rounds(capsys):
    code, out, _ = run(capsys, *GENERATE, *TINY, "--mode", "dspark")
    assert code == 0
    text, summary = out.rstrip("\n").rsplit("\n", 1)
    assert text
    assert summary.startswith("dspark: 24 tokens, ")
    assert all(word in summary for word in (" tok/s", "tau ", " rounds"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([*GENERATE, "--model", "/no/such/model"], "/no/such/model is not a model directory"),
        ([*GENERATE, *TINY, "--max-new", "5000"], "but the context holds 1024; shorten the prompt"),
        ([*GENERATE, *TINY[:2], "--mode", "dspark"], "No draft is known for"),
        ([*GENERATE, *TINY[:2], "--mode", "dspark", "--draft", "/none"], "/none/config.json does not exist"),
    ],
)
def test_an_error_is_a_sentence_and_no_traceback(capsys, arguments, sentence):
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (1, "")
    assert sentence in err
    assert "Traceback" not in err


def test_debug_lets_the_error_through():
    with pytest.raises(Exception, match="is not a model directory"):
        main(["--debug", *GENERATE, "--model", "/no/such/model"])


def test_a_draft_is_not_mistaken_for_a_target(capsys):
    code, _, err = run(capsys, *GENERATE, "--model", str(DRAFT))
    assert code == 1
    assert "tokenizer.json does not exist" in err
