"""Prompts for draft training: an instruction over a window of natural text, in the target's chat template.

Served prompts look like this, so the draft is trained on the target's answers to such prompts. The
windows come from ``sources`` and from documents that the target writes itself, never from the
benchmark's corpus.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

TASKS: dict[str, tuple[str, ...]] = {
    "any": (
        "Summarise the text below in a few sentences.",
        "Summarize the following passage in your own words.",
        "Explain what this text is about to someone who has not read it.",
        "What are the main points of the following text?",
        "List the most important facts in this text.",
        "Write a short continuation of the following text in the same style.",
        "Continue this text.",
        "Continue the following text from where it stops.",
        "Rewrite the last part of the following text in simpler words.",
        "Rewrite the text below so that it is easier to read.",
        "Answer this question about the text: what happens, and why?",
        "Read the text and answer: who or what is it mainly concerned with?",
        "Give the text a title and explain your choice.",
        "Write three questions that the following text answers, and answer them.",
        "What can a reader learn from this text?",
        "Describe the tone of the following text and give examples.",
        "Tell a friend, in a full paragraph, what this text says.",
        "Write what follows after the text below.",
        "Put the text above into plain words without losing anything.",
        "Go through the text part by part and say what each part is for.",
        "Give a detailed account of the text for someone who cannot read it now.",
    ),
    "prose": (
        "Summarise the story so far.",
        "Describe the people who appear in this passage.",
        "Describe the place in this passage.",
        "Retell this passage from another point of view.",
        "Tell this again as one of the people in it would tell it.",
        "Rewrite this passage in today's English.",
        "What does the writer think about the subject? Answer with evidence from the text.",
    ),
    "code": (
        "Explain what the following code does.",
        "Explain this code step by step.",
        "Write a short documentation page for the following code.",
        "Rewrite the last function of the following code with comments.",
        "Summarise the purpose of this file and its main functions.",
        "How would you test the following code? Write example tests.",
        "Continue the following code.",
        "What are the inputs and outputs of the functions in this code?",
        "Suggest an improvement to the following code and show it.",
        "Review the following code: how is it built, and what is weak in it?",
        "Document every function of this code.",
        "Take a beginner through this code from top to bottom.",
        "Which data structures does this code use, and why?",
        "Write the next functions of this file.",
    ),
    "docs": (
        "Explain the following documentation to a beginner.",
        "Give an example that uses what is described below.",
        "Rewrite this documentation as a list of rules.",
    ),
    "chat": (
        "Summarise the conversation below.",
        "What was agreed in this conversation, and by whom?",
        "Write the next turn of this conversation.",
        "Continue this conversation.",
        "List the open questions at the end of this conversation.",
        "Rewrite the last answer of this conversation more politely.",
        "Answer the last speaker of this conversation and give reasons.",
        "What should these people do now? Explain.",
        "Tell this conversation as a story.",
    ),
    "math": (
        "Explain the mathematics in the following text step by step.",
        "Work through the example in the text again with your own explanation.",
        "State the main result of the following text and why it holds.",
        "Summarise the method used in this text.",
        "Write a similar problem and solve it.",
        "Teach this to a student who sees it for the first time.",
        "Answer the question that this text ends with, and say why.",
    ),
}

_DOCUMENT_FORMS: dict[str, tuple[str, ...]] = {
    "prose": (
        "Write a long short story about {topic}, with several characters and dialogue.",
        "Write a detailed travel essay about {topic}.",
        "Write a newspaper feature about {topic}.",
        "Write a chapter of a memoir about {topic}.",
        "Write a popular history article about {topic}.",
    ),
    "chat": (
        "Write a long conversation of two people about {topic}. Begin each turn with the speaker's name.",
        "Write an e-mail exchange between three colleagues about {topic}.",
        "Write a forum thread in which several people discuss {topic}.",
        "Write an interview with an expert on {topic}, with questions and long answers.",
    ),
    "math": (
        "Write a textbook section that explains {topic} with worked examples and numbers.",
        "Explain the mathematics of {topic} step by step with a full calculation.",
        "Pose a problem about {topic} and solve it in detail.",
    ),
    "code": (
        "Write a complete Python program about {topic}, with docstrings and comments.",
        "Write a C program about {topic} and explain it.",
        "Write JavaScript code for {topic}, with comments.",
    ),
}

_TOPICS: dict[str, tuple[str, ...]] = {
    "prose": (
        "a lighthouse",
        "a market town",
        "a long train journey",
        "a flood",
        "an old clock",
        "a lost dog",
        "a family bakery",
        "a mountain village",
        "a river crossing",
        "a school play",
        "a difficult harvest",
        "a stolen letter",
        "a wedding in winter",
        "a ship's cook",
        "a repaired violin",
        "an empty theatre",
        "a night market",
        "a walled garden",
        "a coal mine",
        "a desert road",
        "two rival gardeners",
        "a bird migration",
        "an island ferry",
        "a museum guard",
        "a broken bridge",
        "a glass blower",
        "a country doctor",
        "a storm at sea",
        "an apprentice tailor",
        "a fox in the city",
        "a library fire",
        "a cycling holiday",
        "a pottery workshop",
        "a canal boat",
        "a chess tournament",
        "a new neighbour",
    ),
    "chat": (
        "a broken boiler",
        "planning a holiday",
        "moving house",
        "a school trip",
        "a late delivery",
        "choosing a bicycle",
        "a software release",
        "a noisy neighbour",
        "a garden fence",
        "a job interview",
        "training for a race",
        "a wedding menu",
        "a car repair",
        "a rented flat",
        "a village festival",
        "keeping bees",
        "a computer that will not start",
        "a book club",
        "a sick cat",
        "a solar roof",
        "a lost parcel",
        "learning the piano",
        "a museum tour",
        "a ferry timetable",
        "a team budget",
        "an essay deadline",
        "a kitchen renovation",
        "a hospital visit",
        "a train strike",
        "a new recipe",
    ),
    "math": (
        "compound interest",
        "prime numbers",
        "probability with dice",
        "triangles",
        "percentages",
        "a loan repayment",
        "counting arrangements",
        "Bayes' rule",
        "averages and spread",
        "linear equations",
        "the Pythagorean theorem",
        "geometric series",
        "random walks",
        "ratios in a recipe",
        "speed and distance",
        "sampling and error",
        "graph colouring",
        "binary numbers",
        "areas and volumes",
        "exponential growth",
        "divisibility",
        "matrices",
        "logarithms",
        "expected value",
        "optimising a fence",
    ),
    "code": (
        "a priority queue",
        "parsing a CSV file",
        "a bank account",
        "matrix multiplication",
        "a text adventure",
        "a binary search tree",
        "a web request logger",
        "a calendar",
        "a word counter",
        "a state machine",
        "a cache",
        "a tokenizer",
        "sorting records",
        "a graph search",
        "a rate limiter",
        "an inventory",
        "a command line tool",
        "string matching",
        "a job scheduler",
        "a simple server",
    ),
}


class ChatTokenizer(Protocol):
    """What training needs of a tokenizer."""

    def encode(self, text: str) -> list[int]: ...

    def chat(self, messages: Sequence[dict[str, str]]) -> list[int]: ...


@dataclass(frozen=True)
class Text:
    """A tokenised document that windows are cut from."""

    domain: str
    ids: tuple[int, ...]


def document_request(rng: random.Random) -> tuple[str, str]:
    """(domain, user message) asking the target to write a document of its own."""
    domain = rng.choice(("prose", "chat", "chat", "math", "math", "code"))
    topics = _TOPICS[domain]
    topic = rng.choice(topics)
    if rng.random() < 0.5:
        topic = f"{topic} and {rng.choice(topics)}"
    return domain, rng.choice(_DOCUMENT_FORMS[domain]).format(topic=topic)


class PromptBuilder:
    """Cuts windows and wraps them so that every prompt of a bucket has exactly the same length."""

    def __init__(self, tokenizer: ChatTokenizer, texts: Sequence[Text], seed: int) -> None:
        self._tokenizer = tokenizer
        self._by_domain: dict[str, list[Text]] = {}
        for text in texts:
            self._by_domain.setdefault(text.domain, []).append(text)
        self._rng = random.Random(seed)
        self._frames: dict[tuple[str, bool], tuple[list[int], list[int]]] = {}

    def prompt(self, length: int) -> list[int]:
        """Token ids of one prompt of exactly ``length`` tokens."""
        while True:
            domain = self._rng.choice(list(self._by_domain))
            head, tail = self._frame(domain)
            window = self._window(domain, length - len(head) - len(tail))
            if window is not None:
                return head + window + tail

    def raw(self, length: int) -> list[int]:
        """A bare window without template or instruction."""
        while True:
            window = self._window(self._rng.choice(list(self._by_domain)), length)
            if window is not None:
                return window

    def _frame(self, domain: str) -> tuple[list[int], list[int]]:
        """Template tokens before and after the window; the instruction stands on either side."""
        pool = TASKS["any"] + TASKS.get(domain, ()) * 2
        instruction, first = self._rng.choice(pool), self._rng.random() < 0.8
        key = (instruction, first)
        if key not in self._frames:
            mark = "\x00"
            content = f"{instruction}\n\n{mark}" if first else f"{mark}\n\n{instruction}"
            ids = self._tokenizer.chat([{"role": "user", "content": content}])
            marker = self._tokenizer.encode(mark)
            at = next(i for i in range(len(ids)) if ids[i : i + len(marker)] == marker)
            self._frames[key] = (ids[:at], ids[at + len(marker) :])
        return self._frames[key]

    def _window(self, domain: str, length: int) -> list[int] | None:
        pool = self._by_domain[domain]
        for _ in range(20):
            text = self._rng.choice(pool)
            if len(text.ids) >= length:
                start = self._rng.randrange(len(text.ids) - length + 1)
                return list(text.ids[start : start + length])
        # Short documents are joined, as a folder of small files would be read.
        joined: list[int] = []
        while len(joined) < length:
            joined.extend(self._rng.choice(pool).ids)
        return joined[:length] if length > 0 else None
