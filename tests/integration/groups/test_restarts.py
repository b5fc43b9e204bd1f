"""The broker goes down, in order or by SIGKILL, while a group is at work: it continues where it committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from group_members.crew import Agent, Journal, Partition
from group_members.settings import BROKER_SETTINGS
from group_members.stream import Stream
from group_members.watch import GroupWatch

from ottla.testing import BrokerProcess

PARTITIONS = 4
CLIENTS = ("confluent-classic", "confluent-consumer")


def _shut_down(broker: BrokerProcess) -> None:
    assert broker.stop() == 0


ENDINGS: dict[str, Callable[[BrokerProcess], None]] = {"shut down": _shut_down, "killed": BrokerProcess.kill9}


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(BROKER_SETTINGS) as running:
        admin = _admin(running)
        topic = NewTopic("work", num_partitions=PARTITIONS, replication_factor=1)
        admin.create_topics([topic])["work"].result(20)
        yield running


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("ending", ENDINGS)
def test_members_carry_on_over_restarts(client: str, ending: str, broker: BrokerProcess) -> None:
    journal = Journal("group")
    watch = GroupWatch(_admin(broker), journal)
    watch.commit_beginning("work", PARTITIONS)
    agent = Agent(client, broker.bootstrap_servers)
    stream = Stream(broker.bootstrap_servers, "work", PARTITIONS).start()
    try:
        for number in range(2):
            agent.join(journal, f"m{number}", ["work"])
        watch.wait_balanced(2, PARTITIONS)
        committed: dict[Partition, int] = {}
        for _ in range(2):
            journal.wait_committed(10)
            acknowledged = _highest(journal)
            ENDINGS[ending](broker)
            broker.start()
            # Asked by a new client: one that lost its connection with the broker may wait out its time-out.
            watch = GroupWatch(_admin(broker), journal)
            before, committed = committed, watch.committed()
            for where, offset in (before | acknowledged).items():
                assert committed[where] >= offset, f"the commit of {offset} in {where} is lost"
            journal.wait_committed(10)
        records = stream.stop()
        journal.wait_delivered(records)
        watch.wait_balanced(2, PARTITIONS)
    finally:
        agent.close()

    assert journal.seen() == records
    assert journal.delivered_after_commit() == []


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_group_that_was_empty_goes_on_from_its_commits(
    client: str, ending: str, broker: BrokerProcess
) -> None:
    """No member is there to bring its position along: all there is to know is in the broker's log."""
    journal = Journal("group")
    stream = Stream(broker.bootstrap_servers, "work", PARTITIONS)
    GroupWatch(_admin(broker), journal).commit_beginning("work", PARTITIONS)
    first = stream.produce(200)
    _consume(client, broker, journal, "before", first)
    committed = GroupWatch(_admin(broker), journal).committed()
    assert committed == {("work", number): 50 for number in range(PARTITIONS)}

    ENDINGS[ending](broker)
    broker.start()
    watch = GroupWatch(_admin(broker), journal)
    assert watch.describe().members == []
    assert watch.committed() == committed

    everything = stream.produce(200)
    _consume(client, broker, journal, "after", everything)
    assert journal.delivered_after_commit() == []
    assert {(where, offset) for _, member, where, offset in journal.delivered if member == "after"} == (
        everything - first
    )


def _consume(
    client: str, broker: BrokerProcess, journal: Journal, member: str, records: set[tuple[Partition, int]]
) -> None:
    """All of them, committed, by one member that then leaves."""
    agent = Agent(client, broker.bootstrap_servers)
    try:
        agent.join(journal, member, ["work"])
        journal.wait_delivered(records)
        agent.leave(member)
        journal.wait(lambda: member in journal.left, f"{member} to leave")
    finally:
        agent.close()


def _admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})


def _highest(journal: Journal) -> dict[Partition, int]:
    highest: dict[Partition, int] = {}
    with journal.changed:
        for _, _, where, offset in journal.committed:
            highest[where] = max(offset, highest.get(where, 0))
    return highest
