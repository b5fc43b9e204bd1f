"""A member that has been replaced without knowing it does no harm when it comes back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from group_members.crew import Agent, Journal
from group_members.stream import Stream
from group_members.watch import GroupWatch

PARTITIONS = 4
# Those that join again only when the program polls. aiokafka and KafkaJS do so in the background, and then a
# commit of records from before is one of a member in good standing.
CLIENTS = ("confluent-classic", "confluent-consumer", "kafka-python")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_member_that_slept_through_its_session_cannot_undo_commits(
    client: str,
    bootstrap_servers: str,
    new_topic: Callable[..., str],
    start_agent: Callable[[str], Agent],
    journal: Journal,
    watch: GroupWatch,
) -> None:
    topic = new_topic(partitions=PARTITIONS)
    watch.commit_beginning(topic, PARTITIONS)
    agent, sleeper = start_agent(client), start_agent(client)
    stream = Stream(bootstrap_servers, topic, PARTITIONS).start()
    agent.join(journal, "awake", [topic])
    sleeper.join(journal, "sleeper", [topic])
    watch.wait_balanced(2, PARTITIONS)
    journal.wait_committed(4)

    sleeper.freeze()
    watch.wait_balanced(1, PARTITIONS)
    journal.wait_committed(4)
    committed = watch.committed()
    sleeper.thaw()

    def check_committed() -> None:
        """It may still hold records, and try to commit them, before it hears that it is out."""
        nonlocal committed
        before, committed = committed, watch.committed()
        assert all(committed[where] >= before[where] for where in before), (
            before,
            committed,
            journal.committed[-8:],
        )

    watch.wait_balanced(2, PARTITIONS, meanwhile=check_committed)
    records = stream.stop()
    journal.wait_delivered(records)
    assert journal.seen() == records
