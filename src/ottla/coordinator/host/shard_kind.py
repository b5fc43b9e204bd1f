"""What a shard has to be so that a broker can host it, and what the host has to know of its kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from ottla.coordinator.host.journal import Instant, Outcome, Ticket
from ottla.coordinator.host.shard_log import ShardLog
from ottla.records.batch import NO_PRODUCER_ID


class UnknownRecord(Exception):
    """A record type or version this release does not know; loading skips it, as Apache Kafka does."""


class Shard(Protocol):
    def replay(self, key: Any, value: Any, producer_id: int = NO_PRODUCER_ID) -> None:
        """One record of the log, in order; with a producer id if it is part of a transaction."""
        ...

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """The end of a producer's transaction, out of the log or just appended to it."""
        ...

    def next_deadline_ms(self) -> int | None:
        """On the monotonic clock; `tick` before it does nothing."""
        ...

    def tick(self, now: Instant) -> Outcome: ...


S = TypeVar("S", bound=Shard)
Command: TypeAlias = Callable[[S, Ticket, Instant], Outcome]


def _no_effects(partition: int, effect: Any) -> None:
    raise AssertionError(f"partition {partition}: nobody acts on {effect}")


@dataclass(frozen=True, slots=True)
class ShardKind(Generic[S]):
    topic: str
    noun: str
    """Of what is kept here, for messages: groups."""
    remedy: str
    """What somebody can do who has lost some of it."""
    log: ShardLog
    new: Callable[[], S]
    loaded: Callable[[S, Instant], Outcome]
    """All records are in: what the shard does first."""
    encode: Callable[[Any, Any], tuple[bytes, bytes | None]]
    decode: Callable[[bytes | None, bytes | None], tuple[Any, Any]]
    """Raises UnknownRecord for what a newer release wrote."""
    codec: int = 0
    act: Callable[[int, Any], None] = _no_effects
    """Carries out an effect of that partition's shard."""
