"""Frames come out of the byte stream as they went in, however the stream is cut."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.runtime.tasks import ByteBudget
from ottla.wire.frame import FrameReader, MalformedFrame

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
        assert frames.settle()
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


def test_a_frame_beyond_the_budget_waits_until_memory_is_free():
    frames, budget = reader(limit=1000)
    assert budget.reserve(900)
    head = struct.pack(">i", 600) + b"x" * 100
    frames.target()[: len(head)] = head
    frames.received(len(head))
    assert frames.next_frame() is None
    assert not frames.settle()
    called = []
    budget.call_when_free(lambda: called.append(frames.settle()))
    budget.release(900)
    assert called == [True]
    assert len(frames.target()) >= 500


@given(st.binary(max_size=2000), st.lists(st.integers(1, 700), min_size=1, max_size=5))
@settings(max_examples=300, deadline=None)
def test_garbage_never_breaks_the_reader(stream, cuts):
    frames, _ = reader(frame_bytes_max=4096)
    with contextlib.suppress(MalformedFrame):
        feed(frames, stream, cuts)
