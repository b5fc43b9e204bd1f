"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers on a partition whose log is a list."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any
from uuid import UUID

import pytest
from cluster_images import broker_with, context, image_of
from kio.schema.delete_records.v2.request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest
from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.offset_for_leader_epoch.v4.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from ottla.config import LogConfig
from ottla.handlers.context import Broker
from ottla.handlers.delete_records import delete_records
from ottla.handlers.leader_epochs import offset_for_leader_epoch
from ottla.handlers.list_offsets import list_offsets
from ottla.handlers.producers import describe_producers
from ottla.log.epochs import LeaderEpochs
from ottla.log.producers import ProducerBatch, ProducerStates
from ottla.log.types import TimestampOffset, TopicPartition
from ottla.replication.partition import Partition
from ottla.wire.errors import ErrorCode, UnknownTopicOrPartition

LEADER_EPOCH = 5
TRANSACTIONAL = 0x10


class ListLog:
    """Ten records from offset 10 on, timestamps of 100 times the offset; epoch 2, from offset 15 on 5."""

    def __init__(self, name: TopicPartition, config: LogConfig) -> None:
        self.topic_partition = name
        self.config = config
        self.start_offset = 10
        self.next_offset = 20
        self.epochs = LeaderEpochs()
        self.epochs.assign(2, 0)
        self.epochs.assign(LEADER_EPOCH, 15)
        self.producers = ProducerStates(name)

    def epoch_at(self, offset: int) -> int:
        return self.epochs.epoch_at(offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, self.next_offset)

    async def offset_for_timestamp(self, timestamp_ms: int, upto: int) -> TimestampOffset | None:
        for offset in range(self.start_offset, upto):
            if offset * 100 >= timestamp_ms:
                return TimestampOffset(offset * 100, offset, self.epoch_at(offset))
        return None

    async def max_timestamp_offset(self) -> TimestampOffset | None:
        return TimestampOffset(1900, 19, LEADER_EPOCH)

    def delete_records_before(self, offset: int) -> None:
        self.start_offset = max(self.start_offset, offset)


class OnePartition:
    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self.look_ups = asyncio.Semaphore(1)

    def partition(self, topic: str, index: int) -> Partition:
        if (topic, index) != self._partition.topic_partition:
            raise UnknownTopicOrPartition(f"{topic}-{index} is not here")
        return self._partition

    def leading(self, topic: str, index: int, leader_epoch: int = -1) -> Partition:
        found = self.partition(topic, index)
        found.check_leader_epoch(leader_epoch)
        found.check_leads()
        return found


def broker_of(topic: str = "a", *, high_watermark: int = 20, config: LogConfig | None = None) -> Broker:
    log: Any = ListLog(TopicPartition(topic, 0), config or LogConfig())
    partition = Partition(log, UUID(int=1), LEADER_EPOCH, (1,))
    partition.high_watermark = high_watermark
    return broker_with(image_of(), replicas=OnePartition(partition))


def offsets(
    broker: Broker, *timestamps: int, version: int = 11, epoch: int = -1, topic: str = "a", **options: int
) -> list[tuple[ErrorCode, int, int, int]]:
    results = []
    for timestamp in timestamps:
        request = ListOffsetsRequest(
            replica_id=options.get("replica_id", -1),
            isolation_level=options.get("isolation_level", 0),
            timeout=datetime.timedelta(0),
            topics=(
                ListOffsetsTopic(
                    name=topic,
                    partitions=(
                        ListOffsetsPartition(
                            partition_index=0, current_leader_epoch=epoch, timestamp=timestamp
                        ),
                    ),
                ),
            ),
        )
        [answer] = asyncio.run(list_offsets(broker, context(version), request)).topics
        [found] = answer.partitions
        assert (answer.name, found.partition_index) == (topic, 0)
        results.append((found.error_code, found.timestamp, found.offset, found.leader_epoch))
    return results


OK = ErrorCode.none
NOTHING = (OK, -1, -1, -1)


def test_ends_of_the_log() -> None:
    earliest, latest, earliest_local = offsets(broker_of(high_watermark=18), -2, -1, -4)
    assert earliest == earliest_local == (OK, -1, 10, 2)
    assert latest == (OK, -1, 18, LEADER_EPOCH)


def test_replicas_see_the_whole_log() -> None:
    assert offsets(broker_of(high_watermark=18), -1, replica_id=2) == [(OK, -1, 20, LEADER_EPOCH)]


def test_by_timestamp() -> None:
    broker = broker_of()
    assert offsets(broker, 0, 1450, 1500, 1901) == [
        (OK, 1000, 10, 2),
        (OK, 1500, 15, LEADER_EPOCH),
        (OK, 1500, 15, LEADER_EPOCH),
        NOTHING,
    ]


def test_nothing_beyond_the_high_watermark() -> None:
    broker = broker_of(high_watermark=15)
    assert offsets(broker, 1450, -3) == [NOTHING, NOTHING]
    assert offsets(broker, 1400, -3, replica_id=1) == [(OK, 1400, 14, 2), (OK, 1900, 19, LEADER_EPOCH)]


def test_the_largest_timestamp() -> None:
    assert offsets(broker_of(), -3) == [(OK, 1900, 19, LEADER_EPOCH)]


def test_no_tiered_storage() -> None:
    assert offsets(broker_of(), -5, -6) == [NOTHING, NOTHING]


