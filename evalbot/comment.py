"""Record -> Markdown. All text that a change can influence is escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence

from evalbot import rows, sentences
from evalbot.types import Record

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~@])")


def escape(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no mention, no table break, one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split())).replace("://", ":\u200b//")


def markdown(record: Record) -> str:
    """The report of one evaluation as GitHub Markdown."""
    verdict = record.verdict
    parts = [f"### `{verdict.label}`", f"{escape(verdict.reason)} {verdict.advice}"]
    if record.facts.emulated:
        parts.insert(0, f"**{sentences.EMULATED}**")
    parts.append(_table(("", ""), rows.summary(record)))
    axes = rows.axes(record)
    if axes:
        parts.append(_table(rows.AXES, [row.cells for row in axes]))
        parts.append(escape(sentences.legend(record.policy.confidence)))
    if record.gates:
        parts.append(_table(rows.GATES, rows.gate_rows(record)))
    if record.notes:
        parts.append("\n".join(f"- {escape(note)}" for note in record.notes))
    publishable = rows.publishable(record)
    if publishable:
        parts.append(escape(publishable))
    parts.append(f"Measure again: `{rows.reproduce(record).replace('`', '')}`")
    return "\n\n".join(parts) + "\n"


def _table(header: tuple[str, ...], lines: Sequence[tuple[str, ...]]) -> str:
    head = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return "\n".join(head + [f"| {' | '.join(escape(cell) for cell in line)} |" for line in lines])
