"""One rebalance after the other under load, several members joining at once: the group settles every time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from group_members.consumers import REBALANCE_TIMEOUT_MS
from group_members.crew import Agent, Journal
from group_members.stream import Stream
from group_members.watch import GroupWatch

PARTITIONS = 8
STAYING = 2
COMING_AND_GOING = 3


@pytest.mark.parametrize(
    ("client", "assignor", "rounds"),
    [
        pytest.param("confluent-classic", "range", 25, marks=pytest.mark.slow),
        pytest.param("confluent-classic", "cooperative-sticky", 9, marks=pytest.mark.slow),
        pytest.param("confluent-consumer", "uniform", 25, marks=pytest.mark.slow),
        ("confluent-consumer", "range", 5),
    ],
)
def test_a_group_settles_after_every_rebalance(
    client: str,
    assignor: str,
    rounds: int,
    bootstrap_servers: str,
    new_topic: Callable[..., str],
    start_agent: Callable[[str], Agent],
    journal: Journal,
    watch: GroupWatch,
) -> None:
    """Three members join at once, and leave at once: two rebalances a round at the least, and three where
    partitions are given up before others get them.
    """
    topic = new_topic(partitions=PARTITIONS)
    watch.commit_beginning(topic, PARTITIONS)
    agent = start_agent(client)
    stream = Stream(bootstrap_servers, topic, PARTITIONS).start()
    for number in range(STAYING):
        agent.join(journal, f"stays {number}", [topic], assignor)
    for turn in range(rounds):
        passing = [f"{turn}.{number}" for number in range(COMING_AND_GOING)]
        for member in passing:
            agent.join(journal, member, [topic], assignor)
        watch.wait_balanced(STAYING + COMING_AND_GOING, PARTITIONS, REBALANCE_TIMEOUT_MS / 1000)
        for member in passing:
            agent.leave(member)
        watch.wait_balanced(STAYING, PARTITIONS, REBALANCE_TIMEOUT_MS / 1000)
    records = stream.stop()
    journal.wait_delivered(records)

    assert [reason for _, reason in journal.refused if "MEMBER_ID" in reason] == []
    assert len(watch.describe().members) == STAYING
    assert journal.left == {
        f"{turn}.{number}" for turn in range(rounds) for number in range(COMING_AND_GOING)
    }
    assert journal.seen() == records
    assert journal.delivered_after_commit() == []
