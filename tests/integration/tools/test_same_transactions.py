"""Transactions as both tools show them, and a hanging one found and ended."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka_cluster import Cluster

pytestmark = [pytest.mark.maven, pytest.mark.slow, pytest.mark.timeout(300)]

TIMEOUT_S = 30
TOPIC = "paid"


@pytest.fixture(scope="module")
def open_producer(cluster: Cluster) -> Iterator[Producer]:
    """One transaction is committed, one aborted, one stays open as long as this producer lives."""

    def producer(name: str) -> Producer:
        made = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "transactional.id": name,
                "transaction.timeout.ms": 600_000,
                "log_level": 0,
            }
        )
        made.init_transactions(TIMEOUT_S)
        made.begin_transaction()
        made.produce(TOPIC, b"x", partition=0)
        made.flush(TIMEOUT_S)
        return made

    producer("committed").commit_transaction(TIMEOUT_S)
    producer("aborted").abort_transaction(TIMEOUT_S)
    left = producer("open")
    yield left
    left.purge()


@pytest.mark.parametrize(
    "arguments",
    [
        ("list",),
        ("list", "--transactional-id-pattern", "o.*"),
        ("list", "--duration-filter", "1000000"),
        ("describe", "--transactional-id", "open"),
        ("describe", "--transactional-id", "committed"),
        ("describe", "--transactional-id", "missing"),
        ("describe-producers", "--topic", TOPIC, "--partition", "0"),
        ("describe-producers", "--topic", TOPIC, "--partition", "0", "--broker-id", "1"),
        ("find-hanging", "--broker-id", "1"),
        ("find-hanging", "--topic", TOPIC, "--max-transaction-timeout", "0"),
        ("find-hanging", "--partition", "0"),
        ("abort", "--topic", TOPIC, "--partition", "0"),
        ("abort", "--topic", TOPIC, "--partition", "0", "--start-offset", "12345"),
        ("abort", "--topic", TOPIC, "--partition", "0", "--producer-id", "1"),
    ],
    ids="_".join,
)
def test_same_transactions(both: Any, open_producer: Producer, arguments: tuple[str, ...]) -> None:
    ours, theirs = both("transactions", *arguments)
    # How long a transaction has been open depends on when one asks.
    duration = re.compile(r"(\d{13}) \d+(?= |$)")
    cut = [[duration.sub(r"\1 #", line) for line in lines] for lines in (ours, theirs)]
    assert sorted(cut[0]) == sorted(cut[1])


def test_same_dump_and_records(both: Any, cluster: Cluster, open_producer: Producer) -> None:
    logs = sorted(cluster.data_dir.glob("__transaction_state-*/00000000000000000000.log"))
    written = [str(path) for path in logs if path.stat().st_size]
    ours, theirs = both("dump-log", "--transaction-log-decoder", "--files", ",".join(written), server=False)
    assert ours == theirs
    assert any('key: {"type":"0","data":{"transactionalId":"open"}}' in line for line in ours)
    count = sum(" key: " in line for line in ours)
    place = ("--topic", "__transaction_state", "--from-beginning", "--max-messages", str(count))
    formatter = "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"
    ours, theirs = both("console-consumer", *place, "--formatter", formatter, "--timeout-ms", "40000")
    assert len(ours) == count
    # Kafka's formatter puts nothing between records.
    assert sorted(ours) == sorted("\n".join(theirs).replace('}{"key"', '}\n{"key"').splitlines())


def test_a_transaction_is_ended_by_force(cluster: Cluster, tool: Any, open_producer: Producer) -> None:
    place = ("--bootstrap-server", cluster.bootstrap_servers)

    def state() -> str:
        described = tool("transactions", *place, "describe", "--transactional-id", "open", "--json")
        return str(described.data[0]["TransactionState"])

    assert state() == "Ongoing"
    ended = tool("transactions", *place, "forceTerminateTransaction", "--transactionalId", "open")
    assert ended.status == 0, ended.err
    assert state() in {"PrepareAbort", "CompleteAbort", "Empty"}
