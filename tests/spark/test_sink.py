"""The sinks on a live broker: what is written, once and no more, and what is said when it cannot be."""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from tests.spark.topics import Cluster

from ottla.client.cluster import ClusterClient
from ottla.client.produce import PartitionProducer
from ottla.client.transaction import CommittedOffset, Transactions, add_partitions
from ottla.records.arrow_encode import RecordColumns, encode_columns
from ottla.records.stamp import stamped
from ottla.runtime.net import AsyncioNetwork
from ottla.spark.sink import write_stream
from ottla.testing import InProcessBroker

AT = dt.datetime(2024, 5, 6, 7, 8, 9, 123000, dt.UTC)


@pytest.fixture(scope="module")
def cluster(ottla_broker_session: InProcessBroker) -> Cluster:
    return Cluster(ottla_broker_session.bootstrap_servers)


@pytest.fixture(scope="module")
def numbers() -> Iterator[int]:
    return itertools.count()


@pytest.fixture
def new_topic(cluster: Cluster, numbers: Iterator[int]) -> Callable[[int], str]:
    def create(partitions: int) -> str:
        name = f"sink-{next(numbers)}"
        cluster.create(name, partitions)
        return name

    return create


def read(cluster: Cluster, topic: str, partitions: int) -> list[Message]:
    """All committed records, in the order of partitions and offsets."""
    settings = {"isolation.level": "read_committed", "enable.partition.eof": True, "group.id": "reader"}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, **settings})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    messages, ended = [], 0
    while ended < partitions:
        message = consumer.poll(20)
        assert message is not None, "no end of the topic: is a transaction open?"
        if message.error():
            ended += 1
        else:
            messages.append(message)
    consumer.close()
    return sorted(messages, key=lambda message: (message.partition(), message.offset()))


def values(cluster: Cluster, topic: str, partitions: int = 1) -> list[str]:
    return sorted(message.value().decode() for message in read(cluster, topic, partitions))


def on_client(cluster: Cluster, action: Callable[[ClusterClient], Any]) -> Any:
    async def run() -> Any:
        async with ClusterClient(AsyncioNetwork(), cluster.bootstrap_servers) as client:
            return await action(client)

    return asyncio.run(run())


# The plain sink


def test_rows_say_where_they_go(spark: Any, cluster: Cluster, new_topic: Callable[[int], str]) -> None:
    one, other = new_topic(1), new_topic(3)
    header = [{"key": "h", "value": b"1"}, {"key": "empty", "value": None}]
    rows = spark.createDataFrame(
        [(one, b"k", "first", header, None, AT), (other, None, "second", None, 2, None)],
        "topic string, key binary, value string, headers array<struct<key:string,value:binary>>, "
        "partition int, timestamp timestamp",
    )
    server = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    rows.write.format("ottla").options(**server).mode("append").save()
    (first,) = read(cluster, one, 1)
    assert (first.key(), first.value()) == (b"k", b"first")
    assert first.headers() == [("h", b"1"), ("empty", None)]
    assert first.timestamp()[1] == int(AT.timestamp() * 1000)
    (second,) = read(cluster, other, 3)
    assert (second.key(), second.value(), second.partition()) == (None, b"second", 2)
    assert second.timestamp()[1] > first.timestamp()[1]


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_table_goes_to_one_topic(
    spark: Any, cluster: Cluster, new_topic: Callable[[int], str], codec: str
) -> None:
    topic = new_topic(2)
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.compression.type": codec}
    rows = spark.range(5000).selectExpr("cast(id as string) as key", "cast(id as string) as value")
    rows.write.format("ottla").options(**options, topic=topic).mode("append").save()
    assert values(cluster, topic, 2) == sorted(map(str, range(5000)))


def test_what_cannot_be_written_is_named(spark: Any, cluster: Cluster) -> None:
    server = {"kafka.bootstrap.servers": cluster.bootstrap_servers}

    def save(rows: Any, **options: str) -> None:
        rows.write.format("ottla").options(**server, **options).mode("append").save()

    with pytest.raises(Exception, match=r"column value is of type bigint, expected is binary or string"):
        save(spark.range(1).withColumnRenamed("id", "value"), topic="x")
    with pytest.raises(Exception, match=r"topic nowhere does not exist at 127"):
        save(spark.range(1).selectExpr("'v' as value"), topic="nowhere")
    with pytest.raises(Exception, match=r"overwritten.*append"):
        rows = spark.range(1).selectExpr("'v' as value")
        rows.write.format("ottla").options(**server, topic="x").mode("overwrite").save()


