"""Messages between manager and worker: MessagePack over one private socket.

A frame is a big-endian u32 length and that many bytes of MessagePack: the array
``[nonce, sequence, message]``. Each side numbers its frames from 0, and both carry the nonce of the
launch. A message is a map whose ``type`` names it. A frame that is too long, out of sequence, of
another launch, malformed or not expected here raises ``ProtocolError``, which voids the launch: a
channel that was wrong once is not believed again. docs/PROTOCOL.md says the same for engines in
other languages.
"""

from __future__ import annotations

import hashlib
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Annotated, Literal, TypeVar

import msgspec

from harness.schema import Frozen, Mode

PROTOCOL_VERSION = 1
MAX_FRAME_BYTES = 16 * 1024 * 1024
FD_VARIABLE = "EVALBOT_FD"
NONCE_VARIABLE = "EVALBOT_NONCE"
COMMIT_VARIABLE = "EVALBOT_COMMIT_SHA"
LAUNCH_VARIABLE = "EVALBOT_LAUNCH"
SLOT_VARIABLE = "EVALBOT_SLOT"

_LENGTH = struct.Struct(">I")

TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Text = Annotated[str, msgspec.Meta(max_length=4000)]


class ProtocolError(Exception):
    """The other side broke the protocol. The message is a sentence."""


class ChannelClosed(Exception):
    """The other side closed the socket."""


class ChannelTimeout(Exception):
    """Nothing complete arrived before the deadline."""


class Hello(Frozen, frozen=True, tag="hello"):
    """Worker, once, before it imports the engine."""

    protocol_version: int
    worker: Text


class Load(Frozen, frozen=True, tag="load"):
    """Manager: load these files, with room for ``max_tokens`` of prompt and output together."""

    target: str
    draft: str | None
    max_tokens: int


class Ready(Frozen, frozen=True, tag="ready"):
    """Worker: loaded, and in this effective configuration."""

    commit_sha: Text
    device: Text
    dtype: Text
    torch_version: Text
    proposals: Count
    block_size: Count
    depth_policy: Text
    overrides: dict[str, str]
    target_sha256: Text
    draft_sha256: Text | None
    tokenizer_sha256: Text | None
    threads: Count
    weights_bytes: Count
    vocab_size: Annotated[int, msgspec.Meta(ge=1)]
    context_tokens: Annotated[int, msgspec.Meta(ge=1)]


class Generate(Frozen, frozen=True, tag="generate"):
    """Manager: continue this prompt. Exactly one request is open at a time."""

    id: int
    prompt_ids: tuple[TokenId, ...]
    mode: Mode
    max_new_tokens: int
    temperature: float
    stop_ids: tuple[TokenId, ...]


class Tokens(Frozen, frozen=True, tag="tokens"):
    """Worker: tokens committed together, sent at once; the first comes from the prefill."""

    id: int
    token_ids: Annotated[tuple[TokenId, ...], msgspec.Meta(min_length=1, max_length=4096)]


class Done(Frozen, frozen=True, tag="done"):
    """Worker: the generation is over. Everything here is a claim."""

    id: int
    prefill_tokens: Count
    prompt_sha256: Text
    proposed: tuple[Count, ...]
    accepted: tuple[Count, ...]
    decode_s: Annotated[float, msgspec.Meta(ge=0.0)]
    finish_reason: Literal["length", "stop"]
    temperature: float
    peak_memory_bytes: Count | None


class Score(Frozen, frozen=True, tag="score"):
    """Manager: next-token log-probabilities at the last ``positions`` positions with a known next token."""

    id: int
    ids: tuple[TokenId, ...]
    positions: int


class Scores(Frozen, frozen=True, tag="scores"):
    """Worker: rows ``first .. first + rows - 1`` of [positions, vocab] as little-endian float32."""

    id: int
    first: Count
    rows: Annotated[int, msgspec.Meta(ge=1)]
    vocab: Annotated[int, msgspec.Meta(ge=1)]
    data: bytes


