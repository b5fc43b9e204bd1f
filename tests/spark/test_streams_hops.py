"""One run through several topics between queries ends when the last of them has been read."""

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
