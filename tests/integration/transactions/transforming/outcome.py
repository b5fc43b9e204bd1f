"""What a transformer's work has come to, as readers see it."""

from __future__ import annotations

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from transforming.work import ABORTED

END = KafkaError._PARTITION_EOF


def read_topic(bootstrap_servers: str, topic: str, partitions: int, *, isolation: str) -> list[list[bytes]]:
    """All values by partition, up to where such a reader may see now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "outcome",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values: list[list[bytes]] = [[] for _ in range(partitions)]
    reading = set(range(partitions))
    while reading:
        message = consumer.poll(20)
        assert message is not None, f"nothing more to read, and no end, in partitions {reading} of {topic}"
        error = message.error()
        if error is None:
            values[message.partition()].append(message.value())
        elif error.code() == END:
            reading.discard(message.partition())
        else:
            raise KafkaException(error)
    consumer.close()
    return values


def committed_offsets(admin: AdminClient, group: str, topic: str, partitions: int) -> list[int]:
    """Only stable ones: the answer waits for transactions that are still open."""
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, index) for index in range(partitions)])
    offsets = admin.list_consumer_group_offsets([asked], require_stable=True)[group].result(20)
    return [max(found.offset, 0) for found in offsets.topic_partitions]


def assert_exactly_once(values: list[list[bytes]], consumed: list[int]) -> None:
    """The output of every record below the committed offset, once and in order; nothing else."""
    for partition, found in enumerate(values):
        aborted = [value for value in found if value.startswith(ABORTED)]
        assert not aborted, f"aborted records can be read: {aborted}"
        expected = [b"%d:%d" % (partition, offset) for offset in range(consumed[partition])]
        assert found == expected, _difference(partition, found, expected)


def _difference(partition: int, found: list[bytes], expected: list[bytes]) -> str:
    missing = sorted(set(expected) - set(found))
    surplus = sorted(set(found) - set(expected))
    twice = sorted({value for value in found if found.count(value) > 1})
    return (
        f"partition {partition}: {len(found)} records for {len(expected)} consumed; "
        f"missing {missing}, too many {surplus}, twice {twice}"
    )
