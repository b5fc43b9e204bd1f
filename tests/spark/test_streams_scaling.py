"""The number of tasks changes while an application lives: each key is owned by one task, and counted once."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from tests.spark.test_streams import Row, Running, last
from tests.spark.topics import Cluster

from ottla.records.murmur import key_partitions
from ottla.streams import Materialized, StreamsBuilder, TimeWindows, Topology
from ottla.testing.in_process import InProcessBroker

# Three starts of queries, and state that moves twice.
pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

KEYS = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker() as running:
        yield running


def sums() -> Topology:
    """Tasks that read the topic itself, with a table and windows."""
    builder = StreamsBuilder()
    grouped = builder.stream("numbers").group_by_key()
    joined = grouped.reduce(lambda a, b: f"{a},{b}", Materialized.as_("joined"))
    joined.to_stream().to("joined-out")
    windows = grouped.windowed_by(TimeWindows.of_size_with_no_grace(1_000_000_000_000))
    windows.count(Materialized.as_("windowed")).to_stream(lambda key, value: key.key).to("windowed-out")
    return builder.build()


def rows(first: int, end: int) -> list[Row]:
    return [("numbers", f"key-{n % KEYS}", f"{n}", n) for n in range(first, end)]


def owners(app: Running, topic: str, suffix: int) -> dict[bytes, list[int]]:
    """In which partitions of a changelog each key has an entry."""
    found: dict[bytes, list[int]] = defaultdict(list)
    for partition, entries in app.read_partitions(topic).items():
        for key, value in dict(entries).items():
            if value is not None and key is not None:
                found[key[: len(key) - suffix]].append(partition)
    return found


def test_a_topic_that_grew_and_more_shuffle_partitions(
    spark: Any, broker: InProcessBroker, tmp_path: Path
) -> None:
    cluster = Cluster(broker.bootstrap_servers)
    for topic in ("numbers", "joined-out", "windowed-out"):
        cluster.create(topic, 4)
    app = Running(spark, broker, "scaling", sums(), tmp_path)
    try:
        app.send(rows(0, 200))
        app.app.stop()
        # These are not read yet, and lie where their keys will not be found any more.
        app.produce(rows(200, 400))
        cluster.grow("numbers", 8)
        app.producer = Producer({"bootstrap.servers": app.servers, "partitioner": "murmur2_random"})
        app.produce(rows(400, 600))
        app.app.config = replace(app.app.config, spark_settings={"spark.sql.shuffle.partitions": "3"})
        app.change(sums())
        assert str(app.app.prepare(spark).decisions[0].action.value) == "kept"
        app.send(rows(600, 660))

        numbers: dict[bytes, set[str]] = defaultdict(set)
        for _, key, value, _ in rows(0, 660):
            numbers[str(key).encode()].add(str(value))
        found = last(app.read("joined-out"))
        assert {key: set(str(value, "ascii").split(",")) for key, value in found.items() if value} == numbers  # type: ignore[arg-type]
        assert all(len(str(value, "ascii").split(",")) == 11 for value in found.values())  # type: ignore[arg-type]
        assert set(last(app.read("windowed-out")).values()) == {(11).to_bytes(8, "big")}
        expected = dict(
            zip(
                numbers,
                ([int(each)] for each in key_partitions(pa.array(numbers, pa.binary()), 8)),
                strict=True,
            )
        )
        assert owners(app, "scaling-joined-changelog", 0) == expected
        assert owners(app, "scaling-windowed-changelog", 8) == expected
        with app.app.table("joined") as view:
            assert {entry.key.encode() for entry in view.all()} == numbers.keys()

        # The same tasks, divided among fewer of Spark's, after a crash in the middle of a micro-batch.
        app.app.config = replace(app.app.config, spark_settings={"spark.sql.shuffle.partitions": "2"})
        app.make = lambda: type(app.app)(sums(), app.app.config)
        app.restart(forget_commits=True)
        app.send(rows(660, 720))
        assert set(last(app.read("windowed-out")).values()) == {(12).to_bytes(8, "big")}
        offsets = tmp_path / "scaling/numbers/1/offsets"
        newest = max(int(each.name) for each in offsets.iterdir() if each.name.isdecimal())
        settings = json.loads((offsets / str(newest)).read_text().splitlines()[1])["conf"]
        assert settings["spark.sql.shuffle.partitions"] == "2"
    finally:
        app.stop()
