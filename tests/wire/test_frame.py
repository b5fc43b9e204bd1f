"""Frames come out of the byte stream as they went in, however the stream is cut."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.runtime.tasks import ByteBudget
from ottla.wire.frame import OWN_BYTES_MIN, UNCOUNTED_BYTES_MAX, FrameReader, MalformedFrame

SCRATCH = 512


def reader(limit: int = 1 << 30, frame_bytes_max: int = 1 << 20) -> tuple[FrameReader, ByteBudget]:
    budget = ByteBudget(limit)
    return FrameReader(memoryview(bytearray(SCRATCH)), budget, frame_bytes_max), budget


def feed(frames: FrameReader, stream: bytes, cuts: list[int]) -> list[bytes]:
    """Deliver `stream` in pieces of at most the given sizes, as a socket would."""
    got = []
    at = turn = 0
    while at < len(stream):
        target = frames.target()
        size = min(len(target), cuts[turn % len(cuts)], len(stream) - at)
        assert size > 0
        target[:size] = stream[at : at + size]
        frames.received(size)
        at += size
        turn += 1
        while (frame := frames.next_frame()) is not None:
            got.append(bytes(frame))
        assert frames.make_room() == 0
    return got


@given(
    bodies=st.lists(st.binary(min_size=8, max_size=3 * SCRATCH), max_size=20),
    cuts=st.lists(st.integers(1, 2 * SCRATCH), min_size=1, max_size=8),
)
@settings(max_examples=300, deadline=None)
def test_any_cut_of_the_stream_gives_the_same_frames(bodies, cuts):
    frames, budget = reader()
    stream = b"".join(struct.pack(">i", len(body)) + body for body in bodies)
    assert feed(frames, stream, cuts) == bodies
    frames.release()
    assert budget.used == 0


@pytest.mark.parametrize("size", [-1, 0, 7, (1 << 20) + 1, (1 << 31) - 1])
def test_sizes_that_cannot_be_are_refused(size):
    frames, _ = reader()
    announcement = struct.pack(">i", size) + b"\0" * 8
    frames.target()[: len(announcement)] = announcement
    frames.received(len(announcement))
    with pytest.raises(MalformedFrame, match=str(size)):
        frames.next_frame()


@pytest.mark.parametrize(
    ("first", "guess"), [(b"GET /", "looks like HTTP"), (b"\x16\x03\x01", "looks like TLS")]
)
def test_what_is_no_request_is_named(first, guess):
    frames, _ = reader()
    data = first + b"\0" * 16
    frames.target()[: len(data)] = data
    frames.received(len(data))
    with pytest.raises(MalformedFrame, match=guess):
        frames.next_frame()


def deliver(frames: FrameReader, data: bytes) -> int:
    """How many bytes have to be reserved before more can be read."""
    for at in range(0, len(data), SCRATCH):
        piece = data[at : at + SCRATCH]
        while piece:
            target = frames.target()
            size = min(len(target), len(piece))
            target[:size] = piece[:size]
            frames.received(size)
            piece = piece[size:]
            assert frames.next_frame() is None
            if needed := frames.make_room():
                assert at + SCRATCH >= len(data), "nothing can be read until they are"
                return needed
    return 0


def test_announcing_a_large_frame_takes_nothing_from_the_budget():
    frames, budget = reader(limit=UNCOUNTED_BYTES_MAX)
    assert budget.reserve(UNCOUNTED_BYTES_MAX)
    assert deliver(frames, struct.pack(">i", 900_000)) == 0
    assert deliver(frames, b"x" * 1000) == 0
    assert budget.used == UNCOUNTED_BYTES_MAX
    assert not frames.holds_unfinished
    assert 0 < len(frames.target()) <= OWN_BYTES_MIN


def test_a_frame_beyond_the_budget_waits_until_memory_is_free():
    frames, budget = reader(limit=1_000_000)
    assert budget.reserve(900_000)
    head = struct.pack(">i", 600_000)
    body = b"x" * (UNCOUNTED_BYTES_MAX - 4)
    needed = deliver(frames, head + body)
    assert needed == 600_004
    assert budget.used == 900_000
    assert not frames.holds_unfinished
    budget.call_when_reserved(needed, lambda: frames.accept(needed))
    budget.release(900_000)
    assert frames.holds_unfinished
    assert budget.used == needed
    rest = b"y" * (600_000 - len(body))
    target = frames.target()
    assert len(target) == len(rest)
    target[:] = rest
    frames.received(len(rest))
    assert bytes(frames.next_frame()) == body + rest
    frames.close()
    assert budget.used == 0


def test_who_waits_for_more_holds_nothing_that_others_wait_for():
    """A buffer kept from an earlier frame is given back, or two of them could wait for each other."""
    frames, budget = reader(limit=1_000_000)
    first = struct.pack(">i", 200_000) + bytes(200_000)
    assert deliver(frames, first[:-1]) == 0
    frames.target()[:1] = first[-1:]
    frames.received(1)
    assert frames.next_frame() is not None
    assert frames.make_room() == 0
    assert budget.used == 200_004
    assert budget.reserve(700_000)
    larger = struct.pack(">i", 900_000) + bytes(UNCOUNTED_BYTES_MAX - 4)
    assert deliver(frames, larger) == 900_004
    assert budget.used == 700_000


@given(st.binary(max_size=2000), st.lists(st.integers(1, 700), min_size=1, max_size=5))
@settings(max_examples=300, deadline=None)
def test_garbage_never_breaks_the_reader(stream, cuts):
    frames, _ = reader(frame_bytes_max=4096)
    with contextlib.suppress(MalformedFrame):
        feed(frames, stream, cuts)
