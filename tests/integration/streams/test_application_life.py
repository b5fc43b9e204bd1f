"""An application on a cluster before and beside Spark: how far it is, what is purged, what a reset takes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

pytest.importorskip("pyspark", reason="needs the extra ottla[spark]")

from ottla.cli.main import main
from ottla.client.cluster import EARLIEST
from ottla.client.errors import ClusterUnreachable
from ottla.spark.connection import Connection
from ottla.streams import Materialized, StreamsBuilder, StreamsError
from ottla.streams.application.lag import CatchUp, Reading, ends_of
from ottla.streams.application.purging import Purger
from ottla.streams.application.upgrade import Action
from ottla.streams.run import StreamsApplication, StreamsConfig
from ottla.testing import InProcessBroker


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with InProcessBroker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def connection(bootstrap: str) -> Connection:
    return Connection(bootstrap, {})


def create(bootstrap: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(name, 1, 1) for name in topics]).values():
        created.result(30)


def fill(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(count):
        producer.produce(topic, str(n))
    assert producer.flush(30) == 0


def commit(bootstrap: str, group: str, topic: str, offset: int, metadata: str = "") -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    place = TopicPartition(topic, 0, offset, metadata) if metadata else TopicPartition(topic, 0, offset)
    consumer.commit(offsets=[place], asynchronous=False)
    consumer.close()


def test_lag_is_that_of_all_hops(bootstrap: str, connection: Connection) -> None:
    create(bootstrap, "source", "between")
    fill(bootstrap, "source", 5)
    first = Reading("hops:source", frozenset({"source"}), frozenset({"source"}))
    second = Reading("hops:between", frozenset({"between"}), frozenset({"between"}))
    catch_up = CatchUp(connection, [first, second], frozenset({"between"}))
    assert catch_up.lag() == 5
    # What comes to a source later is for later; what comes to a topic between two queries is not.
    fill(bootstrap, "source", 2)
    fill(bootstrap, "between", 3)
    commit(bootstrap, "hops:source", "source", 5)
    assert catch_up.lag() == 3
    commit(bootstrap, "hops:between", "between", 3)
    assert catch_up.lag() == 0


def test_what_all_readers_have_read_is_deleted(bootstrap: str, connection: Connection) -> None:
    create(bootstrap, "app-x-repartition")
    fill(bootstrap, "app-x-repartition", 10)
    purger = Purger(connection, {"app-x-repartition": ["app:a", "app:b"]}, interval_s=0)
    place = ("app-x-repartition", 0)
    purger.purge({"app:a": {place: 7}})
    begin = connection.run(ends_of(connection.cluster, ["app-x-repartition"], EARLIEST))
    assert begin == {place: 0}, "the other reader has not begun"
    purger.purge({"app:a": {place: 7}, "app:b": {place: 4}})
    assert connection.run(ends_of(connection.cluster, ["app-x-repartition"], EARLIEST)) == {place: 4}


def counting(bootstrap: str, state_dir: Path, store: str | None = "counts") -> StreamsApplication:
    builder = StreamsBuilder()
    grouped = builder.stream("lines-in").group_by_key()
    grouped.count(Materialized.as_(store) if store else None).to_stream().to("out")
    return StreamsApplication(builder.build(), StreamsConfig("counting", bootstrap, state_dir=str(state_dir)))


def test_state_that_is_gone_is_told_before_spark_starts(bootstrap: str, tmp_path: Path) -> None:
    create(bootstrap, "lines-in")
    (decision,) = counting(bootstrap, tmp_path).prepare().decisions
    assert decision.action is Action.NEW
    commit(bootstrap, "counting:lines-in", "lines-in", 0, json.dumps({"query": "q", "batch": 3}))
    (decision,) = counting(bootstrap, tmp_path).prepare().decisions
    assert (decision.action, decision.restored) == (Action.REBUILT, ("counts",))
    with pytest.raises(
        StreamsError, match="counting:lines-in: its checkpoint is gone, and the store KSTREAM-"
    ):
        counting(bootstrap, tmp_path, None).start()


def test_a_cluster_that_is_not_there_is_told_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.streams.run.spark_session", lambda *_, **__: pytest.fail("Spark was started"))
    app = counting("127.0.0.1:1", tmp_path)
    began = time.monotonic()
    with pytest.raises(ClusterUnreachable):
        app.start()
    assert time.monotonic() - began < 60


def test_a_reset_takes_all_topics_of_the_application_and_none_of_another(
    bootstrap: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    own = [
        "orders-names-changelog",
        "orders-names-repartition",
        "orders-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic",
        "orders-named-subscription-response-topic",
    ]
    foreign = ["orders-1-names-changelog", "orders-my-own-topic"]
    create(bootstrap, "orders", *own, *foreign)
    commit(bootstrap, "orders:orders", "orders", 0)
    commit(bootstrap, "orders-1:orders", "orders", 0)
    argv = ["streams-application-reset", "--application-id", "orders", "--json", "--input-topics", "orders"]
    argv += ["--bootstrap-server", bootstrap, "--state-dir", str(tmp_path), "--dry-run"]
    capfd.readouterr()
    assert main(argv) == 0
    told = json.loads(capfd.readouterr().out)
    assert told["deletedTopics"] == sorted(own)
    assert list(told["offsets"]) == ["orders:orders"]
