"""A worker without an engine: ``python -m harness.emulator SCENARIO.toml ARM [SEED [LAUNCHES]]``.

Speed, noise, bursts, faults and lies are those of a scenario, behind the real protocol. The text is a
function of the prompt alone, so an honest arm is lossless by construction and equal to the other. SEED is
the run's and names its noise; LAUNCHES is how many launches were planned, over which noise drifts.
"""

from __future__ import annotations

import math
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import cast

import msgspec

from harness import noise, protocol
from harness.protocol import (
    Channel,
    ChannelClosed,
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
from harness.scenario import Behaviour, ScenarioError, read
from harness.schema import Arm, Mode

WORDS = 90
"""Ids from here on are never produced by themselves, so that nothing stops by accident."""
LOOPED = 7
OWN_SHARE = 0.25
"""Share of equal ids from which a scored text is taken for a continuation by this engine."""
HANG_S = 600.0
SPIN_S = 0.0005
USAGE = "usage: python -m harness.emulator SCENARIO.toml baseline|candidate [SEED [LAUNCHES]]"


@dataclass(frozen=True)
class Step:
    """What is committed together: one AR step or one DSpark round."""

    tokens: tuple[int, ...]
    width: int
    """Drafts that were verified; 0 for AR."""


@dataclass(frozen=True)
class Spoken:
    """One generation before it is sent."""

    first: tuple[int, ...]
    steps: tuple[Step, ...]
    stopped: bool


def speak(does: Behaviour, request: Generate) -> Spoken:
    """What ``does`` answers, in which steps. The same for equal prompts, whatever the launch or the arm."""
    count = request.max_new_tokens + does.overshoot
    ids = _text(does, request, count)
    sizes = _sizes(does, request, count)
    starts = list(accumulate(sizes, initial=does.first_tokens))[:-1]
    speculates = request.mode == "dspark"
    wrong = {does.ar_wrong_at}
    if speculates:
        wrong.add(does.dspark_wrong_at)
        deep = (i for i, n in enumerate(sizes) if n == does.dspark_wrong_depth)
        wrong |= {starts[i] + sizes[i] - 1 for i in deep}
    ids = [(token + 1) % WORDS if i in wrong else token for i, token in enumerate(ids)]
    if does.strays_at is not None:
        ids[does.strays_at :] = [(token - 1) % WORDS for token in ids[does.strays_at :]]
    if does.fault == "unknown_token" and ids:
        ids[-1] = does.vocab_size
    end = does.stop_at if request.stop_ids else None
    stopped = end is not None and end < len(ids)
    if stopped and end is not None:
        ends = {start + size - 1 for start, size in zip(starts, sizes, strict=True)}
        if speculates and does.runs_past_stop and end >= does.first_tokens and end not in ends:
            stopped = False
        else:
            ids = ids[: end + 1]
    if does.fault == "short":
        ids, stopped = ids[: len(ids) // 2], False
    if does.fault == "empty":
        ids, stopped = [], False
    steps = []
    for i, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        part = tuple(ids[start : start + size])
        if part:
            steps.append(Step(part, _width(does, i) if speculates else 0))
    return Spoken(tuple(ids[: does.first_tokens]), tuple(steps), stopped)


def counters(does: Behaviour, steps: Sequence[Step]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Proposed and accepted drafts of each round, as they are reported."""
    if does.counters == "absent":
        return (), ()
    zero = does.counters == "zero"
    proposed = [step.width + does.claimed_proposed for step in steps]
    accepted = [0 if zero else len(step.tokens) - 1 + does.claimed_accepted for step in steps]
    proposed += [does.proposals] * does.claimed_rounds
    accepted += [min(1, does.proposals)] * does.claimed_rounds
    return tuple(max(0, n) for n in proposed), tuple(accepted)


def _text(does: Behaviour, request: Generate, count: int) -> list[int]:
    dice = _dice(request, "text")
    ids = [LOOPED] * count if does.loops else [dice.randrange(WORDS) for _ in range(count)]
    if does.stop_at is not None and does.stop_at < count and request.stop_ids:
        ids[does.stop_at] = request.stop_ids[0]
    return ids


def _sizes(does: Behaviour, request: Generate, count: int) -> list[int]:
    """Tokens of each step after the first message."""
    left = max(0, count - does.first_tokens)
    if request.mode == "ar":
        return [1] * left
    dice, sizes = _dice(request, "rounds"), list[int]()
    possible = range(1, len(does.round_weights) + 1)
    while left:
        index = len(sizes)
        if does.round_sizes:
            size = does.round_sizes[index % len(does.round_sizes)]
        else:
            (size,) = dice.choices(possible, does.round_weights)
        sizes.append(min(size, _width(does, index) + 1, left))
        left -= sizes[-1]
    return sizes


def _width(does: Behaviour, index: int) -> int:
    return does.widths[index % len(does.widths)] if does.widths else does.proposals


def _expected(does: Behaviour, request: Score) -> Sequence[int]:
    """The likeliest ids: of this engine's own text where that is what is scored, else of the scored text."""
    start = len(request.ids) - request.positions
    scored = request.ids[start:]
    as_prompt = Generate(
        id=request.id, prompt_ids=request.ids[:start], mode="ar", max_new_tokens=request.positions,
        temperature=0.0, stop_ids=(),
    )  # fmt: skip
    own = _text(does, as_prompt, request.positions)
    alike = sum(a == b for a, b in zip(own, scored, strict=True))
    return own if alike >= OWN_SHARE * len(own) else scored


def _dice(request: Generate, what: str) -> random.Random:
    return random.Random(f"{what}/{ids_sha256(request.prompt_ids)}")


class Emulator:
    """Answers requests on one channel until told to stop; ``slow`` is a factor on every time."""

    def __init__(self, channel: Channel, behaviour: Behaviour, launch: int, slow: float) -> None:
        self._channel = channel
        self._behaviour = behaviour
        self._launch = launch
        self._slow = slow
        self._seen: set[tuple[int, ...]] = set()
        self._said: set[tuple[int, ...]] = set()
        self._used: set[tuple[Mode, int | None]] = set()

    def serve(self) -> None:
        """Answer requests until Shutdown. Raises ChannelClosed when the manager hangs up."""
        does = self._behaviour.under(self._launch)
        print(does.printed, flush=True)
        self._misbehave(does, "start")
        self._channel.send(Hello(protocol_version=protocol.PROTOCOL_VERSION, worker="emulator"))
        self._channel.expect(Load)
        self._misbehave(does, "load")
        self._channel.send(_ready(does))
        while True:
            request = self._channel.receive()
            if isinstance(request, Shutdown):
                self._misbehave(does, "stop")
                return
            if isinstance(request, Generate):
                there = self._behaviour.under(self._launch, len(request.prompt_ids), request.mode)
                self._misbehave(there, "generate")
                self._generate(there, request)
            elif isinstance(request, Score):
                there = self._behaviour.under(self._launch, len(request.ids))
                self._misbehave(there, "score")
                self._score(there, request)

    def _misbehave(self, does: Behaviour, at: str) -> None:
        if does.at != at:
            return
        if does.fault == "crash":
            print(
                "Traceback (most recent call last):\n\x1b[31mValueError: broken on purpose\x1b[0m", flush=True
            )
            os._exit(7)
        if does.fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if does.fault == "hang":
            time.sleep(HANG_S)
        if does.fault == "error":
            self._channel.send(WorkerError(stage="generate", detail=does.sentence))
            os._exit(1)
        if does.fault == "garbage":
            self._channel._socket.sendall(b"\x00\x00\x00\x05hello")
        if does.fault == "oversized":
            self._channel._socket.sendall(b"\xff\xff\xff\xff")
        if does.fault == "late":
            self._channel.send(Tokens(id=999, token_ids=(1,)))

    def _generate(self, does: Behaviour, request: Generate) -> None:
        if request.mode == "ar":
            self._said.add(request.prompt_ids)
        elif does.remembers and request.prompt_ids in self._said:
            does = msgspec.structs.replace(does, round_sizes=(request.max_new_tokens,))
        spoken = speak(does, request)
        proposed, accepted = counters(does, spoken.steps) if request.mode == "dspark" else ((), ())
        self._first_use(does, request.mode, None)
        cached = request.prompt_ids in self._seen and does.prefix_cache != "none"
        self._seen.add(request.prompt_ids)
        ahead_s = max(0, len(spoken.first) - 1) * does.ar_ms / 1e3
        prefill_s = 0.0 if cached else does.prefill_us * len(request.prompt_ids) / 1e6
        _wait_until(time.perf_counter() + (prefill_s + ahead_s) * self._slow)
        decode_s = self._stream(does, request, spoken)
        if does.fault == "duplicate":
            self._channel._sent -= 1
        computed = 0 if cached and does.prefix_cache == "honest" else len(request.prompt_ids)
        self._channel.send(
            Done(
                id=request.id + (does.fault == "wrong_id"),
                prefill_tokens=max(0, computed + does.claimed_prefill),
                prompt_sha256=ids_sha256(request.prompt_ids),
                proposed=proposed,
                accepted=accepted,
                decode_s=math.nan if does.fault == "nan_time" else decode_s * does.claimed_time,
                finish_reason="stop" if spoken.stopped or does.claimed_stop else "length",
                temperature=request.temperature if does.temperature is None else does.temperature,
                peak_memory_bytes=does.claimed_memory_bytes,
            )
        )

    def _stream(self, does: Behaviour, request: Generate, spoken: Spoken) -> float:
        """Send what is spoken at its pace. Returns the seconds from the first message to the last."""
        step_s = self._slow * (does.round_ms if request.mode == "dspark" else does.ar_ms) / 1e3
        if spoken.first:
            self._channel.send(Tokens(id=request.id, token_ids=spoken.first))
        started = due = time.perf_counter()
        held: list[int] = []
        for number, step in enumerate(spoken.steps, 1):
            due += self._first_use(does, request.mode, step.width) + step_s
            held += step.tokens
            if number % does.chunk_steps == 0 or number == len(spoken.steps):
                _wait_until(due)
                self._channel.send(Tokens(id=request.id, token_ids=tuple(held)))
                held = []
        return time.perf_counter() - started

    def _first_use(self, does: Behaviour, mode: Mode, width: int | None) -> float:
        """Sleep if this mode or verify width is new to the process. Returns the seconds that it took."""
        if (mode, width) in self._used:
            return 0.0
        self._used.add((mode, width))
        time.sleep(does.first_use_s)
        return does.first_use_s

    def _score(self, does: Behaviour, request: Score) -> None:
        # Few launches score, and each is a process whose start takes time.
        import numpy as np

        vocab = does.vocab_size
        following = np.array(_expected(does, request))[:, None]
        around = np.where(following < WORDS, min(WORDS, vocab), vocab)
        # The next id of the text is the likeliest; each id after it is less likely by the margin.
        steps = np.where(np.arange(vocab) < around, (np.arange(vocab) - following) % around, vocab)
        rows = -does.margin_nats * steps.astype(np.float64)
        if does.score_noise:
            rows += np.random.default_rng(0).normal(0.0, does.score_noise, rows.shape)
        rows -= rows.max(1, keepdims=True)
        rows -= np.log(np.exp(rows).sum(1, keepdims=True))
        if does.score_nan:
            rows[0, 0] = np.nan
        most = max(1, min(request.positions // 2, protocol.MAX_FRAME_BYTES // (8 * vocab)))
        for first in range(0, request.positions, most):
            part = rows[first : first + most].astype("<f4")
            self._channel.send(
                Scores(id=request.id, first=first, rows=len(part), vocab=vocab, data=part.tobytes())
            )


def _ready(does: Behaviour) -> Ready:
    return Ready(
        commit_sha=does.commit_sha or os.environ[protocol.COMMIT_VARIABLE],
        device="emulated",
        dtype=does.dtype,
        torch_version="none",
        proposals=does.proposals,
        block_size=max((does.proposals, *does.widths)),
        depth_policy="emulated",
        overrides=does.overrides,
        target_sha256=does.target_sha256,
        draft_sha256=does.draft_sha256,
        tokenizer_sha256="tokenizer",
        threads=1,
        weights_bytes=does.weights_bytes,
        vocab_size=does.vocab_size,
        context_tokens=does.context_tokens,
    )


def _wait_until(due: float) -> None:
    """Sleep until just before ``due``, then wait busily.

    Sleeping alone overshoots; a process that is always busy is the first to lose its core to others.
    """
    left = due - time.perf_counter()
    if left > SPIN_S:
        time.sleep(left - SPIN_S)
    while time.perf_counter() < due:
        pass


def main(arguments: list[str]) -> int:
    """0 after Shutdown or when the manager is gone; 2 with a sentence for what cannot be emulated."""
    if not 2 <= len(arguments) <= 4 or arguments[1] not in ("baseline", "candidate"):
        return _refuse(USAGE)
    try:
        scenario = read(Path(arguments[0]))
        seed, launches = (int(text) for text in (*arguments[2:], *("0", "1")[len(arguments) - 2 :]))
    except ScenarioError as error:
        return _refuse(str(error))
    except ValueError:
        return _refuse(USAGE)
    launch = int(os.environ[protocol.LAUNCH_VARIABLE])
    second = os.environ[protocol.SLOT_VARIABLE] in ("1", "3")
    slow = math.exp(noise.at(scenario.noise, seed, launch, launches, second))
    channel = Channel(
        socket.socket(fileno=int(os.environ[protocol.FD_VARIABLE])), os.environ[protocol.NONCE_VARIABLE]
    )
    with suppress(ChannelClosed):
        Emulator(channel, scenario.behaviour(cast(Arm, arguments[1])), launch, slow).serve()
    return 0


def _refuse(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
