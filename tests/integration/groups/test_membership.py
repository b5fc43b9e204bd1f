"""Who gets which records while members come, go and die: every client, few members and too many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient
from group_members.crew import Agent, Journal
from group_members.stream import Stream
from group_members.watch import GroupWatch

PARTITIONS = 4
CLIENTS = ("confluent-classic", "confluent-consumer", "kafka-python", "aiokafka", "kafkajs")

pytestmark = pytest.mark.parametrize("client", CLIENTS)


@pytest.mark.parametrize("members", [1, 2, 4, 6])
def test_every_record_goes_to_exactly_one_member(
    client: str,
    members: int,
    bootstrap_servers: str,
    new_topic: Callable[..., str],
    start_agent: Callable[[str], Agent],
    journal: Journal,
    watch: GroupWatch,
) -> None:
    topic = new_topic(partitions=PARTITIONS)
    watch.commit_beginning(topic, PARTITIONS)
    agent = start_agent(client)
    for number in range(members):
        agent.join(journal, f"m{number}", [topic])
    watch.wait_balanced(members, PARTITIONS)

    records = Stream(bootstrap_servers, topic, PARTITIONS).produce(400)
    journal.wait_delivered(records)
    journal.wait(lambda: _is_committed(journal, records), "commits of all records")

    assert not journal.refused
    assert Counter((where, offset) for _, _, where, offset in journal.delivered) == Counter(records)
    owners = {(member, where) for _, member, where, _ in journal.delivered}
    assert owners == {(member, where) for member, owned in journal.assigned.items() for where in owned}
    idle = [member for member, owned in journal.assigned.items() if not owned]
    assert len(idle) == max(0, members - PARTITIONS)
    assert watch.committed() == {(topic, number): 100 for number in range(PARTITIONS)}


def test_nothing_is_skipped_or_repeated_while_members_come_and_go(
    client: str,
    bootstrap_servers: str,
    new_topic: Callable[..., str],
    start_agent: Callable[[str], Agent],
    journal: Journal,
    watch: GroupWatch,
) -> None:
    topic = new_topic(partitions=PARTITIONS)
    watch.commit_beginning(topic, PARTITIONS)
    agent, victim = start_agent(client), start_agent(client)
    stream = Stream(bootstrap_servers, topic, PARTITIONS).start()
    agent.join(journal, "first", [topic])
    victim.join(journal, "victim", [topic])
    watch.wait_balanced(2, PARTITIONS)
    journal.wait_committed(4)

    agent.join(journal, "joins mid-stream", [topic])
    watch.wait_balanced(3, PARTITIONS)
    journal.wait_committed(4)

    victim.kill()
    watch.wait_balanced(2, PARTITIONS)
    journal.wait_committed(4)

    for old, new in (("first", "first again"), ("joins mid-stream", "another")):
        agent.leave(old)
        journal.wait(lambda old=old: old in journal.left, f"{old} to leave")
        agent.join(journal, new, [topic])
        watch.wait_balanced(2, PARTITIONS)
        journal.wait_committed(4)

    agent.leave("another")
    watch.wait_balanced(1, PARTITIONS)
    records = stream.stop()
    journal.wait_delivered(records)
    journal.wait(lambda: _is_committed(journal, records), "commits of all records")

    assert journal.seen() == records
    assert journal.delivered_after_commit() == []


def test_two_groups_each_see_everything(
    client: str,
    bootstrap_servers: str,
    new_topic: Callable[..., str],
    start_agent: Callable[[str], Agent],
    admin: AdminClient,
    journal: Journal,
) -> None:
    topic = new_topic(partitions=PARTITIONS)
    records = Stream(bootstrap_servers, topic, PARTITIONS).produce(200)
    other = Journal(f"{journal.group}-other")
    agent = start_agent(client)
    for each in (journal, other):
        GroupWatch(admin, each).commit_beginning(topic, PARTITIONS)
        for number in range(2):
            agent.join(each, f"{each.group} m{number}", [topic])

    for each in (journal, other):
        each.wait_delivered(records)
        assert each.seen() == records
        assert each.delivered_after_commit() == []


def _is_committed(journal: Journal, records: set[tuple[tuple[str, int], int]]) -> bool:
    done = {(where, offset) for _, _, where, offset in journal.committed}
    ends = Counter(where for where, _ in records)
    return all(end in done for end in ends.items())
