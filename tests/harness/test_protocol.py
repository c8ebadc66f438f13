"""The private channel: what is not exactly expected is never believed."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.protocol import (
    MAX_FRAME_BYTES,
    Channel,
    ChannelClosed,
    ChannelTimeout,
    Done,
    Generate,
    ProtocolError,
    Shutdown,
    ids_sha256,
)

Ends = tuple[Channel, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket.socketpair()
    yield Channel(ours, "n"), theirs
    ours.close()
    theirs.close()


def frame(message: dict[str, object], sequence: int = 0, nonce: str = "n") -> bytes:
    body = msgspec.msgpack.encode([nonce, sequence, message])
    return struct.pack(">I", len(body)) + body


def soon() -> float:
    return time.perf_counter() + 1.0


TOKENS = {"type": "tokens", "id": 1, "token_ids": [1, 2]}


def test_a_message_arrives_as_it_was_sent(ends: Ends) -> None:
    channel, peer = ends
    sent = Generate(id=1, prompt_ids=(1, 2), mode="ar", max_new_tokens=3, temperature=0.0, stop_ids=(9,))
    Channel(peer, "n").send(sent)
    assert channel.receive(soon()) == sent


def test_a_repeated_message_is_refused(ends: Ends) -> None:
    channel, peer = ends
    peer.sendall(frame(TOKENS) * 2)
    channel.receive(soon())
    with pytest.raises(ProtocolError, match="number 0 arrived, expected 1"):
        channel.receive(soon())


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (frame(TOKENS, nonce="other"), "another launch"),
        (frame(TOKENS, sequence=5), "number 5"),
        (frame({"type": "tokens", "id": 1, "token_ids": []}), "malformed"),
        (frame({"type": "tokens", "id": 1, "token_ids": [-1]}), "malformed"),
        (frame({**TOKENS, "rate_tok_s": 1e9}), "malformed"),
        (frame({"type": "result", "tok_s": 1e9}), "malformed"),
        (struct.pack(">I", 3) + b"\xc1\xc1\xc1", "malformed"),
        (struct.pack(">I", MAX_FRAME_BYTES + 1), "exceeds the limit"),
    ],
)
def test_a_frame_that_is_not_the_next_good_one_is_refused(ends: Ends, data: bytes, sentence: str) -> None:
    channel, peer = ends
    peer.sendall(data)
    with pytest.raises(ProtocolError, match=sentence):
        channel.receive(soon())


def test_a_frame_cut_off_by_the_end_is_refused(ends: Ends) -> None:
    channel, peer = ends
    peer.sendall(frame(TOKENS)[:-1])
    peer.shutdown(socket.SHUT_WR)
    with pytest.raises(ProtocolError, match="ended inside a frame"):
        channel.receive(soon())


def test_a_closed_end_between_frames_is_told_apart(ends: Ends) -> None:
    channel, peer = ends
    peer.shutdown(socket.SHUT_WR)
    with pytest.raises(ChannelClosed):
        channel.receive(soon())


def test_silence_ends_at_the_deadline(ends: Ends) -> None:
    channel, _ = ends
    started = time.perf_counter()
    with pytest.raises(ChannelTimeout):
        channel.receive(started + 0.05)
    assert time.perf_counter() - started < 1.0


def test_a_trickle_of_bytes_does_not_extend_the_deadline(ends: Ends) -> None:
    channel, peer = ends
    peer.sendall(frame(TOKENS)[:6])
    with pytest.raises(ChannelTimeout):
        channel.receive(time.perf_counter() + 0.05)


def test_the_wrong_kind_of_message_is_named(ends: Ends) -> None:
    channel, peer = ends
    peer.sendall(frame({"type": "shutdown"}))
    with pytest.raises(ProtocolError, match="shutdown arrived, expected done"):
        channel.expect(Done, soon())


def test_what_was_not_asked_for_is_noticed(ends: Ends) -> None:
    channel, peer = ends
    assert channel.quiet()
    Channel(peer, "n").send(Shutdown())
    assert not channel.quiet()


@given(st.binary(max_size=200))
def test_no_bytes_at_all_become_a_message_of_this_launch(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises((ProtocolError, ChannelClosed)):
            Channel(ours, "a-nonce-nobody-guesses").receive(soon())


def test_prompt_hash_depends_on_every_id_and_its_place() -> None:
    assert ids_sha256([1, 2]) != ids_sha256([2, 1])
    assert ids_sha256([258]) != ids_sha256([2, 1])
