"""A member of a share group made of single requests, without a coordinator of the group."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from confluent_kafka import KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.initialize_share_group_state.v0 import request as initialize
from kio.schema.read_share_group_state.v0 import request as reading
from kio.schema.share_acknowledge.v2 import request as acknowledge
from kio.schema.share_fetch.v2 import request as fetch
from raw_client import RawConnection, parse_response, request_frame

from ottla.metadata.uuids import parse_uuid, uuid_text
from ottla.records.batch import iter_headers
from ottla.records.records import iter_records
from ottla.wire.api import ApiKey

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
Acks = Sequence[tuple[int, int, Sequence[int]]]


def create_topic(broker: str, name: str, partitions: int = 1, replicas: int = 1) -> UUID:
    admin = AdminClient({"bootstrap.servers": broker})
    admin.create_topics([NewTopic(name, partitions, replicas)])[name].result()
    while True:
        # Another broker may have to hear of it first.
        with contextlib.suppress(KafkaException):
            described = admin.describe_topics(TopicCollection([name]))[name].result()
            # librdkafka writes them in the alphabet that is not URL-safe.
            return parse_uuid(str(described.topic_id).replace("+", "-").replace("/", "_"))


def produce(broker: str, topic: str, *values: str, settings: dict[str, Any] | None = None) -> None:
    producer = Producer({"bootstrap.servers": broker, "linger.ms": 0, **(settings or {})})
    for value in values:
        producer.produce(topic, value, partition=0)
        producer.flush()


class Member:
    def __init__(self, broker: str, group: str, topic_id: UUID, name: str = "one") -> None:
        self.connection = RawConnection(broker)
        self.group, self.name, self.topic_id = group, name, topic_id
        self.epoch = 0

    def initialize(self, start_offset: int = 0) -> None:
        """As the coordinator of the group does when it first assigns the partition."""
        while self._initialize(self.connection, start_offset) != ErrorCode.none:
            # It may have to load its part of the states, or hear of the topic.
            time.sleep(0.01)

    def initialize_anywhere(self, brokers: Sequence[str], timeout_s: float = 30) -> None:
        """The same, where any of these brokers may coordinate."""
        deadline = time.monotonic() + timeout_s
        for broker in itertools.cycle(brokers):
            assert time.monotonic() < deadline
            with RawConnection(broker) as connection:
                if self._initialize(connection, 0) == ErrorCode.none:
                    return

    def _initialize(self, connection: RawConnection, start_offset: int) -> ErrorCode:
        key = f"{self.group}:{uuid_text(self.topic_id)}:0"
        find = FindCoordinatorRequest(key_type=2, coordinator_keys=(key,))
        while connection.call(ApiKey.FIND_COORDINATOR, 6, find).coordinators[0].error_code != ErrorCode.none:
            time.sleep(0.01)
        partition = initialize.PartitionData(partition=0, state_epoch=1, start_offset=start_offset)
        request = initialize.InitializeShareGroupStateRequest(
            group_id=self.group,
            topics=(initialize.InitializeStateData(topic_id=self.topic_id, partitions=(partition,)),),
        )
        answer = connection.call(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, request)
        return answer.results[0].partitions[0].error_code

    def stored(self) -> Any:
        request = reading.ReadShareGroupStateRequest(
            group_id=self.group,
            topics=(
                reading.ReadStateData(
                    topic_id=self.topic_id,
                    partitions=(reading.PartitionData(partition=0, leader_epoch=0),),
                ),
            ),
        )
        answer = self.connection.call(ApiKey.READ_SHARE_GROUP_STATE, 0, request)
        return answer.results[0].partitions[0]

    def fetch(
        self,
        acks: Acks = (),
        *,
        epoch: int | None = None,
        wait_ms: int = 0,
        records_max: int = 500,
        min_bytes: int = 1,
        mode: int = 0,
        renews: bool = False,
        named: bool = True,
    ) -> Any:
        self.send_fetch(
            acks,
            epoch=epoch,
            wait_ms=wait_ms,
            records_max=records_max,
            min_bytes=min_bytes,
            mode=mode,
            renews=renews,
            named=named,
        )
        return self.receive_fetch()

    def send_fetch(
        self,
        acks: Acks = (),
        *,
        epoch: int | None = None,
        wait_ms: int = 0,
        records_max: int = 500,
        min_bytes: int = 1,
        mode: int = 0,
        renews: bool = False,
        named: bool = True,
    ) -> None:
        partition = fetch.FetchPartition(
            partition_index=0,
            acknowledgement_batches=tuple(
                fetch.AcknowledgementBatch(
                    first_offset=first, last_offset=last, acknowledge_types=tuple(types)
                )
                for first, last, types in acks
            ),
        )
        topics = (fetch.FetchTopic(topic_id=self.topic_id, partitions=(partition,)),)
        request = fetch.ShareFetchRequest(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            max_wait=timedelta(milliseconds=0 if renews else wait_ms),
            min_bytes=0 if renews else min_bytes,
            max_bytes=0 if renews else 1 << 20,
            max_records=0 if renews else records_max,
            batch_size=500,
            share_acquire_mode=mode,
            is_renew_ack=renews,
            topics=topics if named or acks else (),
            forgotten_topics_data=(),
        )
        self.connection.send(request_frame(ApiKey.SHARE_FETCH, 2, request))

    def receive_fetch(self) -> Any:
        answer = parse_response(ApiKey.SHARE_FETCH, 2, self.connection.receive())
        if answer.error_code == ErrorCode.none:
            self.epoch += 1
        return answer

    def acknowledge(self, acks: Acks, *, epoch: int | None = None, renews: bool = False) -> Any:
        partition = acknowledge.AcknowledgePartition(
            partition_index=0,
            acknowledgement_batches=tuple(
                acknowledge.AcknowledgementBatch(
                    first_offset=first, last_offset=last, acknowledge_types=tuple(types)
                )
                for first, last, types in acks
            ),
        )
        request = acknowledge.ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=renews,
            topics=(acknowledge.AcknowledgeTopic(topic_id=self.topic_id, partitions=(partition,)),),
        )
        answer = self.connection.call(ApiKey.SHARE_ACKNOWLEDGE, 2, request)
        if answer.error_code == ErrorCode.none:
            self.epoch += 1
        return answer


def acquired(answer: Any) -> list[tuple[int, int, int]]:
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        for each in partition.acquired_records
    ]


def values(answer: Any) -> list[str]:
    """Of the acquired records."""
    return [
        (record.value or b"").decode()
        for topic in answer.responses
        for partition in topic.partitions
        for at, header in iter_headers(partition.records)
        if not header.is_control
        for record in iter_records(partition.records[at : at + header.size])
        if any(
            first <= record.offset <= last
            for each in partition.acquired_records
            for first, last in ((each.first_offset, each.last_offset),)
        )
    ]


def only_row(answer: Any) -> Any:
    ((row,),) = (topic.partitions for topic in answer.responses)
    return row
