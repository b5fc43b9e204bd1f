"""Drives a group shard through transactions: its log also has transactional batches and their markers."""

from __future__ import annotations

from typing import Any, NamedTuple

from group_driver import Driver, FakeTopics

from ottla.coordinator.groups.commands import FetchOffsetsRequest, TopicFetch
from ottla.coordinator.groups.records import decode
from ottla.coordinator.groups.settings import GroupSettings
from ottla.coordinator.groups.shard import GroupShard
from ottla.coordinator.host.journal import Outcome
from ottla.records.batch import NO_PRODUCER_ID
from ottla.records.producer import ProducerIdentity
from ottla.wire.errors import ErrorCode

TXN_OFFSET_COMMIT_VERSION = 5


class Entry(NamedTuple):
    """A record, or the end of a producer's transaction."""

    producer_id: int
    key: bytes | None = None
    value: bytes | None = None
    committed: bool | None = None


class TransactionDriver(Driver):
    def __init__(
        self,
        settings: GroupSettings | None = None,
        view: FakeTopics | None = None,
        shard_type: type[GroupShard] = GroupShard,
    ) -> None:
        self.entries: list[Entry] = []
        self._producer_id = NO_PRODUCER_ID
        super().__init__(settings, view, shard_type)

    def _load(self) -> GroupShard:
        shard = self.shard_type(self.settings, self.topics, self._new_id)
        for entry in self.entries:
            if entry.committed is None:
                shard.replay(*decode(entry.key, entry.value), entry.producer_id)
            else:
                shard.replay_marker(entry.producer_id, committed=entry.committed)
        self.shard = shard
        self.take(shard.loaded(self.topics, self.instant))
        return shard

    def take(self, outcome: Outcome) -> None:
        count = len(self.log)
        super().take(outcome)
        self.entries += [Entry(self._producer_id, key, value) for key, value in self.log[count:]]

    def compact(self) -> None:
        """Nothing stays of what was aborted; what was committed is as if there had been no transaction."""
        settled: list[Entry | None] = []
        open_at: dict[int, list[int]] = {}
        for entry in self.entries:
            if entry.committed is None:
                if entry.producer_id != NO_PRODUCER_ID:
                    open_at.setdefault(entry.producer_id, []).append(len(settled))
                settled.append(entry)
                continue
            for index in open_at.pop(entry.producer_id, []):
                record = settled[index]
                assert record is not None
                settled[index] = record._replace(producer_id=NO_PRODUCER_ID) if entry.committed else None
        assert not open_at, "an open transaction is not compacted"
        last = {entry.key: entry for entry in settled if entry is not None}
        self.entries = [
            entry
            for entry in settled
            if entry is not None and last[entry.key] is entry and entry.value is not None
        ]

    def commit_in(
        self,
        producer_id: int,
        group: str,
        offset: int,
        partition: int = 0,
        topic: str = "orders",
        **fields: Any,
    ) -> ErrorCode:
        """As part of the producer's transaction."""
        self._producer_id = producer_id
        try:
            return self.commit(
                group,
                offset,
                partition,
                topic,
                producer=ProducerIdentity(producer_id, 0),
                version=TXN_OFFSET_COMMIT_VERSION,
                **fields,
            )
        finally:
            self._producer_id = NO_PRODUCER_ID

    def end(self, producer_id: int, *, committed: bool) -> None:
        self.entries.append(Entry(producer_id, committed=committed))
        self.shard.replay_marker(producer_id, committed=committed)

    def fetch_stable(self, group: str, partition: int = 0, topic: str = "orders") -> int | ErrorCode | None:
        known = self.topics.topics.get(topic)
        wanted = TopicFetch(topic, known.id if known else None, [partition])
        (found,) = self.call("fetch_offsets", FetchOffsetsRequest(group, [wanted], requires_stable=True))
        if partition in found.unstable:
            return ErrorCode.unstable_offset_commit
        value = found.partitions[0][1]
        return None if value is None else value.offset
