"""Stores that go by time, on Spark: what expires, what was, and what waits for what is late. It goes on from
there after a crash."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spark.test_streams import Row, Running, by_driver
from tests.spark.topics import Cluster

from ottla.streams import (
    Joined,
    Materialized,
    Processor,
    ProcessorContext,
    Record,
    Stores,
    StreamsBuilder,
    Topology,
)
from ottla.testing.in_process import InProcessBroker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

KEYS = 40


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker() as running:
        yield running


class Remember(Processor):
    """Forwards whether it has seen a value lately, and what another store says it was a while ago."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.seen = context.get_state_store("seen")
        self.was = context.get_state_store("was")

    def process(self, record: Record) -> None:
        known = self.seen.put_if_absent(record.key, "x", record.timestamp_ms)
        self.was.put(record.key, record.value, record.timestamp_ms)
        before = self.was.get_as_of(record.key, record.timestamp_ms - 150)
        said = "nothing" if before is None else before.value
        self.context.forward(record.with_value(f"{record.value} after {said}, {known or 'new'}"))


def topology() -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store("seen", str, str, ttl=200))
    builder.add_state_store(Stores.versioned_key_value_store("was", str, str, history=400))
    orders = builder.stream("orders")
    orders.process(Remember, stores=["seen", "was"]).to("remembered")
    prices = builder.table("prices", materialized=Materialized.as_("prices"), history=1000)
    grace = Joined.as_("priced").with_grace_period(100)
    orders.join(prices, lambda order, price: f"{order} at {price}", joined=grace).to("priced")
    return builder.build()


def rows(topic: str, stamp: int) -> list[Row]:
    return [(topic, f"key-{n:02d}", f"{topic}-{stamp}", stamp) for n in range(KEYS)]


def test_what_expires_what_was_and_what_waits(spark: Any, broker: InProcessBroker, tmp_path: Path) -> None:
    cluster = Cluster(broker.bootstrap_servers)
    for topic in ("orders", "prices", "remembered", "priced"):
        cluster.create(topic, 2)
    running = Running(spark, broker, "times", topology(), tmp_path)
    sent: list[Row] = []
    try:
        # Prices come late, within the grace and behind it; each batch is worked on before the next.
        for batch in (
            rows("orders", 100),
            rows("prices", 50),
            rows("orders", 180),
            rows("prices", 170),
            rows("orders", 350),
            rows("prices", 300),
            rows("orders", 700),
        ):
            sent += batch
            running.send(batch)
            if batch[0][3] == 170:
                running.restart(forget_commits=True)
        for topic in ("remembered", "priced"):
            found = running.read(topic)
            assert len(found) > 2 * KEYS
            assert sorted(found, key=repr) == sorted(by_driver(topology(), sent, topic), key=repr)
        values = {value for _, value in running.read("remembered")}
        assert b"orders-350 after orders-180, new" in values
        assert b"orders-180 after nothing, x" in values
        assert b"orders-180 at prices-170" in {value for _, value in running.read("priced")}
    finally:
        running.stop()
