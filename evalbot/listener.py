"""Who is told how a run is going. The pipeline speaks to this and knows nothing of terminals."""

from __future__ import annotations

from typing import Any, Protocol


class Listener(Protocol):
    def stage(self, name: str, detail: str) -> None:
        """A stage begins; the one before it is done."""

    def event(self, event: dict[str, Any]) -> None:
        """Progress of the harness, as its manager printed it."""


class Silent:
    """Tells nobody."""

    def stage(self, name: str, detail: str) -> None:
        return

    def event(self, event: dict[str, Any]) -> None:
        return
