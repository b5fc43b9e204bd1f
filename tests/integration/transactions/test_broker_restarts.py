"""The broker is killed while a transformer is at work: transactions go on or are ended, nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from test_transformers import PARTITIONS, end_open_transaction, fill
from transforming.outcome import assert_exactly_once, committed_offsets, read_topic
from transforming.processes import Killings, TransformerFailed, Transformers
from transforming.work import Work

from ottla.testing import BrokerProcess

KILLS = 3
RECORDS_PER_KILL = 80
TRANSACTIONS_PER_KILL = 4
# librdkafka may wait for good for the connection to a group's coordinator that it had before.
DIE_WITH_IT = ("confluent",)


@pytest.fixture
def broker(settings: dict[str, str]) -> Iterator[BrokerProcess]:
    with BrokerProcess(settings) as running:
        yield running


@pytest.mark.parametrize("client", ["confluent", "aio"])
def test_transactions_survive_the_broker(
    client: str, broker: BrokerProcess, transformers: Callable[[str], Transformers]
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for topic in ("source", "target"):
        admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)])[topic].result(
            20
        )
    work = Work(broker.bootstrap_servers, "source", "target", group="g", seed=7)
    with Killings(transformers(client), work, seed=7) as lives:

        def wait_step(name: str, count: int) -> None:
            """A client that gives up on the broker is started again, as whoever runs it would."""
            current = lives.current or lives.start()
            try:
                current.wait_step(name, current.steps[name] + count)
            except TransformerFailed:
                lives.kill()
                wait_step(name, count)

        for _ in range(KILLS):
            fill(broker.bootstrap_servers, "source", RECORDS_PER_KILL)
            wait_step("begun", TRANSACTIONS_PER_KILL)
            broker.kill9()
            if client in DIE_WITH_IT:
                lives.kill()
            broker.start()
        # Asked by a new client: one that lost its connection may wait out its time-out.
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        while sum(committed_offsets(admin, "g", "source", PARTITIONS)) < KILLS * RECORDS_PER_KILL:
            wait_step("idle", 1)
    end_open_transaction(work)
    consumed = committed_offsets(admin, "g", "source", PARTITIONS)
    assert sum(consumed) == KILLS * RECORDS_PER_KILL
    values = read_topic(broker.bootstrap_servers, "target", PARTITIONS, isolation="read_committed")
    assert_exactly_once(values, consumed)
