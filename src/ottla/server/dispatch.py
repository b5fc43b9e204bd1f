"""From a frame to the handler of its API and back to a framed reply."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import is_dataclass
from typing import Any, TypeAlias, cast

from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.registry import REGISTRY, Api
from ottla.handlers.reply import PendingReply
from ottla.handlers.session import Session
from ottla.runtime.disk import ReadableBuffer
from ottla.runtime.tasks import ByteBudget, TaskScope
from ottla.runtime.turns import take_turn
from ottla.security.quotas import ClientQuotas
from ottla.server.long_answers import LongAnswers
from ottla.server.request_time import noting_time
from ottla.wire.api import ApiKey
from ottla.wire.errors import NotController, UnsupportedVersion
from ottla.wire.frame import MalformedFrame
from ottla.wire.messages import Codec, SerialError, codec
from ottla.wire.primitives import skip_tags
from ottla.wire.refused_answers import error_codes, is_for_another_controller, list_fields

DECODED_AT_ONCE_BYTES_MAX = 64 * 1024
WRITTEN_AT_ONCE_ITEMS_MAX = 1000
NOTED_ITEMS_MAX = 100
"""Of an answer, so many are looked at for errors to count."""
BEGINNING_SECONDS_MAX = 0.005
PERCENT = 100
_HEADER = struct.Struct(">hhih")  # api key, version, correlation id, length of the client id
_REPLY_HEADER = struct.Struct(">ii")
_REPLY_HEADER_FLEXIBLE = struct.Struct(">iiB")


Answer: TypeAlias = tuple[int, bool, list[ReadableBuffer] | PendingReply | None]
"""Correlation id, whether the reply's header is flexible, body."""
Dispatch: TypeAlias = Callable[[memoryview, Session], Answer]


def add_header(correlation_id: int, flexible: bool, body: list[ReadableBuffer]) -> int:
    """Make a frame of the body; how many bytes it has."""
    size = 4
    for buffer in body:
        size += len(buffer)
    if flexible:
        size += 1
        head = _REPLY_HEADER_FLEXIBLE.pack(size, correlation_id, 0)
    else:
        head = _REPLY_HEADER.pack(size, correlation_id)
    # The first buffer of every body is small: one write is cheaper than two.
    body[0] = head + body[0]
    return size


class _Copy:
    """Of a request whose buffer is about to be reused; counted while it is there."""

    def __init__(self, frame: memoryview, budget: ByteBudget) -> None:
        self.frame = bytes(frame)
        self._budget = budget
        budget.take(len(frame))

    def drop(self) -> None:
        frame, self.frame = self.frame, b""
        if frame:
            self._budget.release(len(frame))


