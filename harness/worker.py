"""Child process: serves one engine to the manager. The only file that imports ``engine``.

It shares its process with the code being measured, so nothing it says is trusted: the manager keeps the
clock and compares what is said here with what it saw. The engine is imported only after the greeting,
so that a build whose import fails is reported as such.
"""

from __future__ import annotations

import os
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from harness.protocol import (
    COMMIT_VARIABLE,
    FD_VARIABLE,
    NONCE_VARIABLE,
    PROTOCOL_VERSION,
    Channel,
    ChannelClosed,
    Done,
    Generate,
    Hello,
    Load,
    ProtocolError,
    Ready,
    Score,
    Scores,
    Shutdown,
    Tokens,
    WorkerError,
    ids_sha256,
    name_of,
)

if TYPE_CHECKING:
    from engine.llm import LLM

SCORE_MESSAGE_BYTES = 4 * 1024 * 1024
MAX_DETAIL = 1500

Stage = Literal["start", "load", "generate", "score"]


class Worker:
    """Answers requests on one channel until told to stop."""

    def __init__(self, channel: Channel, commit_sha: str) -> None:
        self._channel = channel
        self._commit_sha = commit_sha
        self.stage: Stage = "start"

    def serve(self) -> None:
        """Greet, load, then answer until Shutdown. Raises whatever the engine raises."""
        self._channel.send(Hello(protocol_version=PROTOCOL_VERSION, worker="python"))
        request = self._channel.expect(Load)
        engine = _import_engine()
        self.stage = "load"
        draft = None if request.draft is None else Path(request.draft)
        llm = engine.load(Path(request.target), draft, max_tokens=request.max_tokens)
        self._channel.send(self._ready(llm))
        while True:
            message = self._channel.receive()
            if isinstance(message, Shutdown):
                return
            if isinstance(message, Generate):
                self.stage = "generate"
                self._generate(llm, message)
            elif isinstance(message, Score):
                self.stage = "score"
                self._score(llm, message)
            else:
                raise ProtocolError(f"{name_of(message)} arrived, expected a request")

    def _ready(self, llm: LLM) -> Ready:
        engine = llm.describe()
        return Ready(
            commit_sha=self._commit_sha,
            device=engine.device,
            dtype=engine.dtype,
            torch_version=str(engine.torch_version),
            proposals=engine.proposals,
            block_size=engine.block_size,
            depth_policy=engine.depth_policy,
            overrides=dict(engine.overrides),
            target_sha256=engine.target_sha256,
            draft_sha256=engine.draft_sha256,
            tokenizer_sha256=engine.tokenizer_sha256,
            threads=engine.threads,
            weights_bytes=engine.weights_bytes,
            vocab_size=llm.vocab_size,
            context_tokens=llm.context_tokens,
        )

    def _generate(self, llm: LLM, request: Generate) -> None:
        proposed: list[int] = []
        accepted: list[int] = []
        first = last = time.perf_counter()
        reason: Literal["length", "stop"] = "length"
        steps = llm.generate(
            request.prompt_ids,
            mode=request.mode,
            max_new_tokens=request.max_new_tokens,
            temperature=request.temperature,
            stop_ids=request.stop_ids,
        )
        for index, step in enumerate(steps):
            self._channel.send(Tokens(id=request.id, token_ids=tuple(step.token_ids)))
            last = time.perf_counter()
            if index == 0:
                first = last
            elif request.mode == "dspark":
                proposed.append(step.proposed)
                accepted.append(step.accepted)
            reason = step.finish_reason or reason
        done = Done(
            id=request.id,
            prefill_tokens=llm.prefill_tokens,
            prompt_sha256=ids_sha256(request.prompt_ids),
            proposed=tuple(proposed),
            accepted=tuple(accepted),
            decode_s=last - first,
            finish_reason=reason,
            temperature=request.temperature,
            peak_memory_bytes=llm.peak_memory_bytes(),
        )
        self._channel.send(done)

    def _score(self, llm: LLM, request: Score) -> None:
        matrix = llm.score(request.ids, request.positions).numpy().astype("<f4", copy=False)
        vocab = matrix.shape[1]
        rows = max(1, SCORE_MESSAGE_BYTES // (4 * vocab))
        for first in range(0, request.positions, rows):
            part = np.ascontiguousarray(matrix[first : first + rows])
            self._channel.send(
                Scores(id=request.id, first=first, rows=len(part), vocab=vocab, data=part.tobytes())
            )


def main() -> int:
    """Serve on the inherited socket. 0 after Shutdown, 1 after an error, which is also sent."""
    sock = socket.socket(fileno=int(os.environ[FD_VARIABLE]))
    channel = Channel(sock, os.environ[NONCE_VARIABLE])
    worker = Worker(channel, os.environ.get(COMMIT_VARIABLE, ""))
    try:
        worker.serve()
    except ChannelClosed:
        # The manager is gone: nobody is left to tell.
        return 1
    except Exception as error:
        traceback.print_exc()
        try:
            channel.send(WorkerError(stage=worker.stage, detail=_sentence(error)))
        except ChannelClosed:
            return 1
        return 1
    return 0


def _import_engine() -> type[LLM]:
    import engine.llm

    found, tree = Path(engine.llm.__file__).resolve(), Path.cwd().resolve()
    if not found.is_relative_to(tree):
        raise ImportError(f"engine was imported from {found}, expected below {tree}")
    loaded: type[LLM] = engine.llm.LLM
    return loaded


def _sentence(error: Exception) -> str:
    """The message of an error that the engine wrote for a person, else with the error's kind before it."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    text = str(error) if "EngineError" in kinds else f"{type(error).__name__}: {error}"
    return text[:MAX_DETAIL]


if __name__ == "__main__":
    sys.exit(main())
