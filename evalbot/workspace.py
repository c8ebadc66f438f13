"""The private directory of one run: made at the start, gone at the end, however it ends."""

from __future__ import annotations

import contextlib
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def workspace(keep: bool = False) -> Iterator[Path]:
    """A fresh directory readable by this user alone. ``keep`` leaves it behind for a look at the trees."""
    directory = Path(tempfile.mkdtemp(prefix="evalbot-"))
    try:
        yield directory
    finally:
        if not keep:
            with _uninterrupted():
                shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """A second Ctrl-C must not stop the tidying that the first one started."""
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:
        # Only the main thread may set handlers; elsewhere no Ctrl-C arrives either.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
