"""One generation as a person reads it: text as it grows, then a summary."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.decoding.step import Step


class Decoder(Protocol):
    def decode(self, ids: Sequence[int]) -> str: ...


@dataclass(frozen=True)
class Summary:
    """What a generation produced and how fast, by this process's own clock."""

    text: str
    token_ids: list[int]
    new_tokens: int
    finish_reason: str | None
    rounds: int
    """Passes of the target after prefill."""
    tau: float | None
    """Committed tokens per round; None when prefill's token was the only one."""
    proposed: int
    accepted: int
    prefill_s: float
    """From the request to the first token."""
    decode_s: float
    decode_tok_s: float | None
    """Tokens after the first, per second."""

    def line(self) -> str:
        speed = "-" if self.decode_tok_s is None else f"{self.decode_tok_s:.1f}"
        tau = "-" if self.tau is None else f"{self.tau:.2f}"
        return f"{self.new_tokens} tokens, {speed} tok/s, tau {tau}, {self.rounds} rounds"


class TextStream:
    """Text of a growing token sequence, a piece at a time, never splitting a character."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._ids: list[int] = []
        self._shown = 0

    def add(self, ids: Sequence[int]) -> str:
        """The text that ``ids`` complete."""
        self._ids += ids
        # A trailing replacement character stands for bytes that the next token may complete.
        return self._take(self._decoder.decode(self._ids).rstrip("\N{REPLACEMENT CHARACTER}"))

    def rest(self) -> str:
        """What is left once no token follows."""
        return self._take(self._decoder.decode(self._ids))

    def _take(self, text: str) -> str:
        piece = text[self._shown :]
        self._shown = max(self._shown, len(text))
        return piece


def follow(steps: Iterable[Step], decoder: Decoder, show: Callable[[str], None]) -> Summary:
    """Consume a generation, handing its text to ``show`` piece by piece."""
    stream = TextStream(decoder)
    ids: list[int] = []
    rounds = proposed = accepted = 0
    finish_reason = None
    started = first_at = time.perf_counter()
    for step in steps:
        if ids:
            rounds += 1
        else:
            first_at = time.perf_counter()
        ids += step.token_ids
        proposed += step.proposed
        accepted += step.accepted
        finish_reason = step.finish_reason
        show(stream.add(step.token_ids))
    decode_s = time.perf_counter() - first_at
    show(stream.rest())
    after_first = len(ids) - 1
    return Summary(
        text=decoder.decode(ids),
        token_ids=ids,
        new_tokens=len(ids),
        finish_reason=finish_reason,
        rounds=rounds,
        tau=after_first / rounds if rounds else None,
        proposed=proposed,
        accepted=accepted,
        prefill_s=first_at - started,
        decode_s=decode_s,
        decode_tok_s=after_first / decode_s if rounds else None,
    )
