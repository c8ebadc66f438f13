"""Live view of a run on a terminal; a line per stage anywhere else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from evalbot.listener import Listener


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
    """One line per stage and nothing in between."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def stage(self, name: str, detail: str) -> None:
        self._console.print(Text(f"{name}: {detail}"), soft_wrap=True)

    def event(self, event: dict[str, Any]) -> None:
        return


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
        return Text("" if left is None else f"{int(left) // 60}:{int(left) % 60:02d} left", style="cyan")


def _plain(text: str) -> str:
    """Without rich markup, and short enough for one line of 80 columns."""
    return (text if len(text) <= 40 else text[:39] + "…").replace("[", r"\[")