class Dispatcher:
    """One per node. `tasks` owns the handlers that wait."""

    def __init__(
        self, broker: Broker, tasks: TaskScope, long_answers: LongAnswers, request_bytes: ByteBudget
    ) -> None:
        self._broker = broker
        self._monotonic = broker.runtime.clock.monotonic
        self._tasks = tasks
        self.long_answers = long_answers
        self.request_bytes = request_bytes
        self._beginning_until: float | None = None

    def dispatch(self, frame: memoryview, session: Session, *, is_limited: bool = False) -> Answer:
        """(correlation id, flexible reply header, body). MalformedFrame means: close the connection."""
        quotas = session.quotas
        if quotas is not None and quotas.limits_requests and not is_limited:
            return self._dispatch_limited(frame, session, quotas)
        key, version, correlation_id, client_id_length = _HEADER.unpack_from(frame)
        api = session.apis.get(key)
        if api is None:
            is_early = key in session.served
            reason = "without having proved who it is" if is_early else "which this broker does not have"
            raise MalformedFrame(f"it asks for API {_api_name(key)}, {reason}")
        if not api.min_version <= version <= api.max_version:
            if key == ApiKey.API_VERSIONS:
                from ottla.handlers.api_versions import unsupported_version_response

                return correlation_id, False, [unsupported_version_response()]
            raise MalformedFrame(
                f"it asks for {api.key.name} version {version}; this broker has "
                f"{api.min_version} to {api.max_version}"
            )
        handler = api.handler or api.load()
        if api.is_hot:
            if client_id_length == session.client_id_length:
                at = session.client_id_ends
            else:
                at = session.see_client_id(frame, client_id_length)
            flexible = version >= api.first_flexible
            if flexible:
                at = skip_tags(frame, at)
            return correlation_id, flexible, handler(self._broker, session, version, frame, at)
        at = session.see_client_id(frame, client_id_length)
        return self._dispatch_decoded(
            api, RequestContext(session, version, correlation_id, api.key), frame, at
        )

    def _dispatch_limited(self, frame: memoryview, session: Session, quotas: ClientQuotas) -> Answer:
        """Limits are found by client id: nobody gets round them by changing it from request to request."""
        if not session.has_client_id_of(frame):
            session.see_client_id(frame, _HEADER.unpack_from(frame)[-1])
        if quotas.limits_time:
            return self._dispatch_timed(frame, session, quotas)
        return self.dispatch(frame, session, is_limited=True)

    def _dispatch_timed(self, frame: memoryview, session: Session, quotas: ClientQuotas) -> Answer:
        """Who has taken too much time is told so by the next answer, and not read for that long."""
        limit = quotas.of(session).request_time
        if limit is None:
            return self.dispatch(frame, session, is_limited=True)
        began_ms = quotas.now_ms()
        session.throttle_ms = limit.throttle_ms(began_ms, longest_windows=1)
        try:
            return self.dispatch(frame, session, is_limited=True)
        finally:
            now_ms = quotas.now_ms()
            limit.record((now_ms - began_ms) / 1000 * PERCENT, now_ms)
            if session.throttle_ms:
                session.throttle(session.throttle_ms)

    def connected(self, session: Session) -> None:
        session.authorizer = self._broker.authorizer
        session.quotas = self._broker.quotas

    def disconnected(self, session: Session) -> None:
        """What is known of a client only while it is connected."""
        self._broker.telemetry.forget(session.address)
        if self._broker.share.made is not None:
            self._broker.share.made.groups.disconnected(session)

    def _dispatch_decoded(self, api: Api, context: RequestContext, frame: memoryview, at: int) -> Answer:
        correlation_id = context.correlation_id
        message = codec(api.key, context.version)
        if message.flexible:
            at = skip_tags(frame, at)
        flexible = message.response_header_flexible
        handler = api.load()
        self._broker.figures.counts[api.key] += 1
        if len(frame) > DECODED_AT_ONCE_BYTES_MAX:
            kept = _Copy(frame, self.request_bytes)
            return correlation_id, flexible, self._answer_large(api, message, context, kept, at)
        request = _decoded(api, message, context, frame, at)
        if api.is_forwarded and self._may_forward(api, context, request):
            answer = self._ask_controller(api, message, context, bytes(frame), request)
            return correlation_id, flexible, self._later(answer, api, context)
        if not api.is_async:
            began = self._monotonic()
            result = handler(self._broker, context, request)
            body: list[ReadableBuffer] = [message.write(result)]
            self._note(api.key, result)
            self._broker.figures.answered(api.key, began, self._monotonic())
            return correlation_id, flexible, body
        answer = self._answer(api, message, context, request)
        return correlation_id, flexible, self._later(answer, api, context)

    def _answer_large(
        self, api: Api, message: Codec, context: RequestContext, kept: _Copy, at: int
    ) -> PendingReply:
        """Thousands of items are read and written in a thread, which takes turns with the event loop."""
        offload = self._broker.runtime.offload

        async def answer() -> list[ReadableBuffer]:
            request = await offload.run(_decoded, api, message, context, memoryview(kept.frame), at)
            if api.is_forwarded and self._may_forward(api, context, request):
                return await self._ask_controller(api, message, context, kept.frame, request)
            # An answer may be long in coming: what was asked is kept once, not twice.
            kept.drop()
            result = await self._handled(api, context, request)
            self._note(api.key, result)
            return [await offload.run(message.write, result)]

        return self._later(answer(), api, context, kept)

    async def _begin(self) -> None:
        """Hundreds may ask at the same moment: in one round of the loop only so many begin to be answered."""
        if self._beginning_until is None:
            self._beginning_until = self._monotonic() + BEGINNING_SECONDS_MAX
            asyncio.get_running_loop().call_soon(self._end_round)
        elif self._monotonic() > self._beginning_until:
            await take_turn(is_newcomer=True)

    def _end_round(self) -> None:
        self._beginning_until = None

    def _note(self, key: ApiKey, result: Any) -> None:
        for code in error_codes(result, NOTED_ITEMS_MAX):
            self._broker.figures.errors[key, code] += 1

    async def _handled(self, api: Api, context: RequestContext, request: Any) -> Any:
        result = api.load()(self._broker, context, request)
        return await result if api.is_async else result

    async def _answer(
        self, api: Api, message: Codec, context: RequestContext, request: Any
    ) -> list[ReadableBuffer]:
        await self._begin()
        result = await self._handled(api, context, request)
        self._note(api.key, result)
        return await self._written(message, result)

    async def _written(self, message: Codec, result: Any) -> list[ReadableBuffer]:
        if _items(result, WRITTEN_AT_ONCE_ITEMS_MAX) < WRITTEN_AT_ONCE_ITEMS_MAX:
            return [message.write(result)]
        return [await self._broker.runtime.offload.run(message.write, result)]

    def _may_forward(self, api: Api, context: RequestContext, request: Any) -> bool:
        if self._broker.forwarding is None:
            return False
        # Whoever asks on a controller's listener looks for the active one, and is told that this is not it.
        return context.session.served is REGISTRY and not (api.stays is not None and api.stays(request))

    async def _ask_controller(
        self, api: Api, message: Codec, context: RequestContext, frame: bytes, request: Any
    ) -> list[ReadableBuffer]:
        """Whichever node that is by the time of the answer: clients of a broker need not look for it."""
        if self._broker.controller.is_active:
            await self._begin()
            result = await self._handled(api, context, request)
            if not is_for_another_controller(api.key, result):
                self._note(api.key, result)
                return await self._written(message, result)
        return await self._forward(api, message, context, frame, request)

    async def _forward(
        self, api: Api, message: Codec, context: RequestContext, frame: bytes, request: Any
    ) -> list[ReadableBuffer]:
        session, forwarding = context.session, self._broker.forwarding
        assert forwarding is not None
        api.load()
        if api.refuses_here is not None:
            refusal = await api.refuses_here(self._broker, context, request)
            if refusal is not None:
                return [message.write(refusal)]
        try:
            flexible = message.response_header_flexible
            answer = await forwarding.forward(
                frame, session.principal, session.host, flexible, is_by_token=session.is_by_token
            )
            return [answer]
        except (NotController, UnsupportedVersion):
            # This node's handler says so in the way of its API.
            return [message.write(await self._handled(api, context, request))]

    def _timed(
        self, answer: Coroutine[Any, Any, list[ReadableBuffer]], session: Session, quotas: ClientQuotas
    ) -> Coroutine[Any, Any, list[ReadableBuffer]]:
        limit = quotas.of(session).request_time
        if limit is None:
            return answer
        clock = self._broker.runtime.clock

        def note(seconds: float) -> None:
            limit.record(seconds * PERCENT, quotas.now_ms())

        return noting_time(answer, clock.monotonic, note)

    def _later(
        self,
        answer: Coroutine[Any, Any, list[ReadableBuffer]],
        api: Api,
        context: RequestContext,
        kept: _Copy | None = None,
    ) -> PendingReply:
        quotas = context.session.quotas
        if quotas is not None and quotas.limits_time:
            answer = self._timed(answer, context.session, quotas)
        if api.looks_up:
            answer = self.long_answers.bounded(answer)
        task = self._tasks.spawn(answer, f"{api.key.name} {context.session.address}")
        # As in Apache Kafka, whose clients expect nothing else: otherwise each of thousands of clients could
        # have a hundred such requests under way.
        reply = PendingReply(task.cancel, is_alone=True)
        began = self._monotonic()

        def finished(done: asyncio.Task[Any]) -> None:
            if kept is not None:
                kept.drop()
            if done.cancelled():
                return
            self._broker.figures.answered(api.key, began, self._monotonic())
            if (error := done.exception()) is not None:
                reply.fail(error)
            else:
                reply.complete(done.result())

        task.add_done_callback(finished)
        return reply


def _items(entity: Any, enough: int) -> int:
    """How many things are in lists of this one, and in lists of those; counted no further than `enough`."""
    found = 0
    for name in list_fields(cast(Hashable, type(entity))):
        items = getattr(entity, name, None) or ()
        found += len(items)
        if found >= enough:
            break
        if items and is_dataclass(items[0]) and list_fields(cast(Hashable, type(items[0]))):
            for item in items:
                found += _items(item, enough - found)
                if found >= enough:
                    return found
    return found


def _decoded(api: Api, message: Codec, context: RequestContext, frame: memoryview, at: int) -> Any:
    try:
        return message.read(frame, at)
    except (SerialError, ValueError, LookupError, struct.error) as error:
        raise MalformedFrame(
            f"its {api.key.name} version {context.version} cannot be decoded: {error}"
        ) from error


def _api_name(key: int) -> str:
    try:
        return f"{key} ({ApiKey(key).name})"
    except ValueError:
        return str(key)
