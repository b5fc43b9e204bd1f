"""The source on a live broker: every option, limits of a micro-batch, and what is said when data is gone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench.brokers import free_port
from tests.spark.topics import Cluster

from ottla.spark.positions import from_stored
from ottla.testing import InProcessBroker

T0 = 1_700_000_000_000


@pytest.fixture(scope="module")
def cluster(ottla_broker_session: InProcessBroker) -> Cluster:
    return Cluster(ottla_broker_session.bootstrap_servers)


@pytest.fixture
def batch(spark: Any, cluster: Cluster) -> Callable[..., Any]:
    def load(**options: str) -> Any:
        server = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
        return spark.read.format("ottla").options(**server, **options).load()

    return load


@pytest.fixture
def stream(spark: Any, cluster: Cluster, tmp_path: Path) -> Callable[..., list[Any]]:
    """Runs a stream to its end and gives its progress; what it read is in the table `seen`."""

    def run(checkpoint: str = "checkpoint", table: str = "seen", **options: str) -> list[Any]:
        server = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
        options.setdefault("startingOffsets", "earliest")
        frame = spark.readStream.format("ottla").options(**server, **options).load()
        query = (
            frame.writeStream.foreachBatch(
                lambda rows, _: rows.write.mode("append").parquet(str(tmp_path / table))
            )
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)
        return [progress for progress in query.recentProgress if progress.numInputRows]

    return run


def values(frame: Any) -> list[bytes]:
    return sorted(bytes(row.value) for row in frame.select("value").collect())


def numbered(count: int, prefix: str = "v") -> list[bytes]:
    return [b"%s%05d" % (prefix.encode(), n) for n in range(count)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_column_of_every_codec(batch: Callable[..., Any], cluster: Cluster, codec: str) -> None:
    topic = f"columns-{codec}"
    cluster.create(topic, 2)
    headers = [("name", b"value"), ("empty", b""), ("null", None), ("name", b"again")]
    cluster.produce(topic, numbered(500), 0, key=b"k", headers=headers, compression_type=codec)
    cluster.produce(topic, [None, b""], 1, compression_type=codec)
    frame = batch(subscribe=topic, includeHeaders="true").orderBy("partition", "offset")
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    rows = frame.selectExpr("*", "unix_millis(timestamp) as ms").collect()
    assert [row.offset for row in rows] == [*range(500), 0, 1]
    assert [row.value for row in rows[:500]] == numbered(500)
    assert [row.ms for row in rows[:500]] == list(range(T0, T0 + 500))
    assert {(row.topic, row.partition, row.timestampType) for row in rows[:500]} == {(topic, 0, 0)}
    assert [tuple(header) for header in rows[0].headers] == headers
    assert [(row.key, row.value, row.headers) for row in rows[500:]] == [
        (None, None, None),
        (None, b"", None),
    ]


def test_what_to_read_by_name_pattern_or_partition(batch: Callable[..., Any], cluster: Cluster) -> None:
    for name in ("chosen-a", "chosen-b", "other"):
        cluster.create(name, 2)
        for partition in (0, 1):
            cluster.produce(name, [f"{name}-{partition}".encode()], partition)
    assert values(batch(subscribe="chosen-a, other")) == [
        b"chosen-a-0",
        b"chosen-a-1",
        b"other-0",
        b"other-1",
    ]
    assert values(batch(subscribePattern="chosen-.")) == [
        b"chosen-a-0",
        b"chosen-a-1",
        b"chosen-b-0",
        b"chosen-b-1",
    ]
    assert values(batch(assign='{"chosen-a": [1], "other": [0]}')) == [b"chosen-a-1", b"other-0"]
    assert values(batch(subscribePattern="nothing-matches-this")) == []


def test_where_to_begin_and_to_end(batch: Callable[..., Any], cluster: Cluster) -> None:
    cluster.create("bounds", 2)
    for partition in (0, 1):
        cluster.produce("bounds", numbered(10, f"p{partition}-"), partition)

    def offsets(**options: str) -> list[tuple[int, int]]:
        rows = batch(subscribe="bounds", **options).select("partition", "offset").collect()
        return sorted((row.partition, row.offset) for row in rows)

    def between(a: tuple[int, int], b: tuple[int, int]) -> list[tuple[int, int]]:
        return [(0, n) for n in range(*a)] + [(1, n) for n in range(*b)]

    starting = json.dumps({"bounds": {"0": 3, "1": -2}})
    ending = json.dumps({"bounds": {"0": -1, "1": 4}})
    assert offsets(startingOffsets=starting, endingOffsets=ending) == between((3, 10), (0, 4))
    assert offsets(startingTimestamp=str(T0 + 4), endingTimestamp=str(T0 + 6)) == between((4, 6), (4, 6))
    each = {"bounds": {"0": T0 + 8, "1": T0 + 99}}
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert offsets(startingOffsetsByTimestamp=json.dumps(each), **strategy) == between((8, 10), (10, 10))
    each = {"bounds": {"0": T0 + 1, "1": T0 + 99}}
    assert offsets(endingOffsetsByTimestamp=json.dumps(each)) == between((0, 1), (0, 10))
    with pytest.raises(Exception, match=r"startingTimestamp: no record of bounds-0.*Strategy=latest"):
        offsets(startingTimestamp=str(T0 + 99))


def test_tasks_as_many_as_asked_for_and_filters_leave_out_what_they_can(
    batch: Callable[..., Any], cluster: Cluster
) -> None:
    cluster.create("tasks", 2)
    for partition in (0, 1):
        cluster.produce("tasks", numbered(100), partition)
    assert batch(subscribe="tasks").rdd.getNumPartitions() == 2
    many = batch(subscribe="tasks", minPartitions="6")
    assert many.rdd.getNumPartitions() == 6
    assert values(many) == sorted(numbered(100) * 2)
    for pushdown in ("true", "false"):
        options = {"subscribe": "tasks", "filterPushdown": pushdown}
        one = batch(**options).where("partition = 1 and offset >= 10 and offset < 20")
        assert one.rdd.getNumPartitions() == (1 if pushdown == "true" else 2)
        assert sorted(row.offset for row in one.collect()) == list(range(10, 20))
        late = batch(**options).where(f"timestamp >= timestamp_millis({T0 + 95})")
        assert sorted(row.offset for row in late.collect()) == sorted([*range(95, 100)] * 2)
        assert batch(**options).where("topic = 'elsewhere'").collect() == []


def test_a_frame_may_be_used_again_with_another_filter(batch: Callable[..., Any], cluster: Cluster) -> None:
    """Spark keeps what was pushed down for later queries on the same frame, hence the option."""
    cluster.create("again", 2)
    for partition in (0, 1):
        cluster.produce("again", numbered(10), partition)
    frame = batch(subscribe="again")
    assert [frame.where("partition = 1").count(), frame.count()] == [10, 20]


def test_a_stream_reads_in_limited_steps_and_goes_on_after_a_restart(
    spark: Any, stream: Callable[..., list[Any]], cluster: Cluster, tmp_path: Path
) -> None:
    cluster.create("steps", 2)
    cluster.produce("steps", numbered(90), 0)
    cluster.produce("steps", numbered(10), 1)
    steps = stream(subscribe="steps", maxOffsetsPerTrigger="40")
    assert [step.numInputRows for step in steps] == [40, 40, 20]
    for told in (steps[-1].sources[0].endOffset, steps[0].sources[0].latestOffset):
        assert from_stored(json.loads(told)) == {("steps", 0): 90, ("steps", 1): 10}
    cluster.produce("steps", numbered(5, "w"), 1)
    assert [step.numInputRows for step in stream(subscribe="steps")] == [5]
    read = spark.read.parquet(str(tmp_path / "seen"))
    assert values(read) == sorted(numbered(90) + numbered(10) + numbered(5, "w"))


def test_partitions_and_topics_that_appear_are_read_from_their_start(
    spark: Any, stream: Callable[..., list[Any]], cluster: Cluster, tmp_path: Path
) -> None:
    cluster.create("grows-1")
    cluster.produce("grows-1", numbered(3, "a"))
    stream(subscribePattern="grows-.", startingOffsets="latest")
    cluster.grow("grows-1", 2)
    cluster.produce("grows-1", numbered(3, "b"), 1)
    cluster.create("grows-2")
    cluster.produce("grows-2", numbered(3, "c"))
    stream(subscribePattern="grows-.")
    assert values(spark.read.parquet(str(tmp_path / "seen"))) == numbered(3, "b") + numbered(3, "c")


def test_a_running_stream_sees_what_is_produced_meanwhile(
    spark: Any, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.create("live")
    frame = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("subscribe", "live")
        .load()
    )
    query = frame.writeStream.format("memory").queryName("live_rows").start()
    try:
        for n in range(3):
            query.processAllAvailable()
            cluster.produce("live", [b"%d" % n])
        query.processAllAvailable()
        assert values(spark.table("live_rows")) == [b"0", b"1", b"2"]
    finally:
        query.stop()


def test_expired_offsets_stop_the_query_or_are_skipped(
    spark: Any, stream: Callable[..., list[Any]], cluster: Cluster, tmp_path: Path
) -> None:
    cluster.create("expired")
    cluster.produce("expired", numbered(10))
    stream(subscribe="expired")
    cluster.produce("expired", numbered(10, "w"))
    cluster.delete_records("expired", 0, 15)
    with pytest.raises(Exception, match=r"Offsets 10 to 14 of expired-0 are gone.*failOnDataLoss=false"):
        stream(subscribe="expired")
    stream(subscribe="expired", failOnDataLoss="false")
    assert values(spark.read.parquet(str(tmp_path / "seen"))) == numbered(10) + numbered(10, "w")[5:]


def test_a_topic_that_was_deleted_is_told_apart_from_one_that_never_was(
    spark: Any, stream: Callable[..., list[Any]], cluster: Cluster, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match=r"Topic never-was does not exist.*kafka-topics --create"):
        stream(subscribe="never-was")
    cluster.create("deleted")
    cluster.produce("deleted", numbered(10))
    stream(subscribe="deleted")
    cluster.delete("deleted")
    with pytest.raises(Exception, match=r"deleted does not exist.*failOnDataLoss=false"):
        stream(subscribe="deleted")
    cluster.create("deleted")
    cluster.produce("deleted", numbered(3, "w"))
    with pytest.raises(Exception, match=r"deleted-0 was read up to offset 10 and now ends at 3"):
        stream(subscribe="deleted")
    stream(subscribe="deleted", failOnDataLoss="false")
    assert values(spark.read.parquet(str(tmp_path / "seen"))) == numbered(10) + numbered(3, "w")


def test_errors_name_the_option_and_the_remedy(spark: Any, batch: Callable[..., Any]) -> None:
    with pytest.raises(Exception, match="no option subscribed; did you mean subscribe"):
        batch(subscribed="x").collect()
    with pytest.raises(Exception, match=r"Topic no-such-topic does not exist on 127\.0\.0\.1"):
        batch(subscribe="no-such-topic").collect()
    address = f"127.0.0.1:{free_port()}"
    nobody = {"kafka.bootstrap.servers": address, "kafka.socket.connection.setup.timeout.ms": "500"}
    with pytest.raises(Exception, match=f"no broker can be reached: {address}"):
        spark.read.format("ottla").options(subscribe="x", **nobody).load().collect()


def test_sql_over_values_with_a_schema(spark: Any, cluster: Cluster) -> None:
    cluster.create("priced", 2)
    for partition in (0, 1):
        rows = [b'{"id": %d, "item": {"name": "n%d", "tags": ["a"]}}' % (n, n % 3) for n in range(30)]
        cluster.produce("priced", rows, partition)
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "subscribe": "priced",
        "valueFormat": "json",
        "valueSchema": "id BIGINT, item STRUCT<name: STRING, tags: ARRAY<STRING>>",
    }
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW priced USING ottla OPTIONS ({listed})")
    found = spark.sql(
        "SELECT value.item.name, sum(value.id) AS total, max(offset) AS last FROM priced "
        "WHERE partition = 1 GROUP BY 1 ORDER BY 1"
    ).collect()
    assert [tuple(row) for row in found] == [("n0", 135, 27), ("n1", 145, 28), ("n2", 155, 29)]
    assert spark.sql("SELECT count(*) FROM priced").collect()[0][0] == 60
