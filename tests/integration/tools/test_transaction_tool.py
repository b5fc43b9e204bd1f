"""Transactions seen and ended with the tool."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.client.admin import transactions
from ottla.client.admin.topics import Partition
from ottla.client.admin.transactions import ActiveProducer, Listed, Transaction
from ottla.testing import InProcessBroker

TIMEOUT_S = 30


def begun(broker: InProcessBroker, topic: str, name: str) -> Producer:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name, "log_level": 0}
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    producer.flush(TIMEOUT_S)
    return producer


@pytest.fixture
def ask(tool: Any, broker: InProcessBroker) -> Any:
    def run(*arguments: str) -> Any:
        return tool("transactions", "--bootstrap-server", broker.bootstrap_servers, *arguments)

    return run


def test_transactions_are_listed_and_described(broker: InProcessBroker, topic: str, ask: Any) -> None:
    begun(broker, topic, f"{topic}-done").commit_transaction(TIMEOUT_S)
    left = begun(broker, topic, f"{topic}-open")
    listed = ask("list", "--transactional-id-pattern", f"{topic}-.*", "--json").data
    states = {item["TransactionalId"]: item["TransactionState"] for item in listed}
    assert states == {f"{topic}-done": "CompleteCommit", f"{topic}-open": "Ongoing"}
    assert ask("list", "--duration-filter", "1000000", "--transactional-id-pattern", topic).lines == [
        "TransactionalId\tCoordinator\tProducerId\tTransactionState"
    ]
    (described,) = ask("describe", "--transactional-id", f"{topic}-open", "--json").data
    assert described["TransactionState"] == "Ongoing"
    assert described["TopicPartitions"] == f"{topic}-0"
    assert described["TransactionTimeoutMs"] == 60_000
    assert 0 <= described["TransactionDurationMs"] < 60_000
    producers = ask("describe-producers", "--topic", topic, "--partition", "0", "--json").data
    starts = {item["ProducerId"]: item["CurrentTransactionStartOffset"] for item in producers}
    assert starts[described["ProducerId"]] == 12
    assert "the ID could not be found" in ask("describe", "--transactional-id", "missing").err
    left.abort_transaction(TIMEOUT_S)
    (described,) = ask("describe", "--transactional-id", f"{topic}-open", "--json").data
    assert described["TransactionState"] == "CompleteAbort"


def test_a_transaction_is_ended_by_force(broker: InProcessBroker, topic: str, ask: Any, tool: Any) -> None:
    left = begun(broker, topic, topic)
    ended = ask("forceTerminateTransaction", "--transactionalId", topic)
    assert (ended.status, ended.err) == (0, "")
    assert stable_end(tool, broker, topic) > 10
    with pytest.raises(Exception, match=r"fenced|epoch"):
        left.commit_transaction(TIMEOUT_S)


def test_a_transaction_is_aborted_on_its_partition(
    broker: InProcessBroker, topic: str, ask: Any, tool: Any
) -> None:
    left = begun(broker, topic, topic)
    assert stable_end(tool, broker, topic) == 10
    aborted = ask("abort", "--topic", topic, "--partition", "0", "--start-offset", "10")
    assert (aborted.status, aborted.err) == (0, "")
    assert stable_end(tool, broker, topic) == 12
    again = ask("abort", "--topic", topic, "--partition", "0", "--start-offset", "10")
    assert "Could not find any open transactions starting at offset 10" in again.err
    left.purge()


def test_only_committed_records_are_printed(broker: InProcessBroker, topic: str, tool: Any) -> None:
    begun(broker, topic, f"{topic}-aborted").abort_transaction(TIMEOUT_S)
    begun(broker, topic, f"{topic}-committed").commit_transaction(TIMEOUT_S)
    reading = ("--topic", topic, "--partition", "0", "--offset", "earliest", "--timeout-ms", "1500")
    place = ("--bootstrap-server", broker.bootstrap_servers)
    everything = tool("console-consumer", *reading, *place)
    committed = tool("console-consumer", *reading, *place, "--isolation-level", "read_committed")
    values = [f"v{number}" for number in range(10)]
    assert everything.lines == [*values, "x", "x"]
    assert committed.lines == [*values, "x"]


def test_transactions_are_printed_and_dumped(tool: Any, tmp_path: Path) -> None:
    with InProcessBroker(data_dir=str(tmp_path)) as broker:
        place = ("--bootstrap-server", broker.bootstrap_servers)
        load = ("--topic", "t", "--num-records", "2", "--record-size", "1", "--throughput", "-1")
        measured = tool("producer-perf-test", *load, *place, "--transactional-id", "measured")
        assert measured.status == 0, measured.err
        formatter = "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"
        reading = ("--topic", "__transaction_state", "--from-beginning", "--max-messages", "4")
        printed = tool("console-consumer", *reading, *place, "--formatter", formatter)
    records = [json.loads(line) for line in printed.lines]
    assert {record["key"]["data"]["transactionalId"] for record in records} == {"measured"}
    assert [record["value"]["data"]["transactionStatus"] for record in records] == [0, 1, 2, 4]
    logs = tmp_path.glob("__transaction_state-*/00000000000000000000.log")
    written = ",".join(str(path) for path in logs if path.stat().st_size)
    dumped = tool("dump-log", "--transaction-log-decoder", "--files", written).out
    assert 'key: {"type":"0","data":{"transactionalId":"measured"}} payload: {"version":"1",' in dumped


def stable_end(tool: Any, broker: InProcessBroker, topic: str) -> int:
    """Up to where those read who want committed records only."""
    from ottla.cli.cluster.admin import Admin
    from ottla.client.admin.topics import offsets_or_fail
    from ottla.client.cluster import LATEST

    admin = Admin(broker.bootstrap_servers, {}, "test")
    try:
        partition = Partition(topic, 0)
        return admin.call(offsets_or_fail, {partition: LATEST}, read_committed=True)[partition].offset
    finally:
        admin.close()


def test_only_what_no_coordinator_knows_hangs(
    monkeypatch: pytest.MonkeyPatch, topic: str, ask: Any, broker: InProcessBroker
) -> None:
    """Three old open transactions: of a known id, of an id with other partitions, of nobody."""
    long_ago_ms = time.time_ns() // 1_000_000 - 3_600_000
    partition = Partition(topic, 0)
    open_ones = [ActiveProducer(number, 0, -1, 0, long_ago_ms, number * 10) for number in (1, 2, 3)]

    async def producers(cluster: Any, wanted: Any, node: Any) -> dict[Partition, list[ActiveProducer]]:
        return {partition: open_ones}

    async def listed(cluster: Any, producer_ids: Any) -> list[Listed]:
        return [Listed(f"t{number}", 1, number, "Ongoing") for number in (1, 2)]

    async def describe(cluster: Any, name: str) -> Transaction:
        waiting = {"t1": partition, "t2": Partition("elsewhere", 0)}[name]
        return Transaction(1, name, int(name[1:]), 0, "Ongoing", 60_000, long_ago_ms, (waiting,))

    monkeypatch.setattr(transactions, "describe_producers", producers)
    monkeypatch.setattr(transactions, "list_transactions", listed)
    monkeypatch.setattr(transactions, "describe_transaction", describe)
    found = ask("find-hanging", "--topic", topic, "--json").data
    assert [(item["ProducerId"], item["StartOffset"], item["Duration(min)"]) for item in found] == [
        (2, 20, 60),
        (3, 30, 60),
    ]
    patient = ask("find-hanging", "--topic", topic, "--max-transaction-timeout", "61", "--json").data
    assert patient == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("find-hanging",), "requires either --topic or --broker-id"),
        (("find-hanging", "--broker-id", "1", "--partition", "0"), "--partition argument requires --topic"),
        (("abort", "--topic", "t", "--partition", "0"), "must be identified either with --start-offset"),
        (
            ("abort", "--topic", "t", "--partition", "0", "--producer-id", "1"),
            "Missing required argument --producer-epoch",
        ),
    ],
)
def test_what_makes_no_sense_is_said(ask: Any, arguments: tuple[str, ...], message: str) -> None:
    refused = ask(*arguments)
    assert refused.status == 1
    assert message in refused.err
