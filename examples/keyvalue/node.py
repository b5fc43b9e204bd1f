"""A key-value store on several nodes, which agree because they read the same log.

A write is a record in the topic `keyvalue`; a node applies records in the order of the log and answers once
it has applied the one it wrote. Every node comes to the same state, so any of them can be asked, and one that
was away, or lost its disk, reads the log again.

Conditions are decided when a record is applied, by every node alike. So of two writes that both expect
version 7 one wins everywhere, whichever nodes they went through. For the same reason the topic is not
compacted: the last record of a key may be one that lost. And what is no command, since anybody may write to a
topic, changes nothing on any of them.

GET    /keys/K                    {"value": …, "version": 7}
PUT    /keys/K  {"value": …}      the same; with "version": 7 only if that is the version now, else 409
DELETE /keys/K
GET    /status                    how far this node is

    python node.py --port 7001        and, in another terminal: python node.py --port 7002
"""

from __future__ import annotations

import argparse
import asyncio
import json
import threading
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import uvicorn
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

TOPIC = "keyvalue"
POLL_S = 0.1
WRITE_S_MAX = 30.0


class Stored(NamedTuple):
    value: Any
    version: int


class State:
    """What applying the log gives. Knows nothing of topics or requests."""

    def __init__(self) -> None:
        self.entries: dict[str, Stored] = {}
        self.next_offset = 0

    def apply(self, key: str, command: dict[str, Any] | None, offset: int) -> bool:
        """Whether the command took effect. None deletes."""
        self.next_offset = offset + 1
        if command is None:
            self.entries.pop(key, None)
            return True
        expected = command.get("version")
        known = self.entries.get(key)
        if expected is not None and expected != (known.version if known else 0):
            return False
        # From 1 on: 0 is the version of what is not there.
        self.entries[key] = Stored(command["value"], offset + 1)
        return True


class Node:
    def __init__(self, bootstrap_servers: str) -> None:
        self.state = State()
        self.is_caught_up = threading.Event()
        self._servers = bootstrap_servers
        self._name = uuid.uuid4().hex
        self._waiting: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Future[bool]]] = {}
        self._is_closing = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_closing.set()
        self._thread.join()
        self._producer.flush(WRITE_S_MAX)

    async def write(self, key: str, command: dict[str, Any] | None) -> bool:
        """Whether it took effect. Returns when this node has applied it, and everything before it."""
        loop = asyncio.get_running_loop()
        ticket = f"{self._name}:{uuid.uuid4().hex}"
        applied: asyncio.Future[bool] = loop.create_future()
        self._waiting[ticket] = (loop, applied)
        value = None if command is None else json.dumps(command)
        try:
            self._producer.produce(TOPIC, value, key, headers={"ticket": ticket})
            self._producer.poll(0)
            async with asyncio.timeout(WRITE_S_MAX):
                return await applied
        except TimeoutError:
            raise HTTPException(503, "not known to be written: read it before you write it again") from None
        finally:
            self._waiting.pop(ticket, None)

    # The log, in a thread of its own.

    def _follow(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": f"keyvalue-{self._name}",  # required by the client; nothing is committed to it
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 50,
            }
        )
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        try:
            while not self._is_closing.is_set():
                self._producer.poll(0)
                message = consumer.poll(POLL_S)
                if message is None:
                    continue
                if (error := message.error()) is None:
                    self._apply(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    self.is_caught_up.set()
        finally:
            consumer.close()

    def _apply(self, message: Message) -> None:
        try:
            key, command = parse(message)
        except ValueError as error:
            print(f"no command at offset {message.offset()}: {error}", flush=True)
            return
        took_effect = self.state.apply(key, command, message.offset())
        ticket = dict(message.headers() or ()).get("ticket", b"").decode()
        if (waiting := self._waiting.get(ticket)) is not None:
            loop, applied = waiting
            loop.call_soon_threadsafe(_settle, applied, took_effect)


def parse(message: Message) -> tuple[str, dict[str, Any] | None]:
    """The key, and what becomes of it; None deletes."""
    if message.key() is None:
        raise ValueError("it has no key")
    key = message.key().decode()
    if message.value() is None:
        return key, None
    command = json.loads(message.value())
    if not isinstance(command, dict) or "value" not in command:
        raise ValueError(f"{command!r} has no value")
    return key, command


def _settle(applied: asyncio.Future[bool], took_effect: bool) -> None:
    if not applied.done():
        applied.set_result(took_effect)


def app(bootstrap_servers: str) -> Starlette:
    @asynccontextmanager
    async def life(service: Starlette) -> AsyncIterator[None]:
        create_topic(bootstrap_servers)
        service.state.node = Node(bootstrap_servers)
        # Answering sooner would be answering from the past.
        await asyncio.to_thread(service.state.node.is_caught_up.wait)
        yield
        service.state.node.close()

    def shown(request: Request) -> JSONResponse:
        key = request.path_params["key"]
        stored = request.app.state.node.state.entries.get(key)
        if stored is None:
            raise HTTPException(404, f"there is no {key}")
        return JSONResponse(stored._asdict())

    async def get(request: Request) -> JSONResponse:
        return shown(request)

    async def put(request: Request) -> JSONResponse:
        try:
            command = await request.json()
            value, version = command["value"], command.get("version")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise HTTPException(400, 'give {"value": …}, and a "version" if it must be that one') from None
        if version is not None and type(version) is not int:
            raise HTTPException(400, f"version is {version!r}; give the number that GET told")
        key = request.path_params["key"]
        if not await request.app.state.node.write(key, {"value": value, "version": version}):
            raise HTTPException(409, f"{key} is not at version {version} any more: read it again")
        return shown(request)

    async def delete(request: Request) -> JSONResponse:
        await request.app.state.node.write(request.path_params["key"], None)
        return JSONResponse({})

    async def status(request: Request) -> JSONResponse:
        state = request.app.state.node.state
        return JSONResponse({"keys": len(state.entries), "next_offset": state.next_offset})

    async def refused(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        return JSONResponse({"error": error.detail}, status_code=error.status_code)

    return Starlette(
        routes=[
            Route("/keys/{key}", get),
            Route("/keys/{key}", put, methods=["PUT"]),
            Route("/keys/{key}", delete, methods=["DELETE"]),
            Route("/status", status),
        ],
        exception_handlers={HTTPException: refused},
        lifespan=life,
    )


def create_topic(bootstrap_servers: str) -> None:
    # One partition: an order that holds for all keys.
    topic = NewTopic(TOPIC, 1, config={"retention.ms": "-1"})
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    created = admin.create_topics([topic])[TOPIC]
    try:
        created.result(30)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bootstrap-server", default="localhost:9092")
    parser.add_argument("--port", type=int, default=7001)
    given = parser.parse_args()
    uvicorn.run(app(given.bootstrap_server), host="127.0.0.1", port=given.port, log_level="warning")


if __name__ == "__main__":
    main()