# Exactly once


@pytest.fixture(params=["the driver writes", "tasks write"])
def pipe(
    spark: Any,
    cluster: Cluster,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., str | None]:
    """Runs source → target to its end; gives what it failed with."""
    if request.param == "tasks write":
        # As on a cluster, where nobody has the files of all.
        monkeypatch.setattr("ottla.spark.sink.spool_of", lambda *_, **__: None)

    def run(
        source: str, target: str, change: Callable[[Any], Any] = lambda rows: rows, **options: str
    ) -> str | None:
        rows = (
            spark.readStream.format("ottla")
            .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "40")
            .load()
        )
        query = write_stream(
            change(rows.select("key", "value")),
            application_id=f"app-{target}",
            bootstrap_servers=cluster.bootstrap_servers,
            topic=target,
            checkpoint=str(tmp_path / "checkpoint"),
            trigger={"availableNow": True},
            **options,
        )
        try:
            query.awaitTermination(90)
        except Exception as error:
            return str(error)
        assert not query.isActive
        return None

    return run


def numbered(start: int, stop: int) -> list[bytes]:
    return [b"%04d" % number for number in range(start, stop)]


def test_offsets_and_batches_are_committed_with_the_rows(
    cluster: Cluster, new_topic: Callable[[int], str], pipe: Callable[..., str | None]
) -> None:
    source, target = new_topic(1), new_topic(2)
    cluster.produce(source, numbered(0, 100))
    assert pipe(source, target, lambda rows: rows.where("value != '0099'")) is None
    assert values(cluster, target, 2) == [n.decode() for n in numbered(0, 99)]
    app = f"app-{target}"
    committed = on_client(cluster, lambda client: Transactions(client, app).committed_offsets(app))
    # The row that was filtered out counts as read.
    (place,) = committed
    assert place == (source, 0)
    assert committed[place].offset == 100
    assert json.loads(committed[place].metadata)["batch"] == 2


def test_at_least_once_a_batch_that_is_done_again_is_written_again(
    cluster: Cluster, new_topic: Callable[[int], str], pipe: Callable[..., str | None], tmp_path: Path
) -> None:
    source, target = new_topic(1), new_topic(2)
    cluster.produce(source, numbered(0, 60))
    assert pipe(source, target, guarantee="at_least_once") is None
    assert values(cluster, target, 2) == [n.decode() for n in numbered(0, 60)]
    for entry in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / entry).unlink(missing_ok=True)
    assert pipe(source, target, guarantee="at_least_once") is None
    written = [*numbered(0, 60), *numbered(40, 60)]
    assert values(cluster, target, 2) == sorted(n.decode() for n in written)
    app = f"app-{target}"
    committed = on_client(cluster, lambda client: Transactions(client, app).committed_offsets(app))
    assert committed[source, 0].offset == 60


def test_the_plain_sink_writes_whole_results_in_complete_mode(
    spark: Any, cluster: Cluster, new_topic: Callable[[int], str], tmp_path: Path
) -> None:
    source, target = new_topic(1), new_topic(1)
    server = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    rows = spark.readStream.format("ottla").options(**server, subscribe=source, startingOffsets="earliest")
    counts = rows.load().groupBy("value").count().selectExpr("value AS key", "CAST(count AS STRING) AS value")
    for values_now in ([b"a", b"b"], [b"a"]):
        cluster.produce(source, values_now)
        stream = counts.writeStream.format("ottla").options(**server, topic=target).outputMode("complete")
        stream = stream.option("checkpointLocation", str(tmp_path / "complete"))
        stream.trigger(availableNow=True).start().awaitTermination(90)
    written = [(message.key(), message.value()) for message in read(cluster, target, 1)]
    # Also what has not changed.
    assert sorted(written[:2]) == [(b"a", b"1"), (b"b", b"1")]
    assert sorted(written[2:]) == [(b"a", b"2"), (b"b", b"1")]


