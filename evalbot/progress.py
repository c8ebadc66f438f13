"""Live view of a run on a terminal; anywhere else a line per stage, and one now and then in long ones."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from evalbot.listener import Listener

QUIET_S = 30.0
"""Off a terminal: long enough for a log to stay short, short enough to see that a run is alive."""


@contextlib.contextmanager
def progress(console: Console) -> Iterator[Listener]:
    """A listener for ``console``: live while the block runs, gone afterwards."""
    if not console.is_terminal:
        yield Lines(console)
        return
    view = Progress(
        SpinnerColumn(finished_text="[green]✓"),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        _Left(),
        TimeElapsedColumn(),
        console=console,
        expand=False,
    )
    with view:
        live = Live(view)
        yield live
        live.finish()


@contextlib.contextmanager
def counted(what: str, total: int, console: Console) -> Iterator[Callable[[int], None]]:
    """A bar that is told how many of ``total`` are done; nothing off a terminal."""
    with Progress(console=console, transient=True, disable=not console.is_terminal) as view:
        task = view.add_task(what, total=total)
        yield lambda done: view.update(task, completed=done)


class Lines:
    """One line per stage, and in a long one at most a line every ``QUIET_S`` seconds of ``clock``."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._name = ""
        self._said_s = clock()

    def stage(self, name: str, detail: str) -> None:
        self._name = name
        self._say(detail)

    def event(self, event: dict[str, Any]) -> None:
        """Says ``case`` and ``arm``, ``done`` of ``total`` launches and the time left, as far as known."""
        if self._clock() - self._said_s < QUIET_S:
            return
        done, total, left = (event.get(key) for key in ("done", "total", "eta_s"))
        parts = [f"{event['case']}, {event['arm']}"] if "case" in event and "arm" in event else []
        if isinstance(done, int) and isinstance(total, int):
            parts.append(f"{done} of {total} launches")
        if isinstance(left, (int, float)):
            parts.append(f"{_minutes(left)} left")
        if parts:
            self._say(", ".join(parts))

    def _say(self, detail: str) -> None:
        self._said_s = self._clock()
        self._console.print(Text(f"{self._name}: {detail}"), soft_wrap=True)


class Live:
    """A row per stage: what runs, how far it is, how long it still takes."""

    def __init__(self, view: Progress) -> None:
        self._view = view
        self._task: TaskID | None = None
        self._title = ""

    def stage(self, name: str, detail: str) -> None:
        self.finish()
        self._title = f"[bold]{name}[/bold] "
        self._task = self._view.add_task(self._title + _plain(detail), total=None)

    def event(self, event: dict[str, Any]) -> None:
        """Shows ``case`` and ``arm``, ``done`` of ``total`` launches, and ``eta_s``, the seconds left."""
        if self._task is None:
            return
        done, total, left = (event.get(key) for key in ("done", "total", "eta_s"))
        if "case" in event and "arm" in event:
            now = f"{event['case']}, {event['arm']}"
            self._view.update(self._task, description=self._title + _plain(now))
        if isinstance(done, int) and isinstance(total, int) and total > 0:
            self._view.update(self._task, completed=done, total=total)
        if isinstance(left, (int, float)):
            self._view.update(self._task, left_s=float(left))

    def finish(self) -> None:
        if self._task is not None:
            self._view.update(self._task, total=1, completed=1, left_s=None)
            self._task = None


class _Left(TextColumn):
    """Time left as the harness estimates it from the launches so far."""

    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: Task) -> Text:
        left = task.fields.get("left_s")
        return Text("" if left is None else f"{_minutes(left)} left", style="cyan")


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _plain(text: str) -> str:
    """Without rich markup, and short enough for one line of 80 columns."""
    return (text if len(text) <= 40 else text[:39] + "…").replace("[", r"\[")
