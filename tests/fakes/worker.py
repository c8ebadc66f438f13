"""A worker without an engine: programmable speed, bursts, faults and lies, behind the real protocol.

``python -m tests.fakes.worker JSON`` with the fields of ``Behaviour``. Its text is a function of the prompt
alone, so an honest fake is lossless by construction and equal on both arms.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import time
from typing import Literal

import msgspec

from harness import protocol
from harness.protocol import (
    Channel,
    Done,
    Generate,
    Hello,
    Load,
    Ready,
    Score,
    Scores,
    Shutdown,
    Tokens,
    WorkerError,
    ids_sha256,
)

VOCAB = 100
WORDS = 90
"""Ids above are never produced, so nothing stops by accident."""

Fault = Literal[
    "crash",
    "hang",
    "error",
    "empty",
    "short",
    "garbage",
    "oversized",
    "duplicate",
    "wrong_id",
    "late",
    "unknown_token",
    "too_many",
    "nan_time",
]


class Behaviour(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the fake does. The defaults are an honest engine: 3 ms an AR step, 4 ms a round of tau 2.5."""

    ar_ms: float = 3.0
    round_ms: float = 4.0
    burst: tuple[int, ...] = (3, 2)
    """Tokens of successive rounds, repeated."""
    proposals: int = 4
    prefill_us: float = 20.0
    """Microseconds per prompt token."""
    fault: Fault | None = None
    at: Literal["start", "load", "generate", "score", "stop"] = "generate"
    dspark_wrong_at: int | None = None
    """Index of a token that DSpark gets wrong."""
    ar_wrong_at: int | None = None
    """Index of a token that both modes get wrong: another text than an honest engine's."""
    margin_nats: float = 3.0
    """How much an honest engine prefers its token to the wrong one."""
    loops: bool = False
    score_noise: float = 0.0
    score_nan: bool = False
    claimed_time: float = 1.0
    """Factor on the decode time that is reported."""
    claimed_rounds: int = 0
    """Added to the reported number of rounds."""
    counters_zero: bool = False
    prefix_cache: Literal["none", "honest", "hidden"] = "none"
    overrides: dict[str, str] = {}
    temperature: float | None = None
    commit_sha: str | None = None
    draft_sha256: str = "draft"
    weights_bytes: int = 1_000_000
    context_tokens: int = 4096
    first_use_s: float = 0.0
    """Sleep at the first use of a mode, like a compiler's."""
    printed: str = ""


def text(prompt: tuple[int, ...], count: int, loops: bool) -> list[int]:
    """The honest continuation of a prompt."""
    dice = random.Random(bytes(i % 256 for i in prompt))
    return [7] * count if loops else [dice.randrange(WORDS) for _ in range(count)]


