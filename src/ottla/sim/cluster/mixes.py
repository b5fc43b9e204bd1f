"""Which clients, faults and shapes a run of a cluster is made of: `cluster` is all of it, the others look for
one kind of bug."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.sim.chaos.mixes import Mix
from ottla.sim.cluster.machines import Shape

THREE = Shape(3)

PROPERTIES = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "4000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "replica.socket.timeout.ms": "3000",
    "request.timeout.ms": "5000",
    "initial.broker.registration.timeout.ms": "600000",
    "leader.imbalance.check.interval.seconds": "5",
    "metadata.log.max.record.bytes.between.snapshots": "4000",
    "metadata.log.segment.bytes": "8388608",
    "metadata.max.retention.bytes": "4000",
    "log.initial.task.delay.ms": "0",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    # Each replica compacts for itself; their bytes are to be compared.
    "log.cleaner.enable": "false",
}

SETTINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("internal.segment.bytes", ("150", "400", "2000")),
    ("retention.ms", ("2000", "10000")),
    ("segment.ms", ("1000",)),
    ("file.delete.delay.ms", ("0", "500")),
    ("flush.messages", ("1",)),
    ("compression.type", ("gzip", "uncompressed")),
    ("max.message.bytes", ("500", "100000")),
)

PROCESS_FAULTS = {
    "kill": 4,
    "kill_leader": 3,
    "kill_controller": 3,
    "kill_several": 2,
    "cut_power": 4,
    "stop": 3,
    "roll": 1,
    "pause_short": 2,
    "pause_long": 2,
}
WORLD_FAULTS = {
    "isolate": 4,
    "isolate_one_way": 3,
    "split": 2,
    "part_two": 2,
    "cut": 4,
    "slow_network": 2,
    "slow_disk": 2,
    "fill": 1,
    "skew": 1,
}


@dataclass(frozen=True, slots=True)
class ClusterMix(Mix):
    shapes: tuple[tuple[Shape, int], ...] = ((THREE, 1),)
    """By weight."""
    writers: int = 0
    idempotent_writers: int = 0
    transactional_writers: int = 0
    classic_members: int = 0
    consumer_members: int = 0
    administrators: int = 0
    movers: int = 0
    voter_changers: int = 0
    """At most one: what a change leads to depends on those before."""
    access_changers: int = 0
    """Of rules, credentials and quotas; nodes have an authorizer."""
    world_faults: Mapping[str, int] = field(default_factory=lambda: WORLD_FAULTS)

    @property
    def rots(self) -> bool:
        """One node has a disk that forgets, and only that node dies: others have what it forgets."""
        return "rot" in self.world_faults


def _mix(**differences: object) -> ClusterMix:
    values: dict[str, object] = {
        "operations": {"create": 30, "delete": 15, "grow": 8, "alter": 12, "delete_records": 6},
        "faults": PROCESS_FAULTS,
        "fault_every_s": 2.5,
        "seconds": 18.0,
        "properties": PROPERTIES,
        "settings": SETTINGS,
        "flushing": 0.0,
        **differences,
    }
    return ClusterMix(**values)  # type: ignore[arg-type]


CLUSTER_MIXES: dict[str, ClusterMix] = {
    "cluster": _mix(
        shapes=((THREE, 6), (Shape(5), 1), (Shape(3, 3), 2)),
        writers=1,
        idempotent_writers=1,
        transactional_writers=1,
        classic_members=1,
        consumer_members=1,
        administrators=1,
        movers=1,
    ),
    "cluster-plain": _mix(writers=2),
    "cluster-idempotent": _mix(idempotent_writers=2),
    "cluster-transactions": _mix(transactional_writers=3),
    "cluster-groups": _mix(writers=1, classic_members=2, consumer_members=2),
    "cluster-rot": _mix(
        writers=1,
        idempotent_writers=1,
        faults={"kill_rotten": 3, "stop_rotten": 1},
        world_faults={"rot": 4, "cut": 2, "slow_network": 1, "slow_disk": 1, "skew": 1},
        fault_every_s=1.5,
    ),
    "cluster-disks": _mix(
        writers=1,
        idempotent_writers=1,
        transactional_writers=1,
        consumer_members=1,
        administrators=1,
        properties={**PROPERTIES, "log.dirs": "/data,/more"},
        world_faults={"fail_disk": 6, "fill": 1, "slow_disk": 1, "isolate": 1, "cut": 1},
    ),
    "cluster-topics": _mix(administrators=2, writers=1),
    "cluster-voters": _mix(
        shapes=(
            (Shape(3, first_voters=3), 3),
            (Shape(4, first_voters=1), 1),
            (Shape(3, 4, first_voters=3), 2),
        ),
        writers=1,
        administrators=1,
        voter_changers=1,
        faults={**PROCESS_FAULTS, "kill_controller": 5},
    ),
    "cluster-access": _mix(
        shapes=((THREE, 3), (Shape(3, 3), 1)),
        writers=1,
        access_changers=2,
        faults={**PROCESS_FAULTS, "kill_controller": 5},
        properties={
            **PROPERTIES,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        },
    ),
    "cluster-moves": _mix(shapes=((Shape(4), 1), (Shape(5), 1), (Shape(4, 1), 1)), writers=2, movers=2),
}
