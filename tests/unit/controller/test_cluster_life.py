"""Whatever happens to brokers, in whatever order: what always holds of partitions."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_cluster import SESSION_MS, Cluster, directory, registration, topic_id

from ottla.controller.alter_partition import InSync, IsrChange, alter_partitions
from ottla.controller.directories import DirectoryAssignment, assign_directories
from ottla.controller.elections import balance_leaders, elect_leaders, elect_unclean_leaders
from ottla.controller.heartbeats import fence_broker
from ottla.controller.reassignment import Reassignment, alter_reassignments
from ottla.controller.registration import unregister_broker
from ottla.metadata.image import MetadataImage, PartitionImage
from ottla.metadata.records import NO_LEADER
from ottla.wire.errors import NewLeaderElected

BROKERS = (1, 2, 3, 4)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "fence", "heartbeat", "heartbeat", "shutdown", "restart", "restart in order", "unregister",
                "shrink", "expand", "expand", "balance", "elect unclean", "ask for unclean", "lose directory",
                "reassign", "reassign", "cancel", "move to directory",
            ]
        ),
        st.sampled_from(BROKERS),
    ),
    max_size=40,
)  # fmt: skip


def step(cluster: Cluster, what: str, broker_id: int, lives: dict[int, int], stopped: dict[int, int]) -> None:
    image, config = cluster.image, cluster.config
    broker = image.brokers.get(broker_id)
    match what:
        case "fence" if broker is not None:
            cluster.run(fence_broker(image, config, broker_id, broker.epoch))
        case "heartbeat" if broker is not None:
            cluster.heartbeat(broker_id)
        case "shutdown" if broker is not None:
            if cluster.heartbeat(broker_id, shutdown=True).should_shut_down:
                stopped[broker_id] = broker.epoch
        case "restart" | "restart in order":
            cluster.now_ms += SESSION_MS + 1
            lives[broker_id] = lives.get(broker_id, 0) + 1
            previous = stopped.get(broker_id, -1) if what == "restart in order" else -1
            cluster.register(
                registration(broker_id, life=lives[broker_id], directories=2, previous_epoch=previous)
            )
        case "unregister" if broker is not None:
            cluster.run(unregister_broker(image, config, broker_id))
        case "shrink" | "expand" if broker is not None:
            for topic in image.topics_with_replicas_on(broker_id):
                for index, partition in enumerate(topic.partitions):
                    if partition.leader == broker_id:
                        tell(cluster, topic.name, index, partition, grow=what == "expand")
        case "balance":
            cluster.run(balance_leaders(image, config))
        case "elect unclean":
            cluster.run(elect_unclean_leaders(image, config))
        case "ask for unclean":
            cluster.run(elect_leaders(image, config, 1, None))
        case "lose directory" if broker is not None:
            cluster.heartbeat(broker_id, offline=(directory(broker_id),))

        case _:
            move(cluster, what, broker_id)


def move(cluster: Cluster, what: str, broker_id: int) -> None:
    """Steps that have to do with where replicas are."""
    image, config = cluster.image, cluster.config
    broker = image.brokers.get(broker_id)
    match what:
        case "reassign":
            # Each partition to the brokers after this one, as many as it has.
            cluster.run(
                alter_reassignments(
                    image,
                    config,
                    [
                        Reassignment(name, index, tuple((broker_id + n) % 4 + 1 for n in range(factor)))
                        for name, topic in sorted(image.topics.items())
                        for index, partition in enumerate(topic.partitions)
                        for factor in [1 + (broker_id + index) % 3]
                    ],
                )
            )
        case "cancel":
            cluster.run(
                alter_reassignments(
                    image,
                    config,
                    [
                        Reassignment(name, index, None)
                        for name, topic in sorted(image.topics.items())
                        for index in range(len(topic.partitions))
                        if index % 2 == broker_id % 2
                    ],
                )
            )
        case "move to directory" if broker is not None:
            cluster.run(
                assign_directories(
                    image,
                    config,
                    broker_id,
                    broker.epoch,
                    [
                        DirectoryAssignment(directory(broker_id, 1), topic.id, index)
                        for topic in image.topics_with_replicas_on(broker_id)
                        for index in range(len(topic.partitions))
                    ],
                )
            )


def tell(cluster: Cluster, topic: str, index: int, partition: PartitionImage, *, grow: bool) -> None:
    """As the partition's leader does: with all that live, or with itself alone."""
    brokers = cluster.image.brokers
    isr = partition.replicas if grow else (partition.leader,)
    members = tuple(
        InSync(replica, brokers[replica].epoch)
        for replica in isr
        if replica in brokers and brokers[replica].active
    )
    change = IsrChange(topic_id(topic), index, partition.leader_epoch, partition.partition_epoch, members)
    epoch = brokers[partition.leader].epoch
    [outcome] = cluster.run(
        alter_partitions(cluster.image, cluster.config, partition.leader, epoch, [change])
    )
    assert outcome.error is None or isinstance(outcome.error, NewLeaderElected), outcome