@pytest.mark.parametrize("position, first_version", [(-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_positions_need_their_version(position: int, first_version: int) -> None:
    broker = broker_of()
    [(error, *_)] = offsets(broker, position, version=first_version - 1)
    assert error is ErrorCode.unsupported_version
    [(error, *_)] = offsets(broker, position, version=first_version)
    assert error is OK


def test_a_position_that_does_not_exist() -> None:
    assert offsets(broker_of(), -7) == [(ErrorCode.unsupported_version, -1, -1, -1)]


@pytest.mark.parametrize(
    "epoch, error", [(4, ErrorCode.fenced_leader_epoch), (5, OK), (6, ErrorCode.unknown_leader_epoch)]
)
def test_leader_epochs_are_checked(epoch: int, error: ErrorCode) -> None:
    assert [found[0] for found in offsets(broker_of(), -1, epoch=epoch)] == [error]


def test_unknown_partition() -> None:
    [(error, *rest)] = offsets(broker_of(), -1, topic="b")
    assert (error, rest) == (ErrorCode.unknown_topic_or_partition, [-1, -1, -1])


def test_a_partition_named_twice() -> None:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        timeout=datetime.timedelta(0),
        topics=(ListOffsetsTopic(name="a", partitions=(partition, partition)),),
    )
    [topic] = asyncio.run(list_offsets(broker_of(), context(11), request)).topics
    assert [found.error_code for found in topic.partitions] == [ErrorCode.invalid_request] * 2


@pytest.mark.parametrize("asked, found", [(2, (2, 15)), (3, (2, 15)), (5, (5, 20)), (6, (-1, -1))])
def test_end_of_an_epoch(asked: int, found: tuple[int, int]) -> None:
    request = OffsetForLeaderEpochRequest(
        topics=(
            OffsetForLeaderTopic(
                topic="a",
                partitions=(OffsetForLeaderPartition(partition=0, leader_epoch=asked),),
            ),
        )
    )
    [topic] = asyncio.run(offset_for_leader_epoch(broker_of(), context(4), request)).topics
    [end] = topic.partitions
    assert (end.error_code, end.leader_epoch, end.end_offset) == (OK, *found)


@pytest.mark.parametrize(
    "topic, epoch, error",
    [
        ("a", 4, ErrorCode.fenced_leader_epoch),
        ("a", 6, ErrorCode.unknown_leader_epoch),
        ("b", 5, ErrorCode.unknown_topic_or_partition),
    ],
)
def test_epochs_of_the_wrong_leader_or_partition(topic: str, epoch: int, error: ErrorCode) -> None:
    request = OffsetForLeaderEpochRequest(
        topics=(
            OffsetForLeaderTopic(
                topic=topic,
                partitions=(
                    OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=2),
                ),
            ),
        )
    )
    [answer] = asyncio.run(offset_for_leader_epoch(broker_of(), context(4), request)).topics
    [end] = answer.partitions
    assert (end.error_code, end.leader_epoch, end.end_offset) == (error, -1, -1)


def delete(broker: Broker, offset: int, topic: str = "a") -> tuple[ErrorCode, int]:
    request = DeleteRecordsRequest(
        topics=(
            DeleteRecordsTopic(
                name=topic, partitions=(DeleteRecordsPartition(partition_index=0, offset=offset),)
            ),
        ),
        timeout=datetime.timedelta(0),
    )
    [answer] = asyncio.run(delete_records(broker, context(2), request)).topics
    [partition] = answer.partitions
    return partition.error_code, partition.low_watermark


def test_delete_records() -> None:
    broker = broker_of(high_watermark=18)
    assert delete(broker, 12) == (OK, 12)
    assert delete(broker, 11) == (OK, 12)
    assert delete(broker, 19) == (ErrorCode.offset_out_of_range, -1)
    assert delete(broker, -2) == (ErrorCode.offset_out_of_range, -1)
    assert delete(broker, -1) == (OK, 18)
    assert delete(broker, 0, "b") == (ErrorCode.unknown_topic_or_partition, -1)


def test_records_that_must_not_be_deleted() -> None:
    compacted = broker_of(config=LogConfig(cleanup_compact=True, cleanup_delete=False))
    assert delete(compacted, 12) == (ErrorCode.policy_violation, -1)
    both = broker_of(config=LogConfig(cleanup_compact=True, cleanup_delete=True))
    assert delete(both, 12) == (OK, 12)
    internal = broker_of("__consumer_offsets")
    assert delete(internal, 12, "__consumer_offsets") == (ErrorCode.invalid_topic_exception, -1)


def test_describe_producers() -> None:
    broker = broker_of()
    states = broker.replicas.partition("a", 0).log.producers
    states.apply(ProducerBatch(9, 1, 0, 4, 10, 14, 1400, TRANSACTIONAL))
    states.apply(ProducerBatch(8, 0, 7, 7, 15, 15, 1500, 0))
    request = DescribeProducersRequest(
        topics=(
            TopicRequest(name="a", partition_indexes=(0, 1)),
            TopicRequest(name="no good", partition_indexes=(0,)),
        )
    )
    known, wrong = asyncio.run(describe_producers(broker, context(0), request)).topics
    first, second = known.partitions
    assert [
        (
            p.producer_id,
            p.producer_epoch,
            p.last_sequence,
            p.last_timestamp,
            p.coordinator_epoch,
            p.current_txn_start_offset,
        )
        for p in first.active_producers
    ] == [(8, 0, 7, 1500, -1, -1), (9, 1, 4, 1400, -1, 10)]
    assert second.error_code is ErrorCode.unknown_topic_or_partition
    assert second.error_message
    assert wrong.partitions[0].error_code is ErrorCode.invalid_topic_exception
