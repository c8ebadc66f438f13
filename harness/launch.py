"""One worker process from start to stop: private, bounded, and gone with all its children afterwards.

The worker gets a cleared environment, a private HOME and TMPDIR that are removed with it, no standard
input, and one inherited socket. What it prints is kept for a failure's tail and never parsed.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import IO

from harness import protocol
from harness.environment import usable_cores
from harness.printable import without_escapes
from harness.protocol import Channel
from harness.schema import ArmSource

TAIL_BYTES = 8192
TAIL_LINES = 20
EXIT_GRACE_S = 3.0
READER_GRACE_S = 1.0
"""A process that left the worker's group may hold its output open; the run does not wait for it."""
PASSED_ON = ("PATH", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")
"""All that a worker inherits: where programs, the driver and the devices are."""


class WorkerProcess:
    """Context manager around one worker. Raises OSError on entry if it cannot be started."""

    def __init__(
        self, source: ArmSource, engine_environment: dict[str, str], number: int = 0, slot: int = 0
    ) -> None:
        self._source = source
        self._engine_environment = engine_environment
        self._number, self._slot = number, slot
        self._tail = bytearray()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> WorkerProcess:
        self._private = tempfile.TemporaryDirectory(prefix="evalbot-launch-", ignore_cleanup_errors=True)
        try:
            self._start()
        except BaseException:
            self._kill()
            self._private.cleanup()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.channel.close()
        self._kill()
        self._reader.join(READER_GRACE_S)
        self._private.cleanup()

    def wait(self, timeout_s: float = EXIT_GRACE_S) -> int | None:
        """Exit status, negative for a signal; None if the worker still runs after ``timeout_s``."""
        assert self._process is not None
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def tail(self) -> str:
        """The last lines that the worker printed, readable and bounded. Ends the worker."""
        self._kill()
        self._reader.join(READER_GRACE_S)
        text = without_escapes(bytes(self._tail).decode(errors="replace"))
        text = text.replace(self._private.name, "~").replace(self._source.tree, ".")
        lines = [line.rsplit("\r", 1)[-1].rstrip() for line in text.replace("\r\n", "\n").split("\n")]
        printable = ("".join(c for c in line if c.isprintable() or c == "\t") for line in lines)
        return "\n".join([line for line in printable if line][-TAIL_LINES:])

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        nonce = secrets.token_hex(16)
        try:
            with _signals_held():
                process = self._process = subprocess.Popen(
                    self._source.worker,
                    cwd=self._source.tree,
                    env=self._environment(theirs.fileno(), nonce),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self.channel = Channel(ours, nonce)
        assert process.stdout is not None
        self._reader = threading.Thread(target=self._drain, args=(process.stdout,), daemon=True)
        self._reader.start()

    def _environment(self, fd: int, nonce: str) -> dict[str, str]:
        private = self._private.name
        return {
            **{name: os.environ[name] for name in PASSED_ON if name in os.environ},
            "HOME": private,
            "TMPDIR": private,
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": str(usable_cores()),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONNOUSERSITE": "1",
            "PYTHONPATH": self._source.tree,
            **self._engine_environment,
            **self._source.environment,
            protocol.FD_VARIABLE: str(fd),
            protocol.NONCE_VARIABLE: nonce,
            protocol.COMMIT_VARIABLE: self._source.commit_sha,
            **(self._place() if self._source.emulated else {}),
        }

    def _place(self) -> dict[str, str]:
        """Where the launch stands in the run: a scenario goes by it, an engine could trim its work by it."""
        return {protocol.LAUNCH_VARIABLE: str(self._number), protocol.SLOT_VARIABLE: str(self._slot)}

    def _drain(self, pipe: IO[bytes]) -> None:
        with pipe, suppress(OSError):
            while chunk := os.read(pipe.fileno(), 65536):
                self._tail += chunk
                del self._tail[:-TAIL_BYTES]

    def _kill(self) -> None:
        """End the worker and whatever it started in its group, dead or alive."""
        if self._process is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextmanager
def _signals_held() -> Iterator[None]:
    """Lets a signal that would end the run wait until the block is left.

    One that strikes between a worker's start and the moment its process is known would leave it running.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, frame: came.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])
