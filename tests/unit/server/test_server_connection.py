"""A connection over a transport of the test's: order of replies, when reading stops, how it ends."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.handlers.reply import PendingReply
from ottla.handlers.session import Session
from ottla.runtime.tasks import ByteBudget
from ottla.server import connection as connections
from ottla.server.connection import Connection
from ottla.server.listener import ConnectionLimits
from ottla.server.long_answers import LongAnswers
from ottla.wire.frame import SCRATCH_BYTES, MalformedFrame


class Transport:
    def __init__(self) -> None:
        self.sent = b""
        self.is_paused = False
        self.closed = ""

    def get_extra_info(self, name: str) -> Any:
        return ("10.0.0.1", 4000)

    def set_write_buffer_limits(self, high: int) -> None: ...

    def write(self, data: bytes) -> None:
        self.sent += data

    def writelines(self, pieces: Iterable[bytes]) -> None:
        self.sent += b"".join(bytes(piece) for piece in pieces)

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def is_closing(self) -> bool:
        return bool(self.closed)

    def close(self) -> None:
        self.closed = "closed"

    def abort(self) -> None:
        self.closed = "aborted"


class Served:
    """One connection whose requests are answered by a function of their body."""

    def __init__(self, answer: Callable[[bytes], Any], budget: int = 1 << 30) -> None:
        self.seen: list[bytes] = []

        def dispatch(frame: memoryview, session: Session) -> tuple[int, bool, Any]:
            self.seen.append(bytes(frame[8:]))
            return struct.unpack(">i", frame[:4])[0], False, answer(bytes(frame[8:]))

        self.limits = SimpleNamespace(
            dispatcher=SimpleNamespace(dispatch=dispatch, long_answers=LongAnswers(1 << 30)),
            scratch=memoryview(bytearray(SCRATCH_BYTES)),
            request_bytes=ByteBudget(budget),
            request_bytes_max=1 << 20,
            serving=True,
            monotonic=asyncio.get_running_loop().time,
            may_wait_for_memory=True,
            admit=lambda connection: True,
            forget=lambda connection: None,
            reclaim=lambda: False,
            complain_of_request=lambda address, host, reason: None,
        )
        self.transport = Transport()
        self.connection = Connection(cast(ConnectionLimits, self.limits), "PLAINTEXT")
        self.connection.connection_made(cast(asyncio.BaseTransport, self.transport))

    def receive(self, data: bytes) -> None:
        while data:
            target = self.connection.get_buffer(-1)
            piece, data = data[: len(target)], data[len(target) :]
            target[: len(piece)] = piece
            self.connection.buffer_updated(len(piece))

    @property
    def answers(self) -> list[tuple[int, bytes]]:
        found, rest = [], self.transport.sent
        while rest:
            size, number = struct.unpack_from(">ii", rest)
            found.append((number, rest[8 : size + 4]))
            rest = rest[size + 4 :]
        return found


def frame(number: int, body: bytes = b"") -> bytes:
    return struct.pack(">iii", len(body) + 8, number, 0) + body


def test_replies_leave_in_the_order_of_requests() -> None:
    async def main() -> None:
        waiting: list[PendingReply] = []

        def answer(body: bytes) -> Any:
            if body == b"wait":
                waiting.append(PendingReply(lambda: None))
                return waiting[-1]
            return [b"at once"]

        served = Served(answer)
        served.receive(frame(1, b"wait") + frame(2) + frame(3, b"wait") + frame(4))
        assert served.answers == []
        waiting[1].complete([b"second"])
        await asyncio.sleep(0)
        assert served.answers == []
        waiting[0].complete([b"first"])
        await asyncio.sleep(0)
        assert served.answers == [(1, b"first"), (2, b"at once"), (3, b"second"), (4, b"at once")]

    asyncio.run(main())


@pytest.mark.parametrize("finished_later", [False, True])
def test_reading_stops_at_the_bytes_of_replies_that_wait(finished_later: bool) -> None:
    async def main() -> None:
        large = connections.PENDING_REPLY_BYTES_MAX // 4
        waiting: list[PendingReply] = []

        def answer(body: bytes) -> Any:
            if body == b"wait" or finished_later:
                waiting.append(PendingReply(lambda: None))
                return waiting[-1]
            return [bytes(large)]

        served = Served(answer)
        served.receive(frame(0, b"wait"))
        served.receive(b"".join(frame(number) for number in range(1, 5)))
        for reply in waiting[1:]:
            reply.complete([bytes(large)])
        assert served.transport.is_paused
        served.receive(frame(5))
        assert len(served.seen) == 5, "it is not looked at before the others have left"
        waiting[0].complete([b"first"])
        await asyncio.sleep(0)
        assert not served.transport.is_paused
        assert len(served.seen) == 6

    asyncio.run(main())


def test_the_client_that_goes_while_it_waits_for_memory_leaves_the_line() -> None:
    async def main() -> None:
        served = Served(lambda body: [b""], budget=500_000)
        budget = served.limits.request_bytes
        assert budget.reserve(400_000)
        served.receive(frame(1, bytes(300_000))[:100_000])
        assert served.transport.is_paused
        assert budget.waiting == 1
        served.connection.connection_lost(None)
        assert budget.waiting == 0
        assert budget.used == 400_000

    asyncio.run(main())


def test_memory_that_comes_free_lets_the_client_go_on() -> None:
    async def main() -> None:
        served = Served(lambda body: [b"%d" % len(body)], budget=500_000)
        budget = served.limits.request_bytes
        assert budget.reserve(400_000)
        request = frame(1, bytes(300_000))
        served.receive(request[:100_000])
        budget.release(400_000)
        assert not served.transport.is_paused
        served.receive(request[100_000:])
        assert served.answers == [(1, b"300000")]

    asyncio.run(main())


def test_a_malformed_request_closes_its_connection_after_what_was_answered() -> None:
    async def main() -> None:
        def answer(body: bytes) -> Any:
            if body == b"bad":
                raise MalformedFrame("it is bad")
            return [b"good"]

        served = Served(answer)
        served.receive(frame(1) + frame(2, b"bad") + frame(3))
        assert served.answers == [(1, b"good")]
        assert served.transport.closed == "closed"

    asyncio.run(main())


def test_a_malformed_request_that_is_found_out_later_closes_its_connection() -> None:
    async def main() -> None:
        reply = PendingReply(lambda: None)
        served = Served(lambda body: reply)
        served.receive(frame(1))
        reply.fail(MalformedFrame("it is bad"))
        assert served.transport.closed == "closed"

    asyncio.run(main())


def test_a_client_that_had_to_wait_is_read_again_though_its_timer_is_early() -> None:
    """Event loops round times: uvloop to milliseconds, up or down."""

    async def main() -> None:
        served = Served(lambda body: [b"answered"])
        loop = asyncio.get_running_loop()
        call_at = loop.call_at
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "call_at", lambda when, *rest: call_at(when - 0.01, *rest))
            served.connection.mute(20)
        assert served.transport.is_paused
        async with asyncio.timeout(10):
            while served.transport.is_paused:
                await asyncio.sleep(0.001)

    asyncio.run(main())


def test_many_slow_requests_at_once_let_others_go_first() -> None:
    async def main() -> None:
        now = 0.0

        def answer(body: bytes) -> Any:
            nonlocal now
            now += connections.TURN_SECONDS_MAX
            return [b""]

        served = Served(answer)
        served.limits.monotonic = lambda: now
        served.receive(b"".join(frame(number) for number in range(100)))
        assert len(served.seen) < 20
        while len(served.seen) < 100:
            before = len(served.seen)
            await asyncio.sleep(0)
            assert len(served.seen) > before
        assert [number for number, _ in served.answers] == list(range(100))

    asyncio.run(main())


def test_a_request_that_is_answered_alone_keeps_those_behind_it_waiting() -> None:
    async def main() -> None:
        waiting: list[PendingReply] = []

        def answer(body: bytes) -> Any:
            waiting.append(PendingReply(lambda: None, is_alone=True))
            return waiting[-1]

        served = Served(answer)
        served.receive(b"".join(frame(number) for number in range(5)))
        for number in range(5):
            assert len(served.seen) == number + 1
            assert served.transport.is_paused
            waiting[number].complete([b"%d" % number])
            while number < 4 and len(served.seen) == number + 1:
                await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert served.answers == [(number, b"%d" % number) for number in range(5)]
        assert not served.transport.is_paused

    asyncio.run(main())


def test_long_answers_count_until_the_client_has_read_them() -> None:
    async def main() -> None:
        waiting: list[PendingReply] = []

        def answer(body: bytes) -> Any:
            waiting.append(PendingReply(lambda: None, is_alone=True))
            return waiting[-1]

        served = Served(answer)
        long_answers = served.limits.dispatcher.long_answers
        write = served.transport.write

        def write_and_pause(data: bytes) -> None:
            write(data)
            served.connection.pause_writing()

        served.transport.write = write_and_pause  # type: ignore[method-assign]
        for ends in (served.connection.resume_writing, lambda: served.connection.connection_lost(None)):
            served.receive(frame(1))
            waiting[-1].complete([bytes(500_000)])
            await asyncio.sleep(0)
            assert long_answers.unread_bytes > 500_000
            ends()
            assert long_answers.unread_bytes == 0

    asyncio.run(main())


def test_draining_takes_no_more_requests_and_closes_after_the_last_answer() -> None:
    async def main() -> None:
        reply = PendingReply(lambda: None)
        served = Served(lambda body: reply)
        served.receive(frame(1))
        served.connection.drain()
        assert served.transport.is_paused
        assert not served.transport.closed
        reply.complete([b"done"])
        await asyncio.sleep(0)
        assert served.answers == [(1, b"done")]
        assert served.transport.closed == "closed"

    asyncio.run(main())
