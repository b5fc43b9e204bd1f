"""ShareFetch and ShareAcknowledge on the wire.

OTTLA_TEST_BOOTSTRAP_SERVERS names another broker to run this against: that is how the tests themselves are
checked, with Apache Kafka as the reference. It needs the settings of `broker` here.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from kio.schema.errors import ErrorCode
from share_member import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    Member,
    acquired,
    create_topic,
    only_row,
    produce,
    values,
)

import ottla.testing
from ottla.replication.share.reading import BATCHES_MAX

NAMES = (f"share-{os.getpid()}-{n}" for n in itertools.count())
NONE = ErrorCode.none
LOCK_MS = 1000


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    settings = {
        "group.share.record.lock.duration.ms": LOCK_MS,
        "group.share.min.record.lock.duration.ms": LOCK_MS,
        "share.coordinator.state.topic.num.partitions": 2,
    }
    if elsewhere := os.environ.get("OTTLA_TEST_BOOTSTRAP_SERVERS"):
        yield elsewhere
    else:
        with ottla.testing.broker(set=settings) as started:
            yield started.bootstrap_servers


@pytest.fixture
def member(broker: str) -> Iterator[Member]:
    name = next(NAMES)
    found = Member(broker, name, create_topic(broker, name))
    found.initialize()
    produce(broker, name, *(f"r{n}" for n in range(10)))
    assert not acquired(found.fetch(records_max=0))
    yield found
    found.connection.close()


def another(broker: str, member: Member, name: str = "two") -> Member:
    return Member(broker, member.group, member.topic_id, name)


def test_records_are_acquired_by_one_member_and_acknowledged(broker: str, member: Member) -> None:
    answer = member.fetch(wait_ms=5000)
    assert values(answer) == [f"r{n}" for n in range(10)]
    assert acquired(answer) == [(0, 9, 1)]
    assert answer.acquisition_lock_timeout.total_seconds() * 1000 == LOCK_MS
    two = another(broker, member)
    assert not acquired(two.fetch())
    assert only_row(member.acknowledge([(0, 9, [ACCEPT])])).error_code == NONE
    stored = member.stored()
    assert [(b.first_offset, b.last_offset, b.delivery_state) for b in stored.state_batches] in (
        [(0, 9, 2)],
        [],
    )


def test_acknowledgements_come_with_the_next_fetch(broker: str, member: Member) -> None:
    member.fetch(wait_ms=5000)
    answer = member.fetch([(0, 3, [ACCEPT, RELEASE, REJECT, RELEASE]), (4, 9, [ACCEPT])], wait_ms=5000)
    assert only_row(answer).acknowledge_error_code == NONE.value
    assert acquired(answer) == [(1, 1, 2), (3, 3, 2)]
    assert values(answer) == ["r1", "r3"]


def test_a_fetch_waits_for_records_and_for_those_that_are_released(broker: str, member: Member) -> None:
    member.fetch(wait_ms=5000)
    two = another(broker, member)
    assert not acquired(two.fetch())
    two.send_fetch(wait_ms=20_000)
    member.acknowledge([(0, 9, [RELEASE])])
    assert acquired(two.receive_fetch()) == [(0, 9, 2)]
    two.acknowledge([(0, 9, [ACCEPT])])
    two.send_fetch(wait_ms=20_000)
    produce(broker, member.group, "late")
    assert values(two.receive_fetch()) == ["late"]


def test_expired_locks_give_records_to_others(broker: str, member: Member) -> None:
    member.fetch(wait_ms=5000)
    two = another(broker, member)
    assert not acquired(two.fetch())
    assert acquired(two.fetch(wait_ms=20_000)) == [(0, 9, 2)]
    refused = only_row(member.acknowledge([(0, 9, [ACCEPT])]))
    assert refused.error_code == ErrorCode.invalid_record_state


def test_a_renewed_lock_holds(broker: str, member: Member) -> None:
    member.fetch(wait_ms=5000, records_max=1, mode=1)
    began = time.monotonic()
    two = another(broker, member)
    assert acquired(two.fetch(wait_ms=5000)) == [(1, 9, 1)]
    two.acknowledge([(1, 9, [ACCEPT])])
    two.send_fetch(wait_ms=20_000)
    while time.monotonic() < began + 1.5 * LOCK_MS / 1000:
        answer = member.acknowledge([(0, 0, [RENEW])], renews=True)
        assert only_row(answer).error_code == NONE
        time.sleep(0.05)
    assert only_row(member.acknowledge([(0, 0, [RELEASE])])).error_code == NONE
    assert acquired(two.receive_fetch()) == [(0, 0, 2)]


def test_a_connection_that_ends_releases_what_it_had(broker: str, member: Member) -> None:
    two = another(broker, member)
    assert acquired(two.fetch(wait_ms=5000)) == [(0, 9, 1)]
    two.connection.close()
    assert acquired(member.fetch(wait_ms=20_000)) == [(0, 9, 2)]


def test_who_comes_anew_gets_nothing_where_it_was_before(broker: str, member: Member) -> None:
    member.fetch(wait_ms=5000)
    member.send_fetch(wait_ms=2000)
    again = another(broker, member, member.name)
    again.send_fetch(wait_ms=20_000)
    produce(broker, member.group, "late")
    assert values(again.receive_fetch()) == ["late"]
    assert not acquired(member.receive_fetch())


def test_the_last_epoch_releases_too(broker: str, member: Member) -> None:
    two = another(broker, member)
    assert acquired(two.fetch(wait_ms=5000)) == [(0, 9, 1)]
    answer = two.acknowledge([(0, 4, [ACCEPT])], epoch=-1)
    assert only_row(answer).error_code == NONE
    assert acquired(member.fetch(wait_ms=5000)) == [(5, 9, 2)]
    assert two.acknowledge([(5, 9, [ACCEPT])]).error_code == ErrorCode.share_session_not_found


def test_an_exact_number_of_records(broker: str) -> None:
    name = next(NAMES)
    member = Member(broker, name, create_topic(broker, name))
    member.initialize()
    assert not acquired(member.fetch())
    assert not acquired(member.fetch())
    produce(broker, name, *(f"r{n}" for n in range(10)), settings={"batch.size": 100_000})
    assert acquired(member.fetch(records_max=3, mode=1, wait_ms=5000)) == [(0, 2, 1)]
    assert acquired(member.fetch(records_max=4, mode=1, wait_ms=5000)) == [(3, 6, 1)]


def test_a_fetch_waits_for_enough_bytes(broker: str, member: Member) -> None:
    answer = member.fetch(wait_ms=300, min_bytes=100_000)
    assert acquired(answer) == [(0, 9, 1)]


def test_requests_that_do_not_fit_the_session(broker: str, member: Member) -> None:
    assert member.fetch(epoch=7).error_code == ErrorCode.invalid_share_session_epoch
    assert member.acknowledge([], epoch=0).error_code == ErrorCode.invalid_share_session_epoch
    two = another(broker, member)
    assert two.fetch([(0, 0, [ACCEPT])]).error_code == ErrorCode.invalid_request
    assert two.fetch(epoch=1).error_code == ErrorCode.share_session_not_found
    assert another(broker, member, "x" * 40).fetch().error_code == ErrorCode.invalid_request


@pytest.mark.parametrize(
    "acks",
    [
        [(3, 1, [ACCEPT])],
        [(0, 3, [ACCEPT, ACCEPT])],
        [(0, 3, [])],
        [(0, 3, [7])],
        [(0, 3, [RENEW])],
        [(5, 6, [ACCEPT]), (0, 1, [ACCEPT])],
    ],
)
def test_malformed_acknowledgements_change_nothing(
    broker: str, member: Member, acks: list[tuple[int, int, list[int]]]
) -> None:
    member.fetch(wait_ms=5000)
    assert only_row(member.acknowledge(acks)).error_code == ErrorCode.invalid_request
    assert only_row(member.acknowledge([(0, 9, [ACCEPT])])).error_code == NONE


def test_deleted_records_are_given_to_nobody(broker: str, member: Member) -> None:
    admin = AdminClient({"bootstrap.servers": broker})
    for future in admin.delete_records([TopicPartition(member.group, 0, 4)]).values():
        future.result()
    # Apache Kafka answers the first fetch without anything.
    assert (acquired(member.fetch(wait_ms=5000)) or acquired(member.fetch(wait_ms=5000))) == [(4, 9, 1)]


def test_nobody_gets_what_an_aborted_transaction_wrote(broker: str) -> None:
    name = next(NAMES)
    admin = AdminClient({"bootstrap.servers": broker})
    level = ConfigEntry(
        "share.isolation.level", "read_committed", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ConfigResource.Type.GROUP, name, incremental_configs=[level])
    admin.incremental_alter_configs([resource])[resource].result()
    member = Member(broker, name, create_topic(broker, name))
    member.initialize()
    member.fetch()
    producer = Producer({"bootstrap.servers": broker, "transactional.id": name, "batch.num.messages": 1})
    producer.init_transactions()
    # Of those that nobody gets more than are looked at in one go.
    for value, count, ends in (("kept", 1, True), ("gone", BATCHES_MAX + 1, False), ("also kept", 1, True)):
        producer.begin_transaction()
        for _ in range(count):
            producer.produce(name, value, partition=0)
        producer.flush()
        if ends:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    found: list[str] = []
    while "also kept" not in found:
        answer = member.fetch(wait_ms=5000)
        found += values(answer)
        member.acknowledge([(first, last, [ACCEPT]) for first, last, _ in acquired(answer)])
    assert found == ["kept", "also kept"]


def test_a_deleted_topic_is_unknown(broker: str, member: Member) -> None:
    member.send_fetch(wait_ms=20_000, min_bytes=100_000)
    admin = AdminClient({"bootstrap.servers": broker})
    admin.delete_topics([member.group])[member.group].result()
    answer = member.receive_fetch()
    # Apache Kafka says so to the next fetch.
    answer = answer if answer.responses else member.fetch()
    assert only_row(answer).error_code == ErrorCode.unknown_topic_id
