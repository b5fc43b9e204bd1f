"""Compacted topics that a worker follows: what it appends it reads back, as do all other workers.

One consumer in a thread reads all of them; what it reads is applied on the event loop, in order.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from ottla.client.admin.topics import NewTopic, create_topics
from ottla.client.cluster import LATEST, ClusterClient
from ottla.connect.clients import consumer_of, producer_of
from ottla.connect.errors import ConnectError, RetriableError
from ottla.connect.state.entries import Entry

Apply = Callable[[Entry], None]

_POLL_S: Final = 0.1
_POLL_RECORDS_MAX: Final = 1000
_READ_TIMEOUT_S: Final = 60.0
_WRITE_TIMEOUT_S: Final = 60.0
_TOLD_S: Final = 1.0
"""What was written is known to be at once."""
_log = logging.getLogger(__name__)


class StateLog(Protocol):
    """Where state is kept: in topics, or in this process alone."""

    async def append(self, topic: str, entries: Sequence[Entry]) -> None:
        """Written when it returns, and applied. RetriableError where it may yet be written, ConnectError
        where it cannot be."""

    async def read_to_end(self) -> None:
        """All that anybody had written is applied."""


class TopicLog:
    def __init__(
        self, cluster: ClusterClient, client: Mapping[str, str], topics: Mapping[str, Apply]
    ) -> None:
        self._cluster = cluster
        self._client = dict(client)
        self._apply = dict(topics)
        self._positions: dict[tuple[str, int], int] = {}
        self._moved = asyncio.Condition()
        self._loop = asyncio.get_running_loop()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._producer: Any = None
        self._failure: Exception | None = None

    async def start(self, wanted: Sequence[NewTopic]) -> None:
        """Creates what is missing, and reads all there is. Raises ConnectError for topics that will
        not do."""
        present = await self._cluster.topics(self._apply)
        await create_topics(self._cluster, [topic for topic in wanted if topic.name not in present])
        for topic in wanted:
            while topic.name not in present or not present[topic.name].partitions:
                await asyncio.sleep(_POLL_S)
                present = await self._cluster.topics(self._apply)
            count = len(present[topic.name].partitions)
            if topic.partitions == 1 and count != 1:
                raise ConnectError(
                    f"the topic {topic.name} has {count} partitions and may have one only, since the "
                    "order of its "
                    "records matters: name another in config.storage.topic"
                )
            for number in present[topic.name].partitions:
                self._positions[topic.name, number] = 0
        self._producer = producer_of(self._client, {"linger.ms": "0"})
        self._thread = threading.Thread(target=self._follow, name="connect-state", daemon=True)
        self._thread.start()
        await self.read_to_end()

    def partition_count(self, topic: str) -> int:
        return sum(name == topic for name, _ in self._positions)

    async def append(self, topic: str, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        done = [self._produced(topic, each) for each in entries]
        await asyncio.to_thread(self._producer.flush, _WRITE_TIMEOUT_S)
        try:
            async with asyncio.timeout(_TOLD_S):
                places = await asyncio.gather(*done)
        except TimeoutError:
            raise RetriableError(
                f"the worker's topic {topic} could not be written to within {_WRITE_TIMEOUT_S:g} s: are its "
                "brokers there?"
            ) from None
        await self._wait_for({(topic, partition): offset + 1 for partition, offset in places})

    def _produced(self, topic: str, entry: Entry) -> asyncio.Future[tuple[int, int]]:
        from confluent_kafka import KafkaException

        future: asyncio.Future[tuple[int, int]] = self._loop.create_future()
        try:
            self._producer.produce(
                topic, key=entry.key, value=entry.value, on_delivery=self._delivered(future)
            )
        except BufferError:
            _fail(future, RetriableError(f"too much waits to be written to the worker's topic {topic}"))
        except KafkaException as error:
            _fail(future, ConnectError(f"the worker's topic {topic} does not take it: {error.args[0].str()}"))
        return future

    async def read_to_end(self) -> None:
        ends = await self._cluster.list_offsets(dict.fromkeys(self._positions, LATEST), read_committed=True)
        await self._wait_for({place: end.offset for place, end in ends.items()})

    async def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
        if self._producer is not None:
            await asyncio.to_thread(self._producer.flush, _POLL_S * 10)
            self._producer = None

    async def _wait_for(self, wanted: Mapping[tuple[str, int], int]) -> None:
        def is_there() -> bool:
            if self._failure is not None:
                raise ConnectError(f"the worker's topics cannot be read: {self._failure}")
            return all(self._positions[place] >= offset for place, offset in wanted.items())

        try:
            async with asyncio.timeout(_READ_TIMEOUT_S), self._moved:
                await self._moved.wait_for(is_there)
        except TimeoutError:
            raise ConnectError(
                f"the worker's topics could not be read to their end within {_READ_TIMEOUT_S:g} s"
            ) from None

    def _delivered(self, future: asyncio.Future[tuple[int, int]]) -> Callable[[Any, Any], None]:
        from confluent_kafka import KafkaError

        def report(error: Any, message: Any) -> None:
            if error is not None:
                is_late = error.code() == KafkaError._MSG_TIMED_OUT or error.retriable()
                kind = RetriableError if is_late else ConnectError
                failure = kind(f"the worker's state could not be written: {error.str()}")
                self._loop.call_soon_threadsafe(_fail, future, failure)
            else:
                self._loop.call_soon_threadsafe(_succeed, future, (message.partition(), message.offset()))

        return report

    # In the thread

    def _follow(self) -> None:
        from confluent_kafka import KafkaError, TopicPartition

        wanted = {
            # Required by the client; nothing is ever committed to it.
            "group.id": "ottla-connect-state",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
        consumer = consumer_of(self._client, wanted)
        try:
            consumer.assign([TopicPartition(topic, number, 0) for topic, number in self._positions])
            while not self._stopping.is_set():
                batch: list[tuple[tuple[str, int], int, Entry | None]] = []
                messages: list[Any] = consumer.consume(_POLL_RECORDS_MAX, timeout=_POLL_S)
                for message in messages:
                    place = message.topic(), message.partition()
                    error = message.error()
                    if error is None:
                        entry = Entry(message.key() or b"", message.value())
                        batch.append((place, message.offset() + 1, entry))
                    elif error.code() == KafkaError._PARTITION_EOF:
                        batch.append((place, message.offset(), None))
                    elif error.fatal():
                        raise ConnectError(error.str())
                    else:
                        _log.warning("the worker's topics: %s; trying again", error.str())
                if batch:
                    asyncio.run_coroutine_threadsafe(self._take(batch), self._loop)
        except Exception as error:
            self._failure = error
            _log.exception("the worker's topics cannot be read")
        finally:
            consumer.close()

    async def _take(self, batch: Sequence[tuple[tuple[str, int], int, Entry | None]]) -> None:
        async with self._moved:
            for place, position, entry in batch:
                if entry is not None:
                    try:
                        self._apply[place[0]](entry)
                    except Exception:
                        # One record that nobody can read must not hide those behind it.
                        _log.exception("a record of %s before offset %d is left out", place[0], position)
                self._positions[place] = max(self._positions[place], position)
            self._moved.notify_all()


def _succeed(future: asyncio.Future[tuple[int, int]], place: tuple[int, int]) -> None:
    if not future.done():
        future.set_result(place)


def _fail(future: asyncio.Future[tuple[int, int]], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


class LocalLog:
    """For a worker that stands alone: state in memory, and one topic's in a file, if one is named."""

    def __init__(self, topics: Mapping[str, Apply], kept: Mapping[str, str]) -> None:
        self._apply = dict(topics)
        self._files = {topic: LocalFile(path) for topic, path in kept.items()}

    async def start(self) -> None:
        for topic, file in self._files.items():
            for entry in file.read():
                self._apply[topic](entry)

    async def append(self, topic: str, entries: Sequence[Entry]) -> None:
        file = self._files.get(topic)
        if file is not None:
            file.write(entries)
        for entry in entries:
            self._apply[topic](entry)

    async def read_to_end(self) -> None:
        return

    async def stop(self) -> None:
        return


