"""Consume, transform, produce, with the offsets in the transaction, by programs that are killed all the time.

What comes out is what would have come out without a single crash. OTTLA_TEST_KILLS says how often they are
killed in all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from transforming.outcome import assert_exactly_once, committed_offsets, read_topic
from transforming.processes import TRANSACTIONS_PER_LIFE_MAX, Killings, Transformers
from transforming.work import ABORTED, RECORDS_PER_TRANSACTION, Work

KILLS = int(os.environ.get("OTTLA_TEST_KILLS", "36"))
PARTITIONS = 2
# As many as a life can get done before it ends, or it would wait for more.
RECORDS_PER_KILL = (TRANSACTIONS_PER_LIFE_MAX + 1) * RECORDS_PER_TRANSACTION
KILLS_BETWEEN_LOOKS = 5
KILLS_TO_MEET_ABORTS = 10
# Whether a transaction is open, with records in it, when a process is killed is chance. Of so many, some are.
KILLS_TO_LEAVE_ONE_OPEN = 50

# A virtual machine takes seconds to start; the others are quick to kill.
SHARES = {"confluent": 0.51, "aio": 0.4, "java": 0.09}
CLIENTS = ["confluent", "aio", pytest.param("java", marks=pytest.mark.maven)]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("client", CLIENTS)
def test_killing_a_transformer_neither_loses_nor_repeats_a_record(
    client: str,
    bootstrap_servers: str,
    admin: AdminClient,
    names: Iterator[str],
    new_topic: Callable[[int], str],
    transformers: Callable[[str], Transformers],
) -> None:
    kills = round(KILLS * SHARES[client])
    source, target = new_topic(PARTITIONS), new_topic(PARTITIONS)
    work = Work(bootstrap_servers, source, target, group=next(names), seed=kills)
    total = kills * RECORDS_PER_KILL
    fill(bootstrap_servers, source, total)

    def check_so_far() -> None:
        """While nobody is at work."""
        consumed = committed_offsets(admin, work.group, source, PARTITIONS)
        values = read_topic(bootstrap_servers, target, PARTITIONS, isolation="read_committed")
        assert_exactly_once(values, consumed)

    with Killings(transformers(client), work, seed=kills) as killings:
        for number in range(kills):
            killings.kill_at_random()
            if number % KILLS_BETWEEN_LOOKS == 0:
                # A new producer ends what its predecessor has left open; then everything is quiet.
                end_open_transaction(work)
                check_so_far()
        last = killings.start()
        while sum(committed_offsets(admin, work.group, source, PARTITIONS)) < total:
            last.wait_step("idle", last.steps["idle"] + 1)
        check_so_far()
    if kills < KILLS_TO_MEET_ABORTS:
        return
    assert killings.steps["committed"] > kills, "most lives should get something done"
    everything = read_topic(bootstrap_servers, target, PARTITIONS, isolation="read_uncommitted")
    aborted = [value for values in everything for value in values if value.startswith(ABORTED)]
    assert aborted, "transactions were aborted, and their records are there for whoever asks"
    if kills >= KILLS_TO_LEAVE_ONE_OPEN:
        left_open = sum(map(len, everything)) - len(aborted) - total
        assert left_open > 0, "kills have left unfinished transactions behind"


def test_members_of_a_consumer_group_commit_in_transactions(
    bootstrap_servers: str,
    admin: AdminClient,
    names: Iterator[str],
    new_topic: Callable[[int], str],
    transformers: Callable[[str], Transformers],
) -> None:
    """Their epoch takes the place of a generation (KIP-848)."""
    source, target = new_topic(PARTITIONS), new_topic(PARTITIONS)
    work = Work(bootstrap_servers, source, target, group=next(names), seed=1, protocol="consumer")
    fill(bootstrap_servers, source, 40)
    with Killings(transformers("confluent"), work, seed=1) as lives:
        worker = lives.start()
        while sum(consumed := committed_offsets(admin, work.group, source, PARTITIONS)) < 40:
            worker.wait_step("idle", worker.steps["idle"] + 1)
    described = admin.describe_consumer_groups([work.group])[work.group].result(20)
    assert described.type.name == "CONSUMER"
    assert_exactly_once(
        read_topic(bootstrap_servers, target, PARTITIONS, isolation="read_committed"), consumed
    )


def fill(bootstrap_servers: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(20) == 0


def end_open_transaction(work: Work) -> None:
    producer = Producer(
        {"bootstrap.servers": work.bootstrap_servers, "transactional.id": work.transactional_id}
    )
    producer.init_transactions(20)