class FakeWorker:
    def __init__(self, channel: Channel, behaviour: Behaviour) -> None:
        self.channel = channel
        self.does = behaviour
        self.seen: set[tuple[int, ...]] = set()
        self.used: set[str] = set()

    def serve(self) -> None:
        print(self.does.printed, flush=True)
        self.misbehave("start")
        self.channel.send(Hello(protocol_version=protocol.PROTOCOL_VERSION, worker="fake"))
        self.channel.expect(Load)
        self.misbehave("load")
        self.channel.send(self.ready())
        while True:
            request = self.channel.receive()
            if isinstance(request, Shutdown):
                self.misbehave("stop")
                return
            if isinstance(request, Generate):
                self.misbehave("generate")
                self.generate(request)
            elif isinstance(request, Score):
                self.misbehave("score")
                self.score(request)

    def misbehave(self, at: str) -> None:
        if self.does.at != at:
            return
        fault = self.does.fault
        if fault == "crash":
            print(
                "Traceback (most recent call last):\n\x1b[31mValueError: broken on purpose\x1b[0m", flush=True
            )
            os._exit(7)
        if fault == "hang":
            time.sleep(600)
        if fault == "error":
            self.channel.send(WorkerError(stage="generate", detail="The logits are not finite."))
            os._exit(1)
        if fault == "garbage":
            self.channel._socket.sendall(b"\x00\x00\x00\x05hello")
        if fault == "oversized":
            self.channel._socket.sendall(b"\xff\xff\xff\xff")
        if fault == "late":
            self.channel.send(Tokens(id=999, token_ids=(1,)))

    def ready(self) -> Ready:
        does = self.does
        return Ready(
            commit_sha=does.commit_sha or os.environ[protocol.COMMIT_VARIABLE],
            device="fake",
            dtype="float32",
            torch_version="none",
            proposals=does.proposals,
            block_size=does.proposals,
            depth_policy="fixed",
            overrides=does.overrides,
            target_sha256="target",
            draft_sha256=does.draft_sha256,
            tokenizer_sha256="tokenizer",
            threads=1,
            weights_bytes=does.weights_bytes,
            vocab_size=VOCAB,
            context_tokens=does.context_tokens,
        )

    def generate(self, request: Generate) -> None:
        does, prompt = self.does, request.prompt_ids
        if request.mode not in self.used:
            self.used.add(request.mode)
            time.sleep(does.first_use_s)
        ids = text(prompt, request.max_new_tokens, does.loops)
        for wrong, applies in ((does.dspark_wrong_at, request.mode == "dspark"), (does.ar_wrong_at, True)):
            if applies and wrong is not None and wrong < len(ids):
                ids[wrong] = (ids[wrong] + 1) % WORDS
        cached = prompt in self.seen and does.prefix_cache != "none"
        self.seen.add(prompt)
        time.sleep(0 if cached else does.prefill_us * 1e-6 * len(prompt))
        if does.fault == "empty":
            ids = []
        if does.fault == "short":
            ids = ids[: len(ids) // 2]
        if does.fault == "too_many":
            ids = [*ids, 1]
        if does.fault == "unknown_token":
            ids[-1] = VOCAB
        rounds, elapsed = self.stream(request, ids)
        if does.fault == "duplicate":
            self.channel._sent -= 1
        speculating = request.mode == "dspark"
        counted = [0 if does.counters_zero else n - 1 for n in rounds] + [1] * does.claimed_rounds
        self.channel.send(
            Done(
                id=request.id + (does.fault == "wrong_id"),
                prefill_tokens=0 if cached and does.prefix_cache == "honest" else len(prompt),
                prompt_sha256=ids_sha256(prompt),
                proposed=tuple(does.proposals for _ in counted) if speculating else (),
                accepted=tuple(counted) if speculating else (),
                decode_s=float("nan") if does.fault == "nan_time" else elapsed * does.claimed_time,
                finish_reason="length",
                temperature=request.temperature if does.temperature is None else does.temperature,
                peak_memory_bytes=1_000_000,
            )
        )

    def stream(self, request: Generate, ids: list[int]) -> tuple[list[int], float]:
        """Send ``ids`` in bursts at the programmed pace. Returns the rounds and the seconds they took."""
        rounds: list[int] = []
        started = time.perf_counter()
        due = started
        for index, burst in enumerate(self.bursts(ids, request.mode)):
            if index:
                due += (self.does.round_ms if request.mode == "dspark" else self.does.ar_ms) / 1000
                # A busy wait keeps the pace exact on a loaded machine, where sleeping overshoots.
                while time.perf_counter() < due:
                    pass
                rounds.append(len(burst))
            self.channel.send(Tokens(id=request.id, token_ids=tuple(burst)))
        return rounds, time.perf_counter() - started

    def bursts(self, ids: list[int], mode: str) -> list[list[int]]:
        parts, rest, index = [ids[:1]] if ids else [], ids[1:], 0
        while rest:
            size = 1 if mode == "ar" else self.does.burst[index % len(self.does.burst)]
            parts.append(rest[:size])
            rest, index = rest[size:], index + 1
        return parts

    def score(self, request: Score) -> None:
        # Most fakes never score, and each is a process that starts in a test.
        import numpy as np

        # Lower ids are likelier by the margin each, wherever they stand.
        logits = -self.does.margin_nats * np.arange(VOCAB, dtype=np.float64)
        rows = np.tile(logits, (request.positions, 1))
        if self.does.score_noise:
            rows += np.random.default_rng(0).normal(0, self.does.score_noise, rows.shape)
        rows -= np.log(np.exp(rows - rows.max(1, keepdims=True)).sum(1, keepdims=True)) + rows.max(
            1, keepdims=True
        )
        if self.does.score_nan:
            rows[0, 0] = np.nan
        half = max(1, request.positions // 2)
        for first in range(0, request.positions, half):
            part = rows[first : first + half].astype("<f4")
            self.channel.send(
                Scores(id=request.id, first=first, rows=len(part), vocab=VOCAB, data=part.tobytes())
            )


def main() -> None:
    behaviour = msgspec.json.decode(sys.argv[1], type=Behaviour)
    sock = socket.socket(fileno=int(os.environ[protocol.FD_VARIABLE]))
    FakeWorker(Channel(sock, os.environ[protocol.NONCE_VARIABLE]), behaviour).serve()


if __name__ == "__main__":
    main()