def check(before: MetadataImage, after: MetadataImage, *, eligible: bool) -> None:
    for name, topic in after.topics.items():
        for old, new in zip(before.topics[name].partitions, topic.partitions, strict=True):
            assert {*new.isr} <= {*new.replicas}
            assert len({*new.replicas}) == len(new.replicas) == len(new.directories) > 0
            assert {*new.adding_replicas, *new.removing_replicas} <= {*new.replicas}
            assert {*new.eligible_leader_replicas} <= {*new.replicas}
            if {*old.replicas} - {*new.replicas}:
                assert new.leader_epoch > old.leader_epoch, "who is no replica any more must not fetch on"
            assert not {*new.isr} & {*new.eligible_leader_replicas}
            assert new.isr or eligible, "only eligible leader replicas let an ISR be empty"
            assert new.leader == NO_LEADER or new.leader in new.isr
            if new.leader != NO_LEADER:
                broker = after.brokers[new.leader]
                assert broker.active, f"{name} is led by a broker that is not there: {broker}"
                assert broker.has_online(new.directory(new.leader))
            if new != old:
                assert new.partition_epoch > old.partition_epoch
            assert new.leader_epoch >= old.leader_epoch
            if new.leader != old.leader:
                assert new.leader_epoch > old.leader_epoch
            if name == "strict" and not eligible and {*new.isr} - {*old.isr}:
                assert old.leader != NO_LEADER, "nobody becomes in sync with nobody"


def led_where_it_can_be(image: MetadataImage, name: str) -> None:
    for partition in image.topics[name].partitions:
        able = [
            replica
            for replica in partition.isr
            if replica in image.brokers
            and image.brokers[replica].active
            and image.brokers[replica].has_online(partition.directory(replica))
        ]
        assert partition.leader != NO_LEADER or not able


@settings(max_examples=200, deadline=None)
@given(STEPS, st.booleans())
@example([("fence", 4), ("lose directory", 3), ("reassign", 2), ("expand", 1), ("restart", 3)], True)
def test_partitions_stay_sound(steps: list[tuple[str, int]], eligible: bool) -> None:
    cluster = Cluster(eligible=eligible)
    for broker_id in BROKERS:
        cluster.start(broker_id, directories=2)
    cluster.topic("strict", (1, 2, 3), (2, 3, 4), (3, 1), (4,), min_insync_replicas="2")
    cluster.topic("loose", (1, 2), (3, 4, 1), unclean_leader_election_enable="true")
    lives: dict[int, int] = {}
    stopped: dict[int, int] = {}
    for what, broker_id in steps:
        before = cluster.image
        asked_for_unclean = what == "ask for unclean"
        step(cluster, what, broker_id, lives, stopped)
        if asked_for_unclean:
            continue
        check(before, cluster.image, eligible=eligible)
        led_where_it_can_be(cluster.image, "strict")
        led_where_it_can_be(cluster.image, "loose")
