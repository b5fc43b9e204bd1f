"""Apache Kafka's own tools and ours on Ottla: the same output there, too."""

from __future__ import annotations

import re
from typing import Any

import pytest
from bench import kafka_peer
from bench.kafka_peer import KafkaDistribution
from bench.maven import PeerUnavailable
from confluent_kafka import Producer
from kafka_cluster import CLASSES, TOOL_TIMEOUT_S, normal

from ottla.testing import InProcessBroker

pytestmark = [pytest.mark.maven, pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC = "shared"
TIMEOUT_S = 30
VARYING = re.compile(r"(?<=\d{13} )\d+(?= |$)|Epoch: \d+|HighWatermark: \d+")


@pytest.fixture(scope="module")
def distribution() -> KafkaDistribution:
    try:
        return kafka_peer.fetch()
    except PeerUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def transactions(broker: InProcessBroker) -> Any:
    """One is committed, one stays open."""
    made = []
    for name in ("shared-done", "shared-open"):
        settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name, "log_level": 0}
        producer = Producer({**settings, "transaction.timeout.ms": 600_000})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce(TOPIC, b"x", partition=0)
        producer.flush(TIMEOUT_S)
        made.append(producer)
    made[0].commit_transaction(TIMEOUT_S)
    yield made
    made[1].abort_transaction(TIMEOUT_S)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("transactions", ("list", "--transactional-id-pattern", "shared-.*")),
        ("transactions", ("describe", "--transactional-id", "shared-open")),
        ("transactions", ("describe-producers", "--topic", TOPIC, "--partition", "0")),
        ("transactions", ("find-hanging", "--topic", TOPIC, "--max-transaction-timeout", "0")),
        ("features", ("describe",)),
        ("features", ("downgrade", "--feature", "transaction.version=1", "--dry-run")),
        ("features", ("upgrade", "--feature", "group.version=9")),
        ("features", ("disable", "--feature", "missing", "--dry-run")),
        ("metadata-quorum", ("describe", "--status")),
        ("broker-api-versions", ()),
        ("topics", ("--describe", "--topic", TOPIC)),
        ("configs", ("--describe", "--topic", TOPIC, "--all")),
        ("get-offsets", ("--topic", TOPIC)),
    ],
    ids=lambda value: value if isinstance(value, str) else "_".join(value),
)
def test_same_output(
    broker: InProcessBroker,
    distribution: KafkaDistribution,
    transactions: Any,
    tool: Any,
    name: str,
    arguments: tuple[str, ...],
) -> None:
    place = ("--bootstrap-server", broker.bootstrap_servers)
    leads = name in {"features", "metadata-quorum", "transactions"}
    words = (*place, *arguments) if leads else (*arguments, *place)
    theirs = distribution.run_tool(CLASSES[name], *words, timeout_s=TOOL_TIMEOUT_S)
    ours = tool(name, *words)
    assert ours.status == theirs.returncode, theirs.stderr
    cut = [[VARYING.sub("#", line) for line in normal(text)] for text in (ours.out, theirs.stdout)]
    assert sorted(cut[0]) == sorted(cut[1])
    assert cut[0]
