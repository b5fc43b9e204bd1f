"""A pipeline that reads from one cluster and writes to another, exactly once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import ottla.testing
from ottla.spark.checkpoint import topic_offsets
from ottla.spark.exactly_once import MicroBatchWriter
from ottla.spark.positions import to_stored
from ottla.spark.range_reader import DataLost
from ottla.spark.sink_options import sink_options
from ottla.spark.source import OttlaStreamReader
from ottla.spark.source_options import source_options
from ottla.testing import InProcessBroker

Partitions = dict[tuple[str, int], int]


class WrittenCheckpoint:
    """What Spark wrote down before the micro-batch, one line per source."""

    def __init__(self, *sources: dict[str, Any]) -> None:
        self._entry = "\n".join(["v1", "{}", *map(json.dumps, sources)])

    def query_id(self) -> str:
        return "q"

    def source_offsets(self, batch_id: int) -> list[Any]:
        found: Any = topic_offsets(self._entry)
        return list(found)


@pytest.fixture(scope="module")
def source() -> Iterator[InProcessBroker]:
    with ottla.testing.broker() as broker:
        create(broker, "orders", "only-there")
        yield broker


@pytest.fixture(scope="module")
def target() -> Iterator[InProcessBroker]:
    with ottla.testing.broker() as broker:
        create(broker, "orders", "results")
        yield broker


def create(broker: InProcessBroker, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.create_topics([NewTopic(topic, 2, 1) for topic in topics]).values():
        future.result(20)


def commit_batch(broker: InProcessBroker, application: str, checkpoint: WrittenCheckpoint) -> Partitions:
    """What the group of the application has after a micro-batch, on the cluster that is written to."""
    options = sink_options({"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "results"})
    stored: Any = checkpoint
    writer = MicroBatchWriter(options, application, stored, None)
    connection, transactions = writer._connection, writer._transactions
    connection.run(transactions.begin())
    assert not writer._is_in(7)
    offsets = connection.run(writer._offsets_here(7))
    if offsets:
        announced = connection.start(transactions.announce_offsets(application))
        sending = writer._start_offsets(offsets, announced, 7)
        assert sending is not None
        sending.result()
    connection.run(writer._commit(7, [], has_offsets=bool(offsets)))
    assert writer._is_in(7)
    assert not writer._is_in(8)
    committed = connection.run(transactions.committed_offsets(application))
    return {place: offset.offset for place, offset in committed.items()}


def test_offsets_of_another_cluster_stay_out_of_the_group(
    source: InProcessBroker, target: InProcessBroker
) -> None:
    """Whether or not a topic of the same name is here. The batch is marked all the same."""
    read = to_stored({("orders", 0): 12, ("only-there", 1): 3}, source.cluster_id)
    assert commit_batch(target, "copier", WrittenCheckpoint(read)) == {("results", 0): 7}


def test_offsets_of_the_cluster_that_is_written_to(target: InProcessBroker) -> None:
    read = to_stored({("orders", 0): 12, ("orders", 1): 5}, target.cluster_id)
    assert commit_batch(target, "counter", WrittenCheckpoint(read)) == {("orders", 0): 12, ("orders", 1): 5}


def test_a_checkpoint_that_does_not_say_of_which_cluster(target: InProcessBroker) -> None:
    """An earlier version wrote it, or Spark's Kafka source: what is not here cannot be committed here."""
    read = to_stored({("orders", 0): 12, ("orders", 9): 1, ("only-there", 1): 3})
    assert commit_batch(target, "old", WrittenCheckpoint(read)) == {("orders", 0): 12}


def test_a_stream_says_which_cluster_its_offsets_are_of(
    source: InProcessBroker, target: InProcessBroker
) -> None:
    def reader(broker: InProcessBroker) -> OttlaStreamReader:
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"}
        return OttlaStreamReader(source_options(options, streaming=True))

    start = reader(source).initialOffset()
    assert start == {"@cluster": source.cluster_id, "orders": {"0": 0, "1": 0}}
    limit = reader(source).getDefaultReadLimit()
    assert reader(source).latestOffset(start, limit) == start
    # As an earlier version wrote it: nothing is new, so nothing is to be done.
    old = {"orders": {"0": 0, "1": 0}}
    assert reader(source).latestOffset(old, limit) == old
    with pytest.raises(
        DataLost, match=f"offsets of cluster {source.cluster_id}.*is cluster {target.cluster_id}"
    ):
        reader(target).latestOffset(start, limit)
