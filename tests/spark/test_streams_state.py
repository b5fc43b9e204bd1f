"""State of many keys on Spark: it grows over many pages, and goes on from there after a crash."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spark.test_streams import Row, Running, by_driver, last
from tests.spark.topics import Cluster

from ottla.streams import Materialized, StreamsBuilder, TimeWindows, Topology
from ottla.streams.on_spark.slots import slot_of
from ottla.testing.in_process import InProcessBroker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

KEYS = 4000


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker() as running:
        yield running


def longest(first: str, second: str) -> str:
    return max(first, second, key=lambda text: (len(text), text))


def topology() -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("words").group_by_key()
    grouped.reduce(longest, Materialized.as_("longest")).to_stream().to("longest")
    windowed = grouped.windowed_by(TimeWindows.of_size_with_no_grace(1000))
    kept = Materialized.with_(str, str)
    joined = windowed.aggregate(str, lambda key, value, total: f"{total[-20:]}{value[:3]}", kept)
    joined.to_stream(lambda key, value: f"{key.key}@{key.window.start_ms % 10_000}").to("joined")
    return builder.build()


def rows(first: int, end: int, step: int, stamp: int) -> list[Row]:
    return [
        ("words", f"key-{n:05d}", f"{stamp}-{n * 7919 % 1000:030d}", stamp) for n in range(first, end, step)
    ]


def test_partitions_are_dealt_to_spark_s_tasks_in_turn(spark: Any) -> None:
    slots = [slot_of(partition) for partition in range(8)]
    frame = spark.createDataFrame([(slot,) for slot in slots], "slot bigint")
    dealt = frame.selectExpr("pmod(hash(slot), 4) AS task").collect()
    assert [row.task for row in dealt] == [0, 1, 2, 3, 0, 1, 2, 3]


def test_state_grows_over_pages_and_survives_a_crash(
    spark: Any, broker: InProcessBroker, tmp_path: Path
) -> None:
    cluster = Cluster(broker.bootstrap_servers)
    for topic in ("words", "longest", "joined"):
        cluster.create(topic, 2)
    running = Running(spark, broker, "pages", topology(), tmp_path)
    sent: list[Row] = []
    try:
        for batch in (
            rows(0, KEYS, 1, 10),
            # After a crash between the sink's commit and Spark's: the batch is computed again, not written.
            rows(0, KEYS, 2, 500),
            rows(KEYS // 2, 2 * KEYS, 1, 1200),
        ):
            sent += batch
            running.send(batch)
            running.restart(forget_commits=True)
        # Windows that have expired leave the state, the others stay.
        late = rows(0, KEYS, 100, 5000)
        sent += late
        running.send(late)
        for topic in ("longest", "joined"):
            expected = by_driver(topology(), sent, topic)
            found = running.read(topic)
            assert len(found) == len(expected)
            assert sorted(found, key=repr) == sorted(expected, key=repr)
        stores = {each.name: each for each in running.app.snapshot().stores}
        assert sum(stores["longest"].entries.values()) == 2 * KEYS
        # Of the windows, those of the last batch alone are still open.
        (windows,) = (each for name, each in stores.items() if name != "longest")
        assert sum(windows.entries.values()) == len(late)
        logged = running.read("pages-longest-changelog")
        assert last(logged) == last(by_driver(topology(), sent, "longest"))
    finally:
        running.stop()