class WorkerError(Frozen, frozen=True, tag="error"):
    """Worker: it cannot go on. It exits after sending this."""

    stage: Literal["start", "load", "generate", "score"]
    detail: Text


class Shutdown(Frozen, frozen=True, tag="shutdown"):
    """Manager: exit now, without another message."""


Message = Hello | Load | Ready | Generate | Tokens | Done | Score | Scores | WorkerError | Shutdown
M = TypeVar("M", bound=Frozen)


class _Frame(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    nonce: str
    sequence: int
    message: Message


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Frame)


def ids_sha256(ids: Sequence[int]) -> str:
    """SHA-256 of token ids, each as a little-endian u32. Both sides compute it by themselves."""
    return hashlib.sha256(struct.pack(f"<{len(ids)}I", *ids)).hexdigest()


class Channel:
    """One end of the private socket.

    Raises ``ProtocolError``, ``ChannelClosed`` or ``ChannelTimeout``; after any of them the channel is
    of no further use.
    """

    def __init__(self, sock: socket.socket, nonce: str) -> None:
        self._socket = sock
        self._nonce = nonce
        self._sent = 0
        self._received = 0

    def send(self, message: Message, deadline: float | None = None) -> None:
        """Send one message; ``deadline`` is a ``time.perf_counter`` instant."""
        body = _encoder.encode(_Frame(self._nonce, self._sent, message))
        if len(body) > MAX_FRAME_BYTES:
            raise ProtocolError(f"message of {len(body)} bytes exceeds the limit of {MAX_FRAME_BYTES}")
        self._sent += 1
        self._set_timeout(deadline)
        try:
            self._socket.sendall(_LENGTH.pack(len(body)) + body)
        except TimeoutError as error:
            raise ChannelTimeout("the other side did not read in time") from error
        except OSError as error:
            raise ChannelClosed("the other side closed the socket") from error

    def receive(self, deadline: float | None = None) -> Message:
        """Wait for one whole message, at most until ``deadline`` (a ``time.perf_counter`` instant)."""
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size, deadline))
        if length > MAX_FRAME_BYTES:
            raise ProtocolError(f"frame of {length} bytes exceeds the limit of {MAX_FRAME_BYTES}")
        body = self._read(length, deadline)
        try:
            frame = _decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ProtocolError(f"malformed message: {error}") from error
        if frame.nonce != self._nonce:
            raise ProtocolError("message carries the nonce of another launch")
        if frame.sequence != self._received:
            raise ProtocolError(f"message number {frame.sequence} arrived, expected {self._received}")
        self._received += 1
        return frame.message

    def expect(self, kind: type[M], deadline: float | None = None) -> M:
        """Receive one message that must be of ``kind``."""
        message = self.receive(deadline)
        if not isinstance(message, kind):
            raise ProtocolError(f"{name_of(message)} arrived, expected {kind.__name__.lower()}")
        return message

    def quiet(self) -> bool:
        """Whether nothing has arrived that was not asked for."""
        readable, _, _ = select.select([self._socket], [], [], 0)
        return not readable

    def close(self) -> None:
        self._socket.close()

    def _read(self, count: int, deadline: float | None) -> bytes:
        buffer = bytearray(count)
        view, filled = memoryview(buffer), 0
        while filled < count:
            self._set_timeout(deadline)
            try:
                received = self._socket.recv_into(view[filled:])
            except TimeoutError as error:
                raise ChannelTimeout("nothing arrived in time") from error
            except OSError as error:
                raise ChannelClosed("the other side closed the socket") from error
            if received == 0:
                if filled:
                    raise ProtocolError(f"the stream ended inside a frame, after {filled} of {count} bytes")
                raise ChannelClosed("the other side closed the socket")
            filled += received
        return bytes(buffer)

    def _set_timeout(self, deadline: float | None) -> None:
        if deadline is None:
            self._socket.settimeout(None)
            return
        left = deadline - time.perf_counter()
        if left <= 0:
            raise ChannelTimeout("nothing arrived in time")
        self._socket.settimeout(left)


def name_of(message: Message) -> str:
    """The wire name of a message, for sentences."""
    return str(message.__struct_config__.tag)
