"""The manager's side of the conversation with one worker. Owns the clock.

Every time is taken here, in the trusted process: a request starts when it is about to be sent, a burst
arrives when its whole message has been read.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from harness.metrics import accuracy
from harness.printable import cleaned
from harness.protocol import (
    PROTOCOL_VERSION,
    Channel,
    ChannelClosed,
    Done,
    Generate,
    Hello,
    Load,
    Message,
    ProtocolError,
    Ready,
    Score,
    Scores,
    Shutdown,
    Tokens,
    WorkerError,
    name_of,
)
from harness.schema import Burst, LaunchStage, Mode, ModelFiles

M = TypeVar("M")
STOP_TIMEOUT_S = 10.0
SPEAKING = (Hello, Ready, Done, WorkerError)
"""Messages that hold text. Tokens are timed, and hold none."""


class WorkerSaidNo(Exception):
    """The worker reported an error of its own. The message is its sentence."""


@dataclass(frozen=True)
class Generation:
    """One generation as it was seen, and what the worker said of it."""

    token_ids: tuple[int, ...]
    bursts: tuple[Burst, ...]
    done: Done


class Client:
    """Requests to one worker, one at a time.

    Raises ``ProtocolError``, ``ChannelClosed``, ``ChannelTimeout`` or ``WorkerSaidNo``, each of which
    voids the launch; ``stage`` then says what it was doing.
    """

    def __init__(self, channel: Channel, launch_timeout_s: float, request_timeout_s: float) -> None:
        self.stage: LaunchStage = "start"
        self._channel = channel
        self._launch_deadline = time.perf_counter() + launch_timeout_s
        self._request_timeout_s = request_timeout_s
        self._requests = 0
        self._vocab_size = 0

    def load(self, model: ModelFiles, max_tokens: int) -> Ready:
        """Wait for the worker's greeting, let it load, and return its effective configuration."""
        hello = self._expect(Hello, self._deadline())
        if hello.protocol_version != PROTOCOL_VERSION:
            raise ProtocolError(
                f"worker speaks protocol {hello.protocol_version}, this harness speaks {PROTOCOL_VERSION}"
            )
        self.stage = "load"
        self._ask(Load(target=model.target, draft=model.draft, max_tokens=max_tokens))
        ready = self._expect(Ready, self._launch_deadline)
        if ready.context_tokens < max_tokens:
            raise WorkerSaidNo(
                f"The engine holds {ready.context_tokens} tokens but {max_tokens} are needed: "
                "plan a shorter context or use a model with a longer one."
            )
        self._vocab_size = ready.vocab_size
        self.stage = "warmup"
        return ready

    def generate(
        self, prompt_ids: tuple[int, ...], mode: Mode, new_tokens: int, stop_ids: tuple[int, ...]
    ) -> Generation:
        """Greedy continuation of one prompt, timed from here."""
        self._requests += 1
        request = Generate(
            id=self._requests,
            prompt_ids=prompt_ids,
            mode=mode,
            max_new_tokens=new_tokens,
            temperature=0.0,
            stop_ids=stop_ids,
        )
        deadline = self._deadline()
        token_ids: list[int] = []
        bursts: list[Burst] = []
        started = time.perf_counter()
        self._ask(request)
        while True:
            message = self._receive(deadline)
            elapsed = time.perf_counter() - started
            if not isinstance(message, Tokens | Done):
                raise ProtocolError(f"{name_of(message)} arrived during a generation")
            if message.id != request.id:
                raise ProtocolError(f"a message of request {message.id} arrived during request {request.id}")
            if isinstance(message, Done):
                _check_finite(message)
                return Generation(tuple(token_ids), tuple(bursts), message)
            token_ids += message.token_ids
            bursts.append(Burst(elapsed_s=elapsed, tokens=len(message.token_ids)))
            if len(token_ids) > new_tokens:
                raise ProtocolError(f"{len(token_ids)} tokens arrived, {new_tokens} were asked for")
            if max(message.token_ids) >= self._vocab_size:
                raise ProtocolError(
                    f"token {max(message.token_ids)} arrived, but the vocabulary has {self._vocab_size}"
                )

    def score(self, ids: tuple[int, ...], positions: int) -> accuracy.Matrix:
        """Log-probabilities [positions, vocab] of the last ``positions`` ids given what precedes each."""
        self.stage = "score"
        self._requests += 1
        deadline = self._deadline()
        self._ask(Score(id=self._requests, ids=ids, positions=positions))
        matrix = np.empty((positions, self._vocab_size), dtype=np.float32)
        filled = 0
        while filled < positions:
            part = self._expect(Scores, deadline)
            if (part.id, part.first, part.vocab) != (self._requests, filled, self._vocab_size):
                raise ProtocolError(
                    f"scores of request {part.id} from row {part.first} with {part.vocab} columns arrived, "
                    f"expected request {self._requests}, row {filled}, {self._vocab_size} columns"
                )
            if part.rows > positions - filled or len(part.data) != 4 * part.rows * part.vocab:
                raise ProtocolError(f"scores hold {len(part.data)} bytes for {part.rows} rows")
            rows = np.frombuffer(part.data, dtype="<f4").reshape(part.rows, part.vocab)
            matrix[filled : filled + part.rows] = rows
            filled += part.rows
        fault = accuracy.fault_of(matrix)
        if fault is not None:
            raise WorkerSaidNo(f"{fault[:1].upper()}{fault[1:]}.")
        return matrix

    def shutdown(self) -> None:
        """Ask the worker to leave. A word instead of silence voids the launch."""
        self.stage = "stop"
        self._ask(Shutdown())
        try:
            message = self._take(time.perf_counter() + STOP_TIMEOUT_S)
        except ChannelClosed:
            return
        raise ProtocolError(f"{name_of(message)} arrived after the worker was told to stop")

    def _ask(self, message: Message) -> None:
        if not self._channel.quiet():
            unasked = self._take(self._deadline())
            if isinstance(unasked, WorkerError):
                raise WorkerSaidNo(unasked.detail)
            raise ProtocolError(f"{name_of(unasked)} arrived while nothing was asked")
        self._channel.send(message, self._deadline())

    def _receive(self, deadline: float) -> Message:
        message = self._take(deadline)
        if isinstance(message, WorkerError):
            raise WorkerSaidNo(message.detail)
        return message

    def _take(self, deadline: float) -> Message:
        """The next message. What a worker says passes here and is made fit for a terminal and a record."""
        message = self._channel.receive(deadline)
        return cleaned(message) if isinstance(message, SPEAKING) else message

    def _expect(self, kind: type[M], deadline: float) -> M:
        message = self._receive(deadline)
        if not isinstance(message, kind):
            raise ProtocolError(f"{name_of(message)} arrived, expected {kind.__name__.lower()}")
        return message

    def _deadline(self) -> float:
        return min(self._launch_deadline, time.perf_counter() + self._request_timeout_s)


def _check_finite(done: Done) -> None:
    if not (math.isfinite(done.decode_s) and math.isfinite(done.temperature)):
        raise ProtocolError("a number in done is NaN or infinite")
