"""From a frame to a handler and back, with handlers of the test's."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, ParamSpec, TypeVar, cast

import pytest
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.describe_groups.v5.response import DescribeGroupsResponse
from kio.schema.types import GroupId

from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.figures import RequestFigures
from ottla.handlers.registry import REGISTRY, Api
from ottla.handlers.reply import PendingReply
from ottla.handlers.session import Session
from ottla.handlers.throttle import NOT_THROTTLED
from ottla.runtime.clock import SystemClock
from ottla.runtime.tasks import ByteBudget, TaskScope
from ottla.server.dispatch import DECODED_AT_ONCE_BYTES_MAX, Dispatcher, add_header
from ottla.server.long_answers import LongAnswers
from ottla.wire.api import ApiKey
from ottla.wire.frame import MalformedFrame
from ottla.wire.messages import codec

P = ParamSpec("P")
T = TypeVar("T")

KEY, VERSION = ApiKey.DESCRIBE_GROUPS, 5
ANSWER = DescribeGroupsResponse(throttle_time=NOT_THROTTLED, groups=())
MISSING = 999
NOT_SERVED = next(key for key in ApiKey if key not in REGISTRY)


class CountingOffload:
    def __init__(self) -> None:
        self.runs = 0

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.runs += 1
        await asyncio.sleep(0)
        return function(*args, **kwargs)

    def close(self) -> None: ...


class Kit:
    def __init__(self) -> None:
        self.offload = CountingOffload()
        self.failures: list[str] = []
        self.tasks = TaskScope("requests", lambda name, error: self.failures.append(name))
        self.figures = RequestFigures()
        broker = SimpleNamespace(
            runtime=SimpleNamespace(offload=self.offload, clock=SystemClock()), figures=self.figures
        )
        self.request_bytes = ByteBudget(1 << 30)
        self.session = Session("PLAINTEXT", "10.0.0.1", 4000)
        self._dispatcher = Dispatcher(
            cast("Broker", broker), self.tasks, LongAnswers(1 << 30), self.request_bytes
        )

    def dispatch(self, frame: bytes | bytearray) -> tuple[int, bool, Any]:
        return self._dispatcher.dispatch(memoryview(frame), self.session)


def frame(
    *groups: str,
    key: int = KEY,
    version: int = VERSION,
    client: bytes | None = b"me",
    body: bytes | None = None,
) -> bytearray:
    head = struct.pack(">hhih", key, version, 7, -1 if client is None else len(client)) + (client or b"")
    if body is None:
        names = b"".join(bytes([len(name) + 1]) + name.encode() for name in groups)
        count = len(groups) + 1
        body = (bytes([count]) if count < 128 else bytes([count & 127 | 128, count >> 7])) + names + b"\0\0"
    return bytearray(head + b"\0" + body)


@pytest.fixture
def handle(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any], bool], None]:
    def handle(handler: Callable[..., Any], is_async: bool) -> None:
        api = Api(KEY, 0, 6, "groups", handler=handler, is_async=is_async)
        monkeypatch.setitem(REGISTRY, KEY, api)

    return handle


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 10))


async def ended(reply: PendingReply) -> PendingReply:
    done = asyncio.Event()
    reply.bind(7, True, lambda _: done.set())
    if reply.body is None and reply.error is None:
        await done.wait()
    return reply


@pytest.mark.parametrize("client", [b"me", b"", None])
def test_a_plain_handler_answers_at_once(handle: Any, client: bytes | None) -> None:
    seen: list[tuple[RequestContext, DescribeGroupsRequest]] = []

    def answer(_: Broker, context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
        seen.append((context, request))
        return ANSWER

    handle(answer, False)
    correlation_id, flexible, body = Kit().dispatch(frame("a", "b", client=client))
    assert (correlation_id, flexible) == (7, True)
    assert body == [codec(KEY, VERSION).write(ANSWER)]
    [(context, request)] = seen
    assert request.groups == ("a", "b")
    assert (context.version, context.correlation_id, context.session.listener) == (VERSION, 7, "PLAINTEXT")
    assert context.session.client_id == (None if client is None else client.decode())
    assert context.session.client_host == "/10.0.0.1"


def test_the_session_follows_what_a_client_calls_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def hot(_: Broker, session: Session, version: int, frame: memoryview, at: int) -> list[bytes]:
        return [repr((session.client_id, session.listener, version, bytes(frame[at:]))).encode()]

    produce = Api(ApiKey.PRODUCE, 3, 13, "produce", is_hot=True, first_flexible=9, handler=hot)
    monkeypatch.setitem(REGISTRY, ApiKey.PRODUCE, produce)
    kit = Kit()
    for client in (b"first", b"first", None, b"", b"another", "zw\u00f6lf".encode()):
        seen = None if client is None else client.decode()
        _, _, body = kit.dispatch(frame(key=ApiKey.PRODUCE, version=9, client=client, body=b"rest"))
        assert body == [repr((seen, "PLAINTEXT", 9, b"rest")).encode()]


@pytest.mark.parametrize(
    ("throttle_ms", "expected"),
    [(0, b"\0\0\0\0"), (1500, struct.pack(">i", 1500))],
    ids=["free", "throttled"],
)
def test_what_a_response_says_of_throttling_comes_from_the_session(throttle_ms: int, expected: bytes) -> None:
    kit = Kit()
    kit.session.throttle_ms = throttle_ms
    # A type that there is not needs nothing of the broker.
    body = struct.pack(">BBB", 2, 99, 0)
    _, _, answer = kit.dispatch(frame(key=ApiKey.LIST_CONFIG_RESOURCES, version=1, body=body))
    assert answer[0][:4] == struct.pack(">i", throttle_ms)
    assert kit.session.throttle_time == timedelta(milliseconds=throttle_ms)


def test_an_asynchronous_handler_answers_later(handle: Any) -> None:
    async def scenario() -> None:
        may_answer = asyncio.Event()

        async def answer(*_: Any) -> DescribeGroupsResponse:
            await may_answer.wait()
            return ANSWER

        handle(answer, True)
        _, _, reply = Kit().dispatch(frame("a"))
        assert isinstance(reply, PendingReply)
        await asyncio.sleep(0)
        assert reply.body is None
        may_answer.set()
        assert (await ended(reply)).body == [codec(KEY, VERSION).write(ANSWER)]

    run(scenario())


def test_a_handler_that_fails_ends_its_connection_alone(handle: Any) -> None:
    async def scenario() -> None:
        async def answer(*_: Any) -> DescribeGroupsResponse:
            raise LookupError("planted")

        handle(answer, True)
        kit = Kit()
        _, _, reply = kit.dispatch(frame("a"))
        assert isinstance((await ended(reply)).error, LookupError)
        assert kit.failures == ["requests/DESCRIBE_GROUPS 10.0.0.1:4000"]

    run(scenario())


def test_a_client_that_goes_takes_its_handler_along(handle: Any) -> None:
    async def scenario() -> None:
        state: list[str] = []

        async def answer(*_: Any) -> DescribeGroupsResponse:
            state.append("began")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                state.append("cancelled")
                raise
            return ANSWER

        handle(answer, True)
        kit = Kit()
        _, _, reply = kit.dispatch(frame("a"))
        await asyncio.sleep(0)
        reply.cancel()
        await kit.tasks.close()
        assert state == ["began", "cancelled"]
        assert (reply.body, reply.error, kit.failures) == (None, None, [])

    run(scenario())


@pytest.mark.parametrize("is_async", [False, True])
def test_what_is_large_is_decoded_and_encoded_elsewhere(handle: Any, is_async: bool) -> None:
    async def scenario() -> None:
        names = [f"{number:05}" * 20 for number in range(800)]
        seen: list[tuple[GroupId, ...]] = []

        def answer(_: Any, __: Any, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
            seen.append(request.groups)
            return ANSWER

        async def answer_later(*args: Any) -> DescribeGroupsResponse:
            return answer(*args)

        handle(answer_later if is_async else answer, is_async)
        kit = Kit()
        large = frame(*names)
        assert len(large) > DECODED_AT_ONCE_BYTES_MAX
        _, _, reply = kit.dispatch(large)
        assert kit.request_bytes.used == len(large)
        # The connection reads the next request into the same buffer.
        large[:] = bytes(len(large))
        assert (await ended(reply)).body == [codec(KEY, VERSION).write(ANSWER)]
        assert seen == [tuple(names)]
        assert kit.request_bytes.used == 0
        assert kit.offload.runs == 2

    run(scenario())


def test_large_garbage_is_malformed_as_well(handle: Any) -> None:
    async def scenario() -> None:
        handle(lambda *_: ANSWER, False)
        _, _, reply = Kit().dispatch(frame(body=b"\x02\x02\xff" + bytes(DECODED_AT_ONCE_BYTES_MAX)))
        error = (await ended(reply)).error
        assert isinstance(error, MalformedFrame)
        assert "DESCRIBE_GROUPS version 5 cannot be decoded" in str(error)

    run(scenario())


@pytest.mark.parametrize(
    "bad, message",
    [
        (frame(key=MISSING), "asks for API 999, which this broker does not have"),
        (frame(key=NOT_SERVED), rf"asks for API {int(NOT_SERVED)} \({NOT_SERVED.name}\), which"),
        (frame(version=7), "asks for DESCRIBE_GROUPS version 7; this broker has 0 to 6"),
        (frame(version=-1), "asks for DESCRIBE_GROUPS version -1"),
        (frame(body=b"\x02\x02\xff\0\0"), "its DESCRIBE_GROUPS version 5 cannot be decoded"),
    ],
    ids=["no such api", "not served", "too new", "negative", "garbage"],
)
def test_what_cannot_be_answered_names_itself(bad: bytearray, message: str) -> None:
    with pytest.raises(MalformedFrame, match=message):
        Kit().dispatch(bad)


def test_api_versions_of_a_version_from_the_future_is_answered_as_version_0() -> None:
    _, flexible, body = Kit().dispatch(frame(key=ApiKey.API_VERSIONS, version=99))
    assert not flexible
    (error,) = struct.unpack_from(">h", body[0])
    assert error == 35  # UNSUPPORTED_VERSION


@pytest.mark.parametrize("flexible", [False, True])
def test_the_header_counts_everything_behind_it(flexible: bool) -> None:
    body: list[Any] = [b"abc", memoryview(b"de")]
    size = add_header(7, flexible, body)
    sent = b"".join(bytes(part) for part in body)
    assert struct.unpack_from(">ii", sent) == (len(sent) - 4, 7)
    assert size == len(sent) - 4
    assert sent.endswith(b"\0abcde" if flexible else b"\x07abcde")