class LocalFile:
    """The latest value of each key, as a JSON object; written anew as a whole, and renamed into place."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._latest: dict[str, str] = {}

    def read(self) -> list[Entry]:
        import json

        try:
            with open(self._path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return []
        if data.startswith(b"\xac\xed"):
            raise ConnectError(
                f"{self._path} was written by a Java worker, in a format of Java's own: name another file in "
                "offset.storage.file.filename, and set the offsets over REST"
            )
        try:
            self._latest = dict(json.loads(data or b"{}"))
        except ValueError as error:
            raise ConnectError(f"{self._path} does not hold the offsets of a worker: {error}") from None
        return [Entry(key.encode(), value.encode()) for key, value in self._latest.items()]

    def write(self, entries: Sequence[Entry]) -> None:
        import json
        import os

        latest = dict(self._latest)
        for entry in entries:
            if entry.value is None:
                latest.pop(entry.key.decode(), None)
            else:
                latest[entry.key.decode()] = entry.value.decode()
        fresh = f"{self._path}.{os.getpid()}"
        try:
            with open(fresh, "w") as file:
                json.dump(latest, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, self._path)
        except OSError as error:
            with suppress(OSError):
                os.unlink(fresh)
            raise ConnectError(
                f"{self._path} cannot be written: {error}; free some space and restart the task. What is not "
                "written down yet comes again"
            ) from error
        self._latest = latest
