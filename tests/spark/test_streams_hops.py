"""One run through several topics between queries ends when the last of them has been read; and records wait
for the topics that they meet others of."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.spark.test_streams import Running, last
from tests.spark.topics import Cluster

from ottla.cli.tools.run import _watch
from ottla.streams import Materialized, Processor, Record, Repartitioned, StreamsBuilder, Topology
from ottla.testing.in_process import InProcessBroker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker() as running:
        yield running


class Shout(Processor):
    def process(self, record: Record) -> None:
        self.context.forward(record.with_value(f"{record.value}!"))


def two_hops() -> Topology:
    """Processors make tasks, and what a task writes to a repartition topic no shuffle can stand for."""
    builder = StreamsBuilder()
    once = builder.stream("said").process(Shout).repartition(Repartitioned.as_("first"))
    twice = once.process(Shout).repartition(Repartitioned.as_("second"))
    grouped = twice.group_by(lambda key, line: line)
    grouped.reduce(lambda a, b: b, Materialized.as_("last")).to_stream().to("heard")
    return builder.build()


def test_once_ends_behind_the_last_hop(spark: Any, broker: InProcessBroker, tmp_path: Path) -> None:
    cluster = Cluster(broker.bootstrap_servers)
    for topic in ("said", "heard"):
        cluster.create(topic, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for n in range(10):
        # Those without a key have to come through as well.
        producer.produce("said", f"line {n}", None if n % 2 else b"key")
    assert producer.flush(10) == 0
    app = Running(spark, broker, "hops", two_hops(), tmp_path)
    try:
        assert {query.name for query in app.app.queries} == {
            "hops:said",
            "hops:first-repartition",
            "hops:last-repartition",
        }
        assert _watch(argparse.Namespace(once=True, json=True), [app.app], threading.Event()) is None
        assert last(app.read("heard")).keys() == {f"line {n}!!".encode() for n in range(10)}
    finally:
        app.stop()


def test_a_stream_waits_for_the_table_that_has_nothing(
    spark: Any, broker: InProcessBroker, tmp_path: Path
) -> None:
    """Behind a repartition topic as anywhere."""
    cluster = Cluster(broker.bootstrap_servers)
    for topic in ("orders", "prices", "priced"):
        cluster.create(topic, 2)
    builder = StreamsBuilder()
    orders = builder.stream("orders").select_key(lambda key, item: item)
    orders.left_join(builder.table("prices"), lambda item, price: f"{item} {price}").to("priced")
    # So long that no slow machine comes to the end of it.
    app = Running(spark, broker, "waiting", builder.build(), tmp_path, max_task_idle_ms=600_000)
    try:
        app.produce([("orders", "1", "tea", 0)])
        while not app.read("waiting-KSTREAM-KEY-SELECT-0000000001-repartition"):
            app.app.raise_failure()
        # The order can be read, and Spark asks for it again and again.
        app.produce([("prices", "tea", "5", -10)])
        app.app.process_all_available()
        assert app.read("priced") == [(b"tea", b"tea 5")]
    finally:
        app.stop()
