"""Our dashboards, our alerts and public dashboards for Apache Kafka, evaluated by a real Prometheus that
scrapes a real cluster: first a sound one, then one that is broken bit by bit until every alert fires."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_server import IS_INSTALLED, Prometheus, wait_until
from public_queries import QUERIES

from ottla.cli.main import main
from ottla.cli.monitoring.alerts import ALERTS, LAG_MAX
from ottla.testing import BrokerCluster

pytestmark = [
    pytest.mark.skipif(not IS_INSTALLED, reason="prometheus and promtool are not installed"),
    pytest.mark.xdist_group("prometheus"),
]
SHARE_MIN = 0.9
SETTINGS = {
    "ottla.metrics.listener": "127.0.0.1:0",
    "broker.session.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 300,
    "log.initial.task.delay.ms": 0,
    "ottla.scrub.interval.ms": 1,
    "ottla.scrub.bytes.per.second": 1_000_000_000,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with BrokerCluster(SETTINGS, relayed=False) as running:
        yield running


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("monitoring")
    assert main(["dashboards", str(directory)]) == 0
    return directory


@pytest.fixture(scope="module")
def prometheus(
    cluster: BrokerCluster, files: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    load(cluster)
    targets = [
        re.findall(r"metrics are at http://(\S+)/metrics", broker.log)[-1]
        for broker in cluster.brokers.values()
    ]
    # Nobody waits for minutes here.
    rules = re.sub(r"for: \S+", "for: 0s", (files / "ottla-alerts.yml").read_text())
    with Prometheus(tmp_path_factory.mktemp("prometheus"), targets, rules) as running:
        wait_until(lambda: len(running.query("up == 1")) == len(targets))
        # Rates want some scrapes of each.
        wait_until(lambda: len(running.query("count_over_time(up[1m]) >= 4")) == len(targets))
        yield running


def load(cluster: BrokerCluster) -> None:
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    admin = AdminClient(servers)
    topics = [
        NewTopic("orders", 3, 3),
        NewTopic("alone", 3, 1),
        NewTopic("strict", 1, 3, config={"min.insync.replicas": "3"}),
        NewTopic("rotting", 1, 3, config={"internal.segment.bytes": "20000"}),
    ]
    for made in admin.create_topics(topics).values():
        made.result(30)
    for topic in topics:
        for index in range(topic.num_partitions):
            cluster.wait_in_sync(topic.topic, topic.replication_factor, index)
    producer = Producer(servers)
    for number in range(300):
        producer.produce("orders", b"value", partition=number % 3)
        producer.produce("rotting", bytes(1000))
        producer.flush(30)
    consumer = Consumer({**servers, "group.id": "shop", "enable.auto.commit": False})
    consumer.assign([TopicPartition("orders", index, 0) for index in range(3)])
    assert consumer.consume(1, timeout=30)
    consumer.commit(offsets=[TopicPartition("orders", index, 50) for index in range(3)], asynchronous=False)
    consumer.close()


def expressions(files: Path) -> dict[str, str]:
    return {
        f"{path.name}: {panel['title']}": target["expr"].replace("$job", "ottla")
        for path in sorted(files.glob("*.json"))
        for panel in json.loads(path.read_text())["panels"]
        for target in panel.get("targets", [])
    }


def test_promtool_takes_the_rules(files: Path) -> None:
    checked = subprocess.run(
        ["promtool", "check", "rules", files / "ottla-alerts.yml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_panel_of_our_dashboards_has_data(prometheus: Prometheus, files: Path) -> None:
    asked = expressions(files)
    assert len(asked) >= 20
    # There are errors only where there were some: none of them is as good.
    empty = [name for name, expression in asked.items() if not prometheus.query(expression)]
    assert set(empty) <= {"ottla-cluster.json: Errors"}
    groups = "sum by (consumergroup, topic) (kafka_consumergroup_lag)"
    assert prometheus.query(groups) == [150.0], "each partition once, whoever tells of it"
    assert prometheus.query("sum(kafka_topic_partitions)")[0] >= 7


def test_public_dashboards_find_what_they_ask_for(prometheus: Prometheus) -> None:
    missing = [query for query in QUERIES if not prometheus.query(query)]
    share = 1 - len(missing) / len(QUERIES)
    print(f"{share:.0%} of {len(QUERIES)} queries have data; not {missing}")
    assert share >= SHARE_MIN, missing


def test_every_alert_fires_when_it_should(cluster: BrokerCluster, prometheus: Prometheus) -> None:
    def wait_firing(*names: str) -> None:
        wait_until(lambda: prometheus.firing() >= set(names))

    assert prometheus.firing() == set(), "a sound cluster"
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    survivor = cluster.controller()
    # A group that does not read.
    producer = Producer({**servers, "linger.ms": 50})
    for _ in range(LAG_MAX + 1):
        producer.produce("orders", b"value", partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0
    wait_firing("OttlaGroupLags")
    # A transaction that does not end.
    hanging = Producer({**servers, "transactional.id": "hanging"})
    hanging.init_transactions(30)
    hanging.begin_transaction()
    hanging.produce("orders", b"open", partition=0)
    assert hanging.flush(30) == 0
    wait_firing("OttlaTransactionOpen")
    # A byte that rots, where nobody writes any more.
    segment = min(Path(survivor.data_dir).glob("rotting-0/*.log"))
    with open(segment, "r+b") as file:
        file.seek(80)
        byte = file.read(1)[0]
        file.seek(80)
        file.write(bytes([byte ^ 1]))
    wait_firing("OttlaDamagedRecords")
    # A broker that dies, the only one with one of the partitions.
    first, second = (broker for broker in cluster.brokers.values() if broker is not survivor)
    first.kill9()
    wait_firing(
        "OttlaBrokerDown",
        "OttlaBrokerFenced",
        "OttlaOfflinePartitions",
        "OttlaUnderReplicatedPartitions",
        "OttlaUnderMinIsr",
    )
    assert "OttlaNoActiveController" not in prometheus.firing()
    # And one more: nobody has a majority.
    second.kill9()
    wait_firing("OttlaNoActiveController")
    assert {alert.name for alert in ALERTS} == {
        "OttlaBrokerDown",
        "OttlaBrokerFenced",
        "OttlaDamagedRecords",
        "OttlaGroupLags",
        "OttlaNoActiveController",
        "OttlaOfflinePartitions",
        "OttlaTransactionOpen",
        "OttlaUnderMinIsr",
        "OttlaUnderReplicatedPartitions",
    }, "each was seen above"
