"""States of share groups by the protocol that brokers speak with each other."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from raw_client import RawConnection

import ottla.testing
from ottla.metadata.uuids import uuid_text
from ottla.wire.api import ApiKey

NONE = ErrorCode.none
SHARE_PARTITION = 2
BATCH = ("first_offset", "last_offset", "delivery_state", "delivery_count")
GROUPS = (f"group-{n}" for n in itertools.count())


class Persister:
    """What the leader of a partition, and a group's coordinator, ask of the state's coordinator."""

    def __init__(self, broker: str, topic: str) -> None:
        self.connection = RawConnection(broker)
        self.group = next(GROUPS)
        admin = AdminClient({"bootstrap.servers": broker})
        for future in admin.create_topics([NewTopic(topic, 2, 1)]).values():
            future.result(10)
        described = self.call(
            ApiKey.METADATA,
            13,
            topics=({"topic_id": None, "name": topic},),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        self.topic_id: uuid.UUID = described.topics[0].topic_id

    def call(self, key: ApiKey, version: int, /, **values: Any) -> Any:
        schema = load_request_schema(key, version)
        module = __import__(schema.__module__, fromlist=["x"])
        if "topics" in values and key is ApiKey.METADATA:
            values["topics"] = tuple(module.MetadataRequestTopic(**topic) for topic in values["topics"])
        return self.connection.call(key, version, schema(**values))

    def find(self, key: str | None = None, version: int = 6) -> Any:
        wanted = f"{self.group}:{uuid_text(self.topic_id)}:0" if key is None else key
        found = self.call(
            ApiKey.FIND_COORDINATOR, version, key_type=SHARE_PARTITION, coordinator_keys=(wanted,)
        )
        return found.coordinators[0]

    def ask(self, key: ApiKey, version: int, /, topic_id: Any = ..., **fields: Any) -> Any:
        module = __import__(load_request_schema(key, version).__module__, fromlist=["x"])
        of_topic = next(
            getattr(module, name) for name in dir(module) if name.endswith("Data") and "Part" not in name
        )
        fields.setdefault("partition", 0)
        if "state_batches" in fields:
            fields["state_batches"] = tuple(
                module.StateBatch(**dict(zip(BATCH, each, strict=True))) for each in fields["state_batches"]
            )
        topic = of_topic(
            topic_id=self.topic_id if topic_id is ... else topic_id,
            partitions=(module.PartitionData(**fields),),
        )
        answer = self.call(key, version, group_id=self.group, topics=(topic,))
        return answer.results[0].partitions[0]

    def initialize(self, **fields: Any) -> Any:
        return self.ask(
            ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, **{"state_epoch": 0, "start_offset": 0, **fields}
        )

    def read(self, leader_epoch: int = 0, **fields: Any) -> Any:
        return self.ask(ApiKey.READ_SHARE_GROUP_STATE, 0, leader_epoch=leader_epoch, **fields)

    def write(self, version: int = 1, **fields: Any) -> Any:
        given = {"state_epoch": 0, "leader_epoch": 0, "start_offset": -1, "state_batches": (), **fields}
        if version:
            given.setdefault("delivery_complete_count", 0)
        return self.ask(ApiKey.WRITE_SHARE_GROUP_STATE, version, **given)

    def summary(self, version: int = 1, **fields: Any) -> Any:
        return self.ask(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, version, leader_epoch=0, **fields)

    def delete(self, **fields: Any) -> Any:
        return self.ask(ApiKey.DELETE_SHARE_GROUP_STATE, 0, **fields)


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with ottla.testing.broker(set={"share.coordinator.state.topic.num.partitions": 3}) as started:
        yield started.bootstrap_servers


def test_a_state_from_its_beginning_to_its_end(broker: str) -> None:
    persister = Persister(broker, "states")
    found = persister.find()
    assert (found.error_code, found.node_id) == (NONE, 1)
    assert persister.read().error_code is ErrorCode.invalid_request
    assert persister.summary().start_offset == -1
    assert persister.initialize(start_offset=7).error_code is NONE
    assert (
        persister.write(state_batches=((7, 9, 2, 1), (10, 10, 0, 1)), delivery_complete_count=3).error_code
        is NONE
    )
    state = persister.read(leader_epoch=2)
    assert (state.error_code, state.state_epoch, state.start_offset) == (NONE, 0, 7)
    assert [(b.first_offset, b.last_offset, b.delivery_state) for b in state.state_batches] == [
        (7, 9, 2),
        (10, 10, 0),
    ]
    assert persister.write(version=0, leader_epoch=1).error_code is ErrorCode.fenced_leader_epoch
    assert persister.write(leader_epoch=2, start_offset=10).error_code is NONE
    summary = persister.summary()
    assert (summary.leader_epoch, summary.start_offset, summary.delivery_complete_count) == (2, 10, 0)
    assert persister.summary(version=0).start_offset == 10
    assert persister.delete().error_code is NONE
    assert persister.summary().start_offset == -1


def test_what_does_not_exist(broker: str) -> None:
    persister = Persister(broker, "missing")
    assert persister.find("nonsense").error_code is ErrorCode.invalid_request
    assert persister.find(version=5).error_code is ErrorCode.invalid_request
    assert persister.find().error_code is NONE
    for topic_id, partition, error in (
        (None, 0, ErrorCode.invalid_request),
        (uuid.UUID(int=4711), 0, ErrorCode.unknown_topic_or_partition),
        (persister.topic_id, 2, ErrorCode.unknown_topic_or_partition),
    ):
        for ask in (persister.initialize, persister.delete, persister.summary):
            answer = ask(topic_id=topic_id, partition=partition)
            assert answer.error_code is error
            assert answer.error_message


def test_states_outlive_the_broker_and_what_is_superseded_goes(tmp_path: Path) -> None:
    settings = {"share.coordinator.state.topic.prune.interval.ms": 20}
    with ottla.testing.broker(set=settings, data_dir=str(tmp_path)) as started:
        persister = Persister(started.bootstrap_servers, "kept")
        persister.find()
        persister.initialize()
        for offset in range(50):
            assert persister.write(state_batches=((offset, offset, 2, 1),)).error_code is NONE
        admin = AdminClient({"bootstrap.servers": started.bootstrap_servers})
        while earliest(admin) == 0:
            persister.summary()
        persister.connection.close()
    with ottla.testing.broker(set=settings, data_dir=str(tmp_path)) as started:
        persister.connection = RawConnection(started.bootstrap_servers)
        persister.find()
        state = persister.read()
        assert [(b.first_offset, b.last_offset) for b in state.state_batches] == [(0, 49)]


def earliest(admin: AdminClient) -> int:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    partition = TopicPartition("__share_group_state", 0)
    offset: int = admin.list_offsets({partition: OffsetSpec.earliest()})[partition].result(10).offset
    return offset
