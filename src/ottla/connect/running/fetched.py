"""Records of a partition in Arrow's columns, as sinks take them: as columns with values, or as messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ottla.connect.columns import SinkColumns
from ottla.connect.running.environment import Converters


def columns_are_read(converters: Converters) -> bool:
    """Whether keys and values can be read as columns at all."""
    from ottla.records.arrow_arrays import binaries_of

    nothing = binaries_of([])
    return all(
        each.columns_from_bytes("", nothing) is not None for each in (converters.key, converters.value)
    )


def sink_columns(batch: Any, topic: str, partition: int, converters: Converters) -> SinkColumns | None:
    """None where one of them wants to be looked at by itself."""
    if batch.column("headers").null_count < batch.num_rows:
        return None
    try:
        key = converters.key.columns_from_bytes(topic, batch.column("key"))
        value = converters.value.columns_from_bytes(topic, batch.column("value"))
    except Exception:
        # Which record it is, and what becomes of it, is found out one by one.
        return None
    if key is None or value is None:
        return None
    return SinkColumns(topic, partition, key, value, batch.column("offset"), batch.column("timestamp"))


class Message:
    """With the methods of librdkafka's."""

    __slots__ = ("_headers", "_key", "_offset", "_partition", "_timestamp_ms", "_topic", "_value")

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]] | None,
    ) -> None:
        self._topic, self._partition, self._offset = topic, partition, offset
        self._timestamp_ms = timestamp_ms
        self._key, self._value, self._headers = key, value, headers

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        """Of a kind that nobody asks for."""
        return 0, self._timestamp_ms

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self._headers


class Messages:
    """Made when somebody looks at them."""

    def __init__(self, batch: Any, topic: str, partition: int) -> None:
        self._batch = batch
        self._topic = topic
        self._partition = partition

    def __iter__(self) -> Iterator[Message]:
        return iter(self.every())

    def every(self) -> Sequence[Message]:
        batch = self._batch
        times_ms = [each // 1000 for each in batch.column("timestamp").view("int64").to_pylist()]
        rows = zip(
            batch.column("offset").to_pylist(),
            times_ms,
            batch.column("key").to_pylist(),
            batch.column("value").to_pylist(),
            batch.column("headers").to_pylist(),
            strict=True,
        )
        return [
            Message(
                self._topic,
                self._partition,
                offset,
                time_ms,
                key,
                value,
                None if headers is None else [(each["key"], each["value"]) for each in headers],
            )
            for offset, time_ms, key, value, headers in rows
        ]
