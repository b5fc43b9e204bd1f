"""What brokers have promised their clients, and what excuses it from keeping it.

Whatever was acknowledged must be there at the end, at the offset it was given, unless
- its topic was asked to be deleted;
- it lies below an offset that records were asked to be deleted up to, or is older than the shortest retention
  that was ever asked for, or its topic had a limit of bytes;
- its topic was ever compacted and a later record has its key;
- power was cut before it was flushed: with `flush.messages=1` that is before it was acknowledged, otherwise
  before the broker was next stopped in good order;
- the medium has damaged the segment it is in, or one before it.

Topics, partitions and settings are flushed before they are acknowledged: no power cut excuses them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from ottla.records.records import Record
from ottla.sim.checkers import InvariantViolation

FOREVER_MS = 1 << 62


@dataclass(slots=True)
class Promised:
    """An acknowledged record."""

    offset: int
    value: bytes
    key: bytes
    sent_ms: int
    at_risk: bool = False
    """Power was cut when it may not have been on the medium."""


@dataclass(slots=True)
class PartitionPromises:
    records: list[Promised] = field(default_factory=list)
    flushed: int = 0
    """So many of them are on the medium for certain."""
    deleted_below: int = 0
    rotten_from: int | None = None


@dataclass(slots=True)
class TopicPromises:
    """One topic from its creation to its deletion; a namesake made later is another one."""

    name: str
    topic_id: UUID
    partition_count: int
    flushes_each: bool = False
    """Every acknowledgement waits for the medium."""
    retention_ms: int = FOREVER_MS
    has_size_limit: bool = False
    was_compacted: bool = False
    may_be_gone: bool = False
    is_gone: bool = False
    settings: dict[str, set[str | None]] = field(default_factory=dict)
    """What each may be: what it was created with, and whatever was asked for since."""
    partitions: dict[int, PartitionPromises] = field(default_factory=dict)
    committed: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    """By group and partition: the offset acknowledged last, and those asked for since without an answer."""

    def partition(self, index: int) -> PartitionPromises:
        return self.partitions.setdefault(index, PartitionPromises())

    def delete_below(self, partition: int, offset: int) -> None:
        promises = self.partition(partition)
        promises.deleted_below = max(promises.deleted_below, offset)

    def ask_for(self, settings: Mapping[str, str | None]) -> None:
        """Whether they come into force or not, from now on they may."""
        for name, value in settings.items():
            self.settings.setdefault(name, {None}).add(value)
            match name:
                case "retention.ms" if value is not None:
                    self.retention_ms = min(self.retention_ms, int(value))
                case "retention.bytes":
                    self.has_size_limit = True
                case "cleanup.policy" if value is not None and "compact" in value:
                    self.was_compacted = True
                case "flush.messages":
                    self.flushes_each = False


@dataclass(slots=True)
class Effect:
    """What a request that names a topic may do to whoever has the name when it is carried out."""

    apply: Callable[[TopicPromises], None]
    ended_s: float = math.inf


class Promises:
    def __init__(self) -> None:
        self.topics: dict[str, TopicPromises] = {}
        """The newest of each name."""
        self.retention_ms = FOREVER_MS
        """The shortest ever asked for as the broker's default."""
        self.offsets_excused = False
        """Committed offsets may be lost: their log was damaged or deleted."""
        self.flushes_offsets = False
        """Committed offsets are on the medium before they are acknowledged."""
        self.power_cuts = 0
        self._sent: dict[bytes, tuple[str, int]] = {}
        self._offsets: dict[tuple[UUID, int, bytes], int] = {}
        self._deleted: dict[UUID, str] = {}
        self._effects: dict[str, list[Effect]] = {}

    # Topics.

    def created(self, topic: TopicPromises, asked_s: float) -> None:
        """Its creation was asked for at this time. Requests that were under way since may have met it."""
        self.topics[topic.name] = topic
        for effect in self._effects.get(topic.name, ()):
            if effect.ended_s >= asked_s:
                effect.apply(topic)

    def asking(self, name: str, apply: Callable[[TopicPromises], None]) -> Effect:
        """About to be sent. Who gets an answer sets `ended_s`; without one it may be carried out for ever."""
        effect = Effect(apply)
        self._effects.setdefault(name, []).append(effect)
        if name in self.topics:
            apply(self.topics[name])
        return effect

    def deleted(self, topic: TopicPromises) -> None:
        topic.is_gone = True
        self._deleted[topic.topic_id] = topic.name

    # Records.

    def sending(self, topic: TopicPromises, partition: int, values: Iterable[bytes]) -> None:
        for value in values:
            self._sent[value] = (topic.name, partition)

    def acknowledged(
        self,
        topic: TopicPromises,
        partition: int,
        offset: int,
        records: Iterable[tuple[bytes, bytes]],
        sent_ms: int,
        power_cuts: int,
    ) -> None:
        """Records as (key, value), the first at `offset`. `power_cuts`: so many had been when they were sent;
        an answer may arrive after the power of its sender was cut."""
        promises = topic.partition(partition)
        at_risk = power_cuts != self.power_cuts and not topic.flushes_each
        for at, (key, value) in enumerate(records, offset):
            promises.records.append(Promised(at, value, key, sent_ms, at_risk))

    def seen(self, topic: str, topic_id: UUID, partition: int, record: Record) -> None:
        """What a client reads was sent there, and never moves."""
        value = record.value or b""
        if self._sent.get(value) != (topic, partition):
            raise InvariantViolation(
                "CorruptRead",
                f"{topic}-{partition} gave {value!r} at offset {record.offset}: never sent there",
            )
        first = self._offsets.setdefault((topic_id, partition, value), record.offset)
        if first != record.offset:
            raise InvariantViolation(
                "CorruptRead", f"{topic}-{partition} has {value!r} at offsets {first} and {record.offset}"
            )

    # Faults.

    def stopped(self) -> None:
        """In good order: whatever was acknowledged is on the medium."""
        for promises in self._partitions():
            promises.flushed = len(promises.records)

    def power_was_cut(self) -> None:
        self.power_cuts += 1
        for topic in self.topics.values():
            for promises in () if topic.flushes_each else topic.partitions.values():
                for record in promises.records[promises.flushed :]:
                    record.at_risk = True
        # Values whose record is lost may be read at no offset, and unacknowledged ones were read before.
        self._offsets.clear()
        if not self.flushes_offsets:
            for topic in self.topics.values():
                topic.committed.clear()

    def _partitions(self) -> Iterable[PartitionPromises]:
        return (promises for topic in self.topics.values() for promises in topic.partitions.values())

    # The end.

    def check_topics(self, found: Mapping[str, tuple[UUID, int]]) -> None:
        """`found`: id and number of partitions of every topic there is."""
        for name, (topic_id, count) in found.items():
            if topic_id in self._deleted:
                raise InvariantViolation(
                    "ForgottenMetadataChange", f"{name} is there again though its deletion was acknowledged"
                )
            topic = self.topics.get(name)
            if topic is not None and topic.topic_id == topic_id and count < topic.partition_count:
                raise InvariantViolation(
                    "ForgottenMetadataChange",
                    f"{name} has {count} partitions, {topic.partition_count} were acknowledged",
                )
        for name, topic in self.topics.items():
            if not topic.may_be_gone and found.get(name, (None, 0))[0] != topic.topic_id:
                raise InvariantViolation(
                    "ForgottenMetadataChange",
                    f"topic {name} is gone, its creation was acknowledged and nobody deleted it",
                )

    def check_settings(self, topic: TopicPromises, found: Mapping[str, str | None]) -> None:
        """`found`: the topic's own settings, without what it inherits."""
        for name, allowed in topic.settings.items():
            if found.get(name) not in allowed:
                raise InvariantViolation(
                    "ForgottenMetadataChange",
                    f"{topic.name} has {name}={found.get(name)}, "
                    f"acknowledged was one of {sorted(map(str, allowed))}",
                )

    def check_records(
        self, topic: TopicPromises, partition: int, found: Mapping[int, Record], now_ms: int
    ) -> None:
        """`found`: everything there is, by offset."""
        promises = topic.partition(partition)
        last_of_key = {record.key or b"": offset for offset, record in sorted(found.items())}
        superseded: set[bytes] = set()
        """Keys that had a later record: there, or excused."""
        retention_ms = min(topic.retention_ms, self.retention_ms)
        for promised in sorted(promises.records, key=lambda record: -record.offset):
            stored = found.get(promised.offset)
            if stored is not None and stored.value == promised.value:
                superseded.add(promised.key)
                continue
            if (
                promised.at_risk
                or topic.has_size_limit
                or promised.offset < promises.deleted_below
                or now_ms - promised.sent_ms > retention_ms
                or (promises.rotten_from is not None and promised.offset >= promises.rotten_from)
            ):
                superseded.add(promised.key)
                continue
            is_newer = last_of_key.get(promised.key, -1) > promised.offset
            # Compaction drops records without a key.
            if topic.was_compacted and (not promised.key or is_newer or promised.key in superseded):
                continue
            raise InvariantViolation(
                "LostAcknowledgedWrite",
                f"{promised.value!r} was acknowledged at offset {promised.offset} of "
                f"{topic.name}-{partition}, where there is {stored.value if stored else None!r} now",
            )

    def check_committed(self, topic: TopicPromises, group: str, found: Mapping[int, int]) -> None:
        for (of_group, partition), allowed in topic.committed.items():
            if of_group == group and found.get(partition, -1) not in allowed:
                raise InvariantViolation(
                    "LostCommittedOffset",
                    f"group {group} has offset {found.get(partition, -1)} of {topic.name}-{partition}, "
                    f"acknowledged was one of {sorted(allowed)}",
                )