def test_a_batch_that_is_in_is_not_written_again(
    cluster: Cluster, new_topic: Callable[[int], str], pipe: Callable[..., str | None], tmp_path: Path
) -> None:
    """A driver that dies after the end of the transaction, before Spark notes that the batch is done."""
    source, target = new_topic(1), new_topic(1)
    cluster.produce(source, numbered(0, 60))
    assert pipe(source, target) is None
    for entry in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / entry).unlink()
    cluster.produce(source, numbered(60, 70))
    assert pipe(source, target) is None
    assert values(cluster, target) == [n.decode() for n in numbered(0, 70)]


def test_what_a_dead_driver_left_open_is_discarded(
    cluster: Cluster, new_topic: Callable[[int], str], pipe: Callable[..., str | None]
) -> None:
    source, target = new_topic(1), new_topic(1)
    app = f"app-{target}"

    async def die_in_a_transaction(client: ClusterClient) -> None:
        producer = await Transactions(client, app).begin()
        await add_partitions(client, app, producer, [(target, 0)])
        columns = RecordColumns(None, pa.array([b"half done"]), np.zeros(1, np.int64))
        (batch,) = encode_columns(columns)
        sender = PartitionProducer(client, target, 0, transactional_id=app)
        await sender.send(stamped(batch.data, *producer, 0, transactional=True))
        await sender.flush()

    on_client(cluster, die_in_a_transaction)
    cluster.produce(source, numbered(0, 10))
    assert pipe(source, target) is None
    assert values(cluster, target) == [n.decode() for n in numbered(0, 10)]


def test_a_driver_that_was_replaced_is_shut_out(cluster: Cluster, new_topic: Callable[[int], str]) -> None:
    target = new_topic(1)

    async def two_drivers(client: ClusterClient) -> None:
        old, new = Transactions(client, "app-two"), Transactions(client, "app-two")
        await old.begin()
        await new.begin()
        with pytest.raises(Exception, match=r"PRODUCER_FENCED|INVALID_PRODUCER_EPOCH"):
            await old.commit("app-two", {(target, 0): CommittedOffset(5, "old")})
        with pytest.raises(Exception, match=r"PRODUCER_FENCED|INVALID_PRODUCER_EPOCH"):
            await old.begin()
        await new.commit("app-two", {(target, 0): CommittedOffset(1, "new")})
        assert await new.committed_offsets("app-two") == {(target, 0): CommittedOffset(1, "new")}

    on_client(cluster, two_drivers)


def test_a_failing_function_leaves_nothing_behind(
    cluster: Cluster, new_topic: Callable[[int], str], pipe: Callable[..., str | None]
) -> None:
    source, target = new_topic(1), new_topic(1)
    cluster.produce(source, numbered(0, 70))

    def poisoned(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if b"0050" in batch.column("value").to_pylist():
                raise ValueError("cannot read 0050")
            yield batch

    failure = pipe(source, target, lambda rows: rows.mapInArrow(poisoned, "key binary, value binary"))
    assert failure is not None
    assert "batch 1 was not written: ValueError: cannot read 0050" in failure
    assert values(cluster, target) == [n.decode() for n in numbered(0, 40)]
    assert pipe(source, target) is None
    assert values(cluster, target) == [n.decode() for n in numbered(0, 70)]


def test_a_lost_worker_costs_time_but_no_row(
    cluster: Cluster, new_topic: Callable[[int], str], pipe: Callable[..., str | None], tmp_path: Path
) -> None:
    source, target = new_topic(1), new_topic(2)
    cluster.produce(source, numbered(0, 40))
    mark = tmp_path / "killed"

    def deadly(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    assert pipe(source, target, lambda rows: rows.mapInArrow(deadly, "key binary, value binary")) is None
    assert mark.exists()
    assert values(cluster, target, 2) == [n.decode() for n in numbered(0, 40)]


def test_speculation_and_wrong_columns_are_refused_at_once(spark: Any, cluster: Cluster) -> None:
    rate = spark.readStream.format("rate").load()
    common = {"application_id": "x", "bootstrap_servers": cluster.bootstrap_servers, "checkpoint": "/none"}
    with pytest.raises(ValueError, match="column value is of type bigint"):
        write_stream(rate, topic="x", **common)
    with pytest.raises(ValueError, match=r"streaming DataFrame"):
        write_stream(spark.range(1), topic="x", **common)
    spark.sparkContext._conf.set("spark.speculation", "true")
    try:
        with pytest.raises(ValueError, match=r"Set spark\.speculation=false"):
            write_stream(rate, topic="x", **common)
    finally:
        spark.sparkContext._conf.set("spark.speculation", "false")
