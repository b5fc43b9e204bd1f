"""The image knows which topics a broker has replicas of, whatever was done to them in whichever batches."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata.image import MetadataImage
from ottla.metadata.records import (
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

BROKERS = st.lists(st.integers(1, 4), min_size=1, max_size=3, unique=True).map(tuple)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.integers(0, 3), BROKERS),
        st.tuples(st.just("add"), st.integers(0, 3), BROKERS),
        st.tuples(st.just("move"), st.integers(0, 3), BROKERS),
        st.tuples(st.just("remove"), st.integers(0, 3), st.just((1,))),
        st.tuples(st.just("commit"), st.just(0), st.just((1,))),
    ),
    max_size=25,
)


def partition(topic: int, index: int, replicas: tuple[int, ...]) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=UUID(int=100 + topic),
        replicas=replicas,
        isr=replicas,
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=(None,) * len(replicas),
    )


@given(STEPS)
def test_topics_of_a_broker_are_those_with_a_replica_there(
    steps: list[tuple[str, int, tuple[int, ...]]],
) -> None:
    image = MetadataImage()
    batch: list[MetadataRecord] = []
    sizes: dict[int, int] = {}
    for step, topic, replicas in [*steps, ("commit", 0, (1,))]:
        topic_id = UUID(int=100 + topic)
        match step:
            case "create" if topic not in sizes:
                batch += [TopicRecord(name=f"t{topic}", topic_id=topic_id), partition(topic, 0, replicas)]
                sizes[topic] = 1
            case "add" if topic in sizes:
                batch.append(partition(topic, sizes[topic], replicas))
                sizes[topic] += 1
            case "move" if topic in sizes:
                batch.append(PartitionChangeRecord(partition_id=0, topic_id=topic_id, replicas=replicas))
            case "remove" if topic in sizes:
                batch.append(RemoveTopicRecord(topic_id=topic_id))
                del sizes[topic]
            case "commit":
                image = image.apply_all(batch, image.offset + len(batch), 1)
                batch = []
                for broker_id in range(1, 5):
                    expected = [
                        topic
                        for _, topic in sorted(image.topics.items())
                        if any(broker_id in partition.replicas for partition in topic.partitions)
                    ]
                    assert list(image.topics_with_replicas_on(broker_id)) == expected
                assert all(image.topics_on.values())
