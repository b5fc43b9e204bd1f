"""What every driver can do: produce messages, read a partition from an offset, ask for offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

# Above the largest record of the tests, with room for keys, headers and the batch around it.
REQUEST_BYTES_MAX = 16 * 1024 * 1024
ANSWER_TIMEOUT_S = 20.0

Headers = tuple[tuple[str, bytes | None], ...]


class Where(Enum):
    BEGINNING = -2
    END = -1


@dataclass(frozen=True, slots=True)
class Message:
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Received:
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


class TooFewRecords(AssertionError):
    """A reader did not get what it waited for."""


class Unavailable(Exception):
    """The client cannot run on this machine; the text says what is missing."""


class KafkaClient(Protocol):
    name: str
    codecs: tuple[str, ...]
    """Compression this client can both write and read here."""
    sets_timestamps: bool
    sends_null_headers: bool
    repeats_headers: bool
    sends_tombstones: bool

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        acks: str = "all",
        compression: str = "none",
        idempotent: bool = False,
    ) -> None:
        """All of them, in order, acknowledged (or at least sent, with acks 0). Keys are placed by murmur2."""
        ...

    def read(self, topic: str, *, offset: int, count: int, partition: int = 0) -> list[Received]:
        """The first `count` records at or after `offset`, without a group."""
        ...

    def offset_at(self, topic: str, where: Where | int, *, partition: int = 0) -> int:
        """The first offset, the next one, or that of the first record not older than a timestamp in ms."""
        ...

    def close(self) -> None: ...
