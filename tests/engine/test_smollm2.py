"""The embedded model against ``transformers``, both reading the same cached directory."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine import tokenizer
from engine.llm import LLM
from engine.models import embedded

pytestmark = pytest.mark.model

NEW_TOKENS = 128
QUESTIONS = (
    "What is the capital of France, and what is it known for?",
    "Write a Python function that reverses a linked list.",
    "Explain photosynthesis to a child.",
)


@pytest.fixture(scope="module")
def directory():
    return embedded.fetch(embedded.SMOLLM2.name)


@pytest.fixture(scope="module")
def llm(directory):
    return LLM.load(directory, device="cpu", max_tokens=1024)


@pytest.fixture(scope="module")
def reference(directory):
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()


def test_tokenizer_and_chat_template_equal_transformers(directory):
    ours, theirs = tokenizer.load(directory), AutoTokenizer.from_pretrained(directory)
    for text in (
        "Plain words, punctuation; and (brackets).",
        "Numbers 1234567 and 3.14, don't we'll I've",
        "  leading and   inner spaces\n\n\ttabs\r\n",
        "naïve Zürich 東京 🙂 Привет",
        "special <|im_start|>user<|im_end|> inside",
        "def f(x):\n    return x ** 2  # comment\n",
    ):
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False)
        assert ours.decode(ours.encode(text)) == theirs.decode(ours.encode(text), skip_special_tokens=True)
    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi."}]
    messages.append({"role": "user", "content": "Bye"})
    expected = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert ours.chat(messages) == list(expected)


@pytest.mark.parametrize("question", QUESTIONS)
def test_greedy_tokens_equal_transformers(directory, llm, reference, question):
    prompt = tokenizer.load(directory).chat([{"role": "user", "content": question}])
    steps = llm.generate(prompt, mode="ar", max_new_tokens=NEW_TOKENS, stop_ids=())
    ours = [token for step in steps for token in step.token_ids]
    theirs = reference.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
        eos_token_id=None,
    )
    assert ours == theirs[0, len(prompt) :].tolist()


def test_verify_rows_have_the_bits_of_single_steps(directory, llm):
    runner = llm._runner
    prompt = tokenizer.load(directory).encode("The quick brown fox jumps over the lazy dog. " * 6)[:60]
    runner.reset()
    runner.prefill(prompt)
    ids = prompt[:8]
    steps = [runner.step(token).logits[0] for token in ids]
    for rows in range(1, 9):
        runner.truncate(len(prompt))
        for row, expected in zip(runner.verify(ids[:rows]).logits, steps[:rows], strict=True):
            assert torch.equal(row, expected)
