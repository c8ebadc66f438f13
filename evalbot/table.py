"""Record -> the table in a terminal (rich). Plain text when the output is not a terminal."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from evalbot import rows, sentences
from evalbot.types import Outcome, Record

_COLOURS: dict[Outcome, str] = {
    "improved": "bold green",
    "none": "bold",
    "reject": "bold red",
    "inconclusive": "bold yellow",
    "error": "bold magenta",
    "build-failed": "bold red",
}
WIDE = 132
"""Columns from which a value, its interval and n stand on one line."""
_STATES = {"pass": "green", "FAIL": "bold red", "undecided": "yellow", "not run": "dim"}


def show(record: Record, console: Console, path: Path | None = None) -> None:
    """Print the verdict of ``record``; ``path`` is where the record lies."""
    console.print(Group(*_parts(record, console.width)))
    # Lines to copy are never broken or cut, whatever the width.
    for title, line in (("record", str(path) if path else ""), ("measure again", rows.reproduce(record))):
        if line:
            console.print(Text(f"{title}\n  {line}"), soft_wrap=True)


def _parts(record: Record, width: int) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(sentences.EMULATED, "bold")] if record.facts.emulated else []
    parts.append(_summary(record))
    axes = rows.axes(record)
    if axes:
        parts += [Text(), _axes(axes, narrow=width < WIDE)]
        parts.append(Text(sentences.legend(record.policy.confidence), style="dim"))
    if record.gates:
        parts += [Text(), _gates(record)]
    verdict = record.verdict
    headline = Text.assemble((verdict.label, _COLOURS[verdict.outcome]), "  ", verdict.reason)
    parts += [Text(), headline, Text(verdict.advice)]
    parts += [Text(f"Note: {note}", style="dim") for note in record.notes]
    publishable = rows.publishable(record)
    if publishable:
        parts.append(Text(publishable, style="dim"))
    parts.append(Text())
    return parts


def _summary(record: Record) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for title, text in rows.summary(record):
        style = _COLOURS[record.verdict.outcome] if title == "label" else ""
        table.add_row(title, Text(text, style=style))
    return table


def _axes(axes: list[rows.Row], narrow: bool) -> Table:
    """Where a value and its interval do not fit on one line, what follows the value goes below it."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for title in rows.AXES[: -1 if narrow else None]:
        table.add_column(title)
    for row in axes:
        title, *cells = _folded(row) if narrow else row.cells
        table.add_row(title, *map(Text, cells), style="dim" if row.absent else "")
    return table


def _folded(row: rows.Row) -> tuple[str, ...]:
    title, main, change, against, could_see = row.cells
    last = [against, f"{rows.AXES[-1]} {could_see}" if could_see else ""]
    cells = (main, change, "\n".join(filter(None, last)))
    return (title, *(cell.replace(" [", "\n[") for cell in cells))


def _gates(record: Record) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("gate", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("observed", ratio=3, overflow="fold")
    table.add_column("bar", ratio=2, overflow="fold")
    for name, state, observed, bar in rows.gate_rows(record):
        table.add_row(name, Text(state, style=_STATES[state]), Text(observed), Text(bar))
    return table
