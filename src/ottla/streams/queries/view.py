"""A table as a key-value view: its topic read from the beginning and followed from then on.

The view is read_committed, so it shows what the application has committed, never what it may still abort. It
holds the whole table in memory of the asking process; every process that asks has its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple

from ottla.streams.errors import StoreError
from ottla.streams.queries.entries import SortedEntries, Stored
from ottla.streams.serdes import Serde, Serdes

_POLL_S = 0.1
_POLL_RECORDS_MAX = 10_000
_METADATA_TIMEOUT_S = 10.0
_CATCH_UP_TIMEOUT_S = 60.0


class Entry(NamedTuple):
    key: Any
    value: Any
    timestamp_ms: int


class TableView:
    """`with TableView("localhost:9092", "counts", key=str, value=int) as counts: counts.get("kafka")`"""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        key: Serde | type,
        value: Serde | type,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.topic = topic
        self.key_serde, self.value_serde = Serdes.of(key), Serdes.of(value)
        self._settings = {
            # Unless asked for: the client would tell of it on the terminal.
            "enable.metrics.push": False,
            **(properties or {}),
            "bootstrap.servers": bootstrap_servers,
            # Required by the client; nothing is ever committed to it.
            "group.id": f"ottla-view-{topic}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
        }
        self._entries = SortedEntries()
        # Entries change in the reader's thread and are read in the caller's.
        self._lock = threading.Lock()
        self._unread: set[int] = set()
        self._is_caught_up = threading.Event()
        self._is_closing = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._follow, name=f"view-{topic}", daemon=True)
        self._thread.start()

    def __enter__(self) -> TableView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._is_closing.set()
        self._thread.join()

    # --- asking

    def get(self, key: Any) -> Any:
        """The value of a key, or `None`."""
        entry = self.entry(key)
        return None if entry is None else entry.value

    def entry(self, key: Any) -> Entry | None:
        data = self.key_serde.serialize(key) or b""
        self.wait_caught_up()
        with self._lock:
            stored = self._entries.get(data)
        return None if stored is None else self._read(data, stored)

    def range(self, low: Any = None, high: Any = None) -> Iterator[Entry]:
        """From `low` to `high`, both included, in the order of the keys' bytes; `None` is no bound."""
        first, last = self.key_serde.serialize(low), self.key_serde.serialize(high)
        self.wait_caught_up()
        with self._lock:
            found = list(self._entries.range(first, last))
        return (self._read(data, stored) for data, stored in found)

    def prefix(self, prefix: str | bytes) -> Iterator[Entry]:
        """All entries whose key, as bytes, begins with `prefix`."""
        begin = prefix.encode() if isinstance(prefix, str) else prefix
        self.wait_caught_up()
        with self._lock:
            found = list(self._entries.prefix(begin))
        return (self._read(data, stored) for data, stored in found)

    def all(self) -> Iterator[Entry]:
        return self.range()

    def __len__(self) -> int:
        self.wait_caught_up()
        with self._lock:
            return len(self._entries)

    def _read(self, key: bytes, stored: Stored) -> Entry:
        value = self.value_serde.deserialize(stored.value)
        return Entry(self.key_serde.deserialize(key), value, stored.timestamp_ms)

    def wait_caught_up(self, timeout_s: float = _CATCH_UP_TIMEOUT_S) -> None:
        """Until everything is in that the topic held when the view was opened."""
        if not self._is_caught_up.wait(timeout_s):
            raise StoreError(
                f"the view of {self.topic} has not read its topic within {timeout_s:g} s; try again later"
            )
        if self._failure is not None:
            raise StoreError(f"the view of {self.topic} cannot be read: {self._failure}") from self._failure

    # --- following the topic, in a thread of its own

    def _follow(self) -> None:
        try:
            from confluent_kafka import Consumer
        except ImportError:
            self._fail(StoreError("confluent-kafka is missing: pip install 'ottla[streams]'"))
            return
        consumer = Consumer(self._settings)
        try:
            self._assign(consumer)
            while not self._is_closing.is_set():
                self._take(consumer.consume(_POLL_RECORDS_MAX, timeout=_POLL_S))
        except Exception as error:
            self._fail(error)
        finally:
            consumer.close()

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._is_caught_up.set()

    def _assign(self, consumer: Any) -> None:
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition

        partitions = self._partitions(consumer)
        self._unread = set(partitions)
        consumer.assign([TopicPartition(self.topic, index, OFFSET_BEGINNING) for index in partitions])

    def _partitions(self, consumer: Any) -> list[int]:
        """The topic may not be there yet: the application that fills it creates it."""
        deadline = time.monotonic() + _METADATA_TIMEOUT_S
        while True:
            topic = consumer.list_topics(self.topic, timeout=_METADATA_TIMEOUT_S).topics[self.topic]
            if topic.error is None and topic.partitions:
                return sorted(topic.partitions)
            if self._is_closing.wait(_POLL_S) or time.monotonic() > deadline:
                raise StoreError(f"the topic {self.topic} does not exist; has the application run already?")

    def _take(self, messages: list[Any]) -> None:
        from confluent_kafka import KafkaError

        with self._lock:
            for message in messages:
                error = message.error()
                if error is None:
                    _, timestamp_ms = message.timestamp()
                    self._entries.apply(
                        message.key() or b"", message.value(), timestamp_ms, message.partition()
                    )
                elif error.code() == KafkaError._PARTITION_EOF:
                    self._unread.discard(message.partition())
                    if not self._unread:
                        self._is_caught_up.set()
                elif error.fatal() or not error.retriable():
                    raise StoreError(f"{self.topic}-{message.partition()}: {error.str()}")
