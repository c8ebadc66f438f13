"""The only place that starts untrusted processes.

A process gets its own session, a cleared environment, a private home and tmp, no standard input and
bounded resources; whatever is left of its process group is killed when it ends. This is hygiene and
not isolation: ``kind`` says ``none``, and the record and the command line repeat it. An isolating
sandbox adds an argument-vector prefix, which every started command already passes through.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

LOG_LIMIT_BYTES = 64 * 1024
_FILE_LIMIT_BYTES = 8 * 1024**3


@dataclass(frozen=True)
class Finished:
    """How a process ended."""

    status: int | None
    """Exit status; negative for a signal, None when the time limit ended it."""
    log: str
    """The last ``LOG_LIMIT_BYTES`` of standard output and error together."""
    duration_s: float


@dataclass(frozen=True)
class Sandbox:
    """How untrusted commands are started."""

    kind: Literal["none", "bubblewrap"] = "none"
    prefix: tuple[str, ...] = ()
    """Put before every argument vector."""

    def wrap(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        return self.prefix + argv

    def run(self, argv: tuple[str, ...], tree: Path, timeout_s: float) -> Finished:
        """Run one command inside ``tree`` to its end. Raises OSError if it cannot be started."""
        with (
            tempfile.TemporaryDirectory(prefix="evalbot-private-") as private,
            tempfile.TemporaryFile() as log,
        ):
            started = time.monotonic()
            process = subprocess.Popen(
                self.wrap(argv),
                cwd=tree,
                env=environment(tree, Path(private)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_limit_resources,
            )
            status: int | None
            try:
                status = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                kill_group(process.pid)
                process.wait()
            duration_s = time.monotonic() - started
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - LOG_LIMIT_BYTES))
            return Finished(status, log.read().decode(errors="replace"), duration_s)


def environment(tree: Path, private: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """All that an untrusted process is told: nothing of the user's environment but PATH."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(private),
        "TMPDIR": str(private),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(tree),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        **(extra or {}),
    }


def kill_group(pid: int) -> None:
    """Kill what is left of a process group. A group that is gone is no error."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _limit_resources() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = _FILE_LIMIT_BYTES if hard == resource.RLIM_INFINITY else min(hard, _FILE_LIMIT_BYTES)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
