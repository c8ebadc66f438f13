"""Prompts as they are served: windows of natural text under an instruction, in the chat template.

A ``Prompt`` records where its text came from, and ``refuse_synthetic`` derives its ids again from there
before they are sent: ids that no pinned text explains are never measured, because acceptance measures
how predictable the text is.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from dataclasses import dataclass

from harness.corpus import CorpusError, ModelView, Passage
from harness.protocol import ids_sha256

JITTER = 0.06
"""Prompt lengths are drawn from (1 - JITTER) of the asked length up to all of it."""
LEAST_WINDOW_TOKENS = 16
SNAP_CHARACTERS = 400
"""How far back a window's start may move to begin a line, or failing that a word."""


class SyntheticPrompt(Exception):
    """Token ids that no window of the corpus explains. The message is a sentence."""


@dataclass(frozen=True)
class Origin:
    """Where in the corpus a prompt's text lies, and what was put around it."""

    domain: str
    path: str
    start: int
    end: int
    """Characters of the passage."""
    phrasing: str
    """Holds ``{passage}``."""


@dataclass(frozen=True)
class Prompt:
    ids: tuple[int, ...]
    origin: Origin

    @property
    def id(self) -> str:
        return f"{self.origin.domain}-{self.sha256[:8]}"

    @property
    def sha256(self) -> str:
        return ids_sha256(self.ids)


def draw(view: ModelView, domain: str, context_tokens: int, key: str) -> Prompt:
    """The prompt that ``key`` (seed, case, quad, attempt) names: at most ``context_tokens`` ids.

    Raises CorpusError if the domain cannot fill the context.
    """
    dice = random.Random(f"{key}/{domain}")
    budget = round(context_tokens * (1 - dice.uniform(0, JITTER)))
    phrasing = _phrasing(view, domain, dice)
    room = budget - len(view.encode(_render(view, phrasing, "")))
    if room < LEAST_WINDOW_TOKENS:
        raise CorpusError(
            f"A context of {context_tokens} tokens leaves {room} for the text beside its instruction: "
            "plan a longer context."
        )
    passage = dice.choice(view.passages(domain, room))
    start = _snap(passage, dice.randrange(len(passage.spans) - room + 1))
    first = bisect_left(passage.spans, (start, start))
    last = min(first + room, len(passage.spans))
    while True:
        origin = Origin(domain, passage.path, start, passage.spans[last - 1][1], phrasing)
        ids = view.encode(_render(view, phrasing, passage.text[start : origin.end]))
        if len(ids) <= budget:
            return Prompt(ids, origin)
        # Joining the window to its instruction can split a token in two: give those back.
        last -= len(ids) - budget


def accuracy_window(view: ModelView, domain: str, tokens: int, index: int, count: int, seed: int) -> Prompt:
    """Window ``index`` of ``count`` plain windows of exactly ``tokens`` ids, the domain's texts in turn."""
    passages = view.passages(domain, tokens)
    passage = passages[index % len(passages)]
    spare = len(passage.spans) - tokens
    dice = random.Random(f"{seed}/accuracy/{index}")
    begin = int(spare * (index + dice.random()) / count)
    start = passage.spans[begin][0]
    for last in range(begin + tokens, len(passage.spans) + 1):
        origin = Origin(domain, passage.path, start, passage.spans[last - 1][1], "{passage}")
        ids = view.encode(passage.text[start : origin.end])
        if len(ids) >= tokens:
            return Prompt(ids[:tokens], origin)
    raise CorpusError(
        f"Domain {domain!r} has no window of {tokens} tokens left at {start}: pin longer texts."
    )


def refuse_synthetic(view: ModelView, prompt: Prompt) -> None:
    """Raise SyntheticPrompt unless the prompt's ids are those of its window of the pinned corpus."""
    origin = prompt.origin
    sources = {text.path for text in view.corpus.manifest.texts if text.domain == origin.domain}
    expected: tuple[int, ...] = ()
    if origin.path in sources or origin.path == origin.domain:
        passage = view.passage(origin.domain, origin.path)
        expected = view.encode(_render(view, origin.phrasing, passage.text[origin.start : origin.end]))
    known = {"{passage}"} | {
        text for row in view.corpus.instructions if origin.domain in row.domains for text in row.phrasings
    }
    if expected != prompt.ids or not expected or origin.phrasing not in known:
        raise SyntheticPrompt(
            f"Prompt {prompt.id} of {len(prompt.ids)} ids is not a window of the pinned corpus in the "
            f"template of {view.name}; scored runs take no synthetic ids."
        )


def _phrasing(view: ModelView, domain: str, dice: random.Random) -> str:
    if not view.entry.instructed:
        return "{passage}"
    rows = [row for row in view.corpus.instructions if domain in row.domains]
    if not rows:
        raise CorpusError(f"No instruction of the corpus is meant for domain {domain!r}.")
    return dice.choice(dice.choice(rows).phrasings)


def _render(view: ModelView, phrasing: str, passage: str) -> str:
    # Not str.format: passages hold braces of their own.
    return view.entry.prefix + phrasing.replace("{passage}", passage) + view.entry.suffix


def _snap(passage: Passage, token: int) -> int:
    """The start of the line, or else of the word, that the token lies in or after, at most a stretch back."""
    at = passage.spans[token][0]
    reach = max(0, at - SNAP_CHARACTERS)
    line = passage.text.rfind("\n", reach, at)
    if line >= 0 or reach == 0:
        return line + 1
    word = passage.text.rfind(" ", reach, at)
    return word + 1 if word >= 0 else at
