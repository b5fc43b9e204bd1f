"""A group as the coordinator describes it, next to what its members say."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription

from group_members.crew import WAIT_S_MAX, Journal, Partition

ANSWER_TIMEOUT_S = 20.0
LOOK_AGAIN_S = 0.02


class GroupWatch:
    def __init__(self, admin: AdminClient, journal: Journal) -> None:
        self._admin = admin
        self._journal = journal

    def describe(self) -> ConsumerGroupDescription:
        group = self._journal.group
        return self._admin.describe_consumer_groups([group])[group].result(ANSWER_TIMEOUT_S)

    def committed(self) -> dict[Partition, int]:
        request = ConsumerGroupTopicPartitions(self._journal.group)
        answer = self._admin.list_consumer_group_offsets([request])[self._journal.group]
        found: list[TopicPartition] = answer.result(ANSWER_TIMEOUT_S).topic_partitions
        return {(item.topic, item.partition): item.offset for item in found}

    def commit_beginning(self, topic: str, partitions: int) -> None:
        """So that no member has to look for the beginning. librdkafka looks again half a second later when a
        rebalance comes in between, and goes back there, whatever it has read and committed by then.
        """
        where = [TopicPartition(topic, number, 0) for number in range(partitions)]
        request = ConsumerGroupTopicPartitions(self._journal.group, where)
        self._admin.alter_consumer_group_offsets([request])[self._journal.group].result(ANSWER_TIMEOUT_S)

    def wait_balanced(
        self,
        members: int,
        partitions: int,
        timeout_s: float = WAIT_S_MAX,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Stable, as even as it can be, and the members know the same as the coordinator."""
        each, more = divmod(partitions, members)
        sizes = [each + 1] * more + [each] * (members - more)

        def balanced(group: ConsumerGroupDescription) -> bool:
            meanwhile()
            if group.state is not ConsumerGroupState.STABLE:
                return False
            described = sorted(
                sorted((at.topic, at.partition) for at in member.assignment.topic_partitions)
                for member in group.members
            )
            reported = sorted(sorted(owned) for owned in self._journal.assigned.values())
            return sorted(map(len, described), reverse=True) == sizes and described == reported

        self._wait(balanced, f"{partitions} partitions over {members} members", timeout_s)

    def _wait(
        self, condition: Callable[[ConsumerGroupDescription], bool], what: str, timeout_s: float
    ) -> ConsumerGroupDescription:
        journal = self._journal
        deadline = time.monotonic() + timeout_s
        while not condition(group := self.describe()):
            assert not journal.failures, journal.failures[0]
            assert time.monotonic() < deadline, (
                f"{journal.group}: not within {timeout_s} s: {what}; {group.state.name} with "
                f"{len(group.members)} members; {journal.summary()}"
            )
            with journal.changed:
                journal.changed.wait(LOOK_AGAIN_S)
        return group
