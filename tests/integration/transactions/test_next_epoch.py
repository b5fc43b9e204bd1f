"""Where a commit gives the epoch of the next transaction, whoever is left behind stays shut out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.client.transaction import CommittedOffset, Transactions, add_partitions
from ottla.records.producer import ProducerIdentity
from ottla.spark.connection import Connection, shared_connection
from ottla.testing import InProcessBroker
from ottla.wire.errors import KafkaError

GROUP = "reader"


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    with InProcessBroker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(20)
        yield shared_connection(broker.bootstrap_servers, {})


def commit(connection: Connection, transactions: Transactions, offset: int) -> bool:
    offsets = {("t", 0): CommittedOffset(offset, "")}
    return connection.run(transactions.commit(GROUP, offsets))


def announced(connection: Connection, name: str, producer: ProducerIdentity) -> None:
    connection.run(add_partitions(connection.cluster, name, producer, [("t", 0)]))


def test_each_transaction_has_an_epoch_of_its_own_without_asking(connection: Connection) -> None:
    transactions = Transactions(connection.cluster, "alone")
    first = connection.run(transactions.begin())
    assert commit(connection, transactions, 1)
    second = transactions.producer
    assert second != first
    # What still travels under the first epoch is refused.
    with pytest.raises(KafkaError):
        announced(connection, "alone", first)
    assert commit(connection, transactions, 2)
    committed = connection.run(transactions.committed_offsets(GROUP))
    assert committed["t", 0].offset == 2


def test_who_was_replaced_between_two_transactions_cannot_go_on(connection: Connection) -> None:
    zombie = Transactions(connection.cluster, "shared")
    connection.run(zombie.begin())
    assert commit(connection, zombie, 3)
    successor = Transactions(connection.cluster, "shared")
    connection.run(successor.begin())
    with pytest.raises(KafkaError):
        announced(connection, "shared", zombie.producer)
    with pytest.raises(KafkaError):
        commit(connection, zombie, 99)
    assert commit(connection, successor, 4)
    with pytest.raises(KafkaError):
        connection.run(zombie.begin())
    assert connection.run(successor.committed_offsets(GROUP))["t", 0].offset == 4
