"""Rates from observed bursts: how many tokens arrived when, by the manager's clock.

A decode rate counts the tokens after the first burst over the time from the first burst to the last,
so numerator and denominator cover the same tokens whatever the first burst holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.schema import Burst, Sample


@dataclass(frozen=True)
class Window:
    """Tokens and the seconds they took."""

    tokens: int
    seconds: float

    @property
    def tok_s(self) -> float:
        return self.tokens / self.seconds


def decode_window(bursts: tuple[Burst, ...]) -> Window | None:
    """The decode phase; None where it has no duration or no tokens, which is no rate at all."""
    if len(bursts) < 2:
        return None
    window = Window(sum(b.tokens for b in bursts[1:]), bursts[-1].elapsed_s - bursts[0].elapsed_s)
    return window if window.seconds > 0 and window.tokens > 0 else None


def prefill_window(sample: Sample) -> Window | None:
    """Prompt tokens over the time to the first burst (TTFT), request and reply included."""
    if not sample.bursts or sample.bursts[0].elapsed_s <= 0:
        return None
    return Window(sample.prompt_tokens, sample.bursts[0].elapsed_s)


def pooled(windows: Iterable[Window | None]) -> Window | None:
    """One window over many; None if any of them is missing, since a partial rate is no rate."""
    seen = list(windows)
    known = [window for window in seen if window is not None]
    if not known or len(known) != len(seen):
        return None
    return Window(sum(w.tokens for w in known), sum(w.seconds for w in known))
