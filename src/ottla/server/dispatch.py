"""From a frame to the handler of its API and back to a framed reply."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Coroutine
from typing import Any

from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.registry import REGISTRY, Api
from ottla.handlers.reply import PendingReply
from ottla.runtime.disk import ReadableBuffer
from ottla.runtime.tasks import TaskScope
from ottla.wire.api import ApiKey
from ottla.wire.frame import MalformedFrame
from ottla.wire.messages import Codec, SerialError, codec
from ottla.wire.primitives import read_nullable_string, skip_tags

DECODED_AT_ONCE_BYTES_MAX = 64 * 1024
_PRODUCE = ApiKey.PRODUCE.value
_HEADER = struct.Struct(">hhih")  # api key, version, correlation id, length of the client id
_REPLY_HEADER = struct.Struct(">ii")
_REPLY_HEADER_FLEXIBLE = struct.Struct(">iiB")


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


class Dispatcher:
    """One per node. `tasks` owns the handlers that wait."""

    def __init__(self, broker: Broker, tasks: TaskScope) -> None:
        self._broker = broker
        self._tasks = tasks

    def dispatch(
        self, frame: memoryview, client_address: str, listener: str
    ) -> tuple[int, bool, list[ReadableBuffer] | PendingReply | None]:
        """(correlation id, flexible reply header, body). MalformedFrame means: close the connection."""
        key, version, correlation_id, client_id_length = _HEADER.unpack_from(frame)
        api = REGISTRY.get(key)
        if api is None:
            raise MalformedFrame(f"it asks for API {_api_name(key)}, which this broker does not have")
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
            at = 10 + client_id_length if client_id_length > 0 else 10
            flexible = version >= api.first_flexible
            if flexible:
                at = skip_tags(frame, at)
            if key == _PRODUCE:
                # What is asked of records may depend on where they come in.
                return correlation_id, flexible, handler(self._broker, version, frame, at, listener)
            return correlation_id, flexible, handler(self._broker, version, frame, at)
        return self._dispatch_decoded(api, version, correlation_id, frame, client_address, listener)

    def disconnected(self, client_address: str) -> None:
        """What is known of a client only while it is connected."""
        self._broker.telemetry.forget(client_address)

    def _dispatch_decoded(
        self,
        api: Api,
        version: int,
        correlation_id: int,
        frame: memoryview,
        client_address: str,
        listener: str,
    ) -> tuple[int, bool, list[ReadableBuffer] | PendingReply | None]:
        client_id, at = read_nullable_string(frame, 8)
        message = codec(api.key, version)
        if message.flexible:
            at = skip_tags(frame, at)
        context = RequestContext(version, correlation_id, client_id, client_address, listener)
        flexible = message.response_header_flexible
        handler = api.load()
        if len(frame) > DECODED_AT_ONCE_BYTES_MAX:
            # The buffer of the request is about to be reused.
            kept = memoryview(bytes(frame))
            return correlation_id, flexible, self._answer_large(api, message, context, kept, at)
        request = _decoded(api, message, context, frame, at)
        result = handler(self._broker, context, request)
        if not api.is_async:
            return correlation_id, flexible, [message.write(result)]
        return correlation_id, flexible, self._later(_written(message, result), api, context)

    def _answer_large(
        self, api: Api, message: Codec, context: RequestContext, frame: memoryview, at: int
    ) -> PendingReply:
        """Thousands of items are read and written in a thread, which takes turns with the event loop."""
        offload = self._broker.runtime.offload

        async def answer(frame: memoryview) -> list[ReadableBuffer]:
            request = await offload.run(_decoded, api, message, context, frame, at)
            # An answer may be long in coming: what was asked is kept once, not twice.
            del frame
            result = api.load()(self._broker, context, request)
            if api.is_async:
                result = await result
            return [await offload.run(message.write, result)]

        return self._later(answer(frame), api, context)

    def _later(
        self, answer: Coroutine[Any, Any, list[ReadableBuffer]], api: Api, context: RequestContext
    ) -> PendingReply:
        task = self._tasks.spawn(answer, f"{api.key.name} {context.client_address}")
        reply = PendingReply(task.cancel)

        def finished(done: asyncio.Task[Any]) -> None:
            if done.cancelled():
                return
            if (error := done.exception()) is not None:
                reply.fail(error)
            else:
                reply.complete(done.result())

        task.add_done_callback(finished)
        return reply


def _decoded(api: Api, message: Codec, context: RequestContext, frame: memoryview, at: int) -> Any:
    try:
        return message.read(frame, at)
    except (SerialError, ValueError, LookupError, struct.error) as error:
        raise MalformedFrame(
            f"its {api.key.name} version {context.version} cannot be decoded: {error}"
        ) from error


async def _written(message: Codec, result: Awaitable[Any]) -> list[ReadableBuffer]:
    return [message.write(await result)]


def _api_name(key: int) -> str:
    try:
        return f"{key} ({ApiKey(key).name})"
    except ValueError:
        return str(key)
