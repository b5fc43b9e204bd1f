"""Which operations and faults a run is made of: `admin` is all of it, the others look for one kind of bug."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ORDINARY_SETTINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("flush.messages", ("1",)),
    ("internal.segment.bytes", ("150", "400", "2000")),
    ("retention.ms", ("300", "2000", "10000")),
    ("retention.bytes", ("300", "2000")),
    ("cleanup.policy", ("compact", "compact", "delete", "compact,delete")),
    ("min.cleanable.dirty.ratio", ("0.0", "0.1")),
    ("segment.ms", ("100", "1000")),
    ("file.delete.delay.ms", ("0", "500", "2000")),
    ("flush.ms", ("100", "1000")),
    ("compression.type", ("gzip", "zstd", "lz4", "uncompressed")),
    ("message.timestamp.type", ("LogAppendTime",)),
    ("min.insync.replicas", ("1",)),
    ("max.message.bytes", ("500", "100000")),
)
"""Each legal on a broker as it comes; small, so that whatever happens now and then happens all the time."""

CONTRADICTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("min.compaction.lag.ms", ("100", "1000")),
    ("max.compaction.lag.ms", ("10", "200", "2000")),
)
"""Legal alone, and at odds with each other or with the broker's defaults."""

UNKNOWN_SETTINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("no.such.setting", ("1",)),
    ("retention.ms", ("soon", "-2")),
    ("cleanup.policy", ("burn",)),
    ("follower.replication.throttled.replicas", ("*",)),
    ("remote.storage.enable", ("true",)),
)

BROKER_SETTINGS: tuple[tuple[str, tuple[str | None, ...]], ...] = (
    ("log.cleaner.max.compaction.lag.ms", ("50", "500", None)),
    ("log.cleaner.min.compaction.lag.ms", ("0", "800", None)),
    ("log.retention.ms", ("5000", None)),
    ("log.cleaner.threads", ("1", "2", None)),
    ("message.max.bytes", ("100000", None)),
    ("no.such.setting", ("1", None)),
)

_EAGER = {
    "metadata.log.dir": "/meta",
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "50",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.cleaner.backoff.ms": "200",
    "log.segment.delete.delay.ms": "1000",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "metadata.log.max.record.bytes.between.snapshots": "3000",
}


@dataclass(frozen=True, slots=True)
class Mix:
    operations: Mapping[str, int]
    """What administrators do, by weight."""
    faults: Mapping[str, int] = field(default_factory=dict)
    fault_every_s: float = 4.0
    seconds: float = 25.0
    groups: bool = False
    transactions: bool = False
    contradictions: bool = False
    properties: Mapping[str, str] = field(default_factory=lambda: dict(_EAGER))
    flushing: float = 0.5
    """How often a broker flushes each record by default."""
    settings: tuple[tuple[str, tuple[str, ...]], ...] = ORDINARY_SETTINGS
    """What topics are made with."""


MIXES: dict[str, Mix] = {
    "admin": Mix(
        operations={
            "create": 30,
            "delete": 20,
            "grow": 8,
            "alter": 12,
            "alter_contradictory": 5,
            "alter_unknown": 4,
            "alter_broker": 5,
            "delete_records": 8,
            "delete_internal": 1,
        },
        faults={
            "kill": 3,
            "cut_power": 3,
            "restart": 3,
            "fill": 4,
            "obstruct": 3,
            "deny": 2,
            "rot_offsets": 2,
            "rot_transactions": 2,
            "rot_data": 1,
            "unmount": 2,
        },
        groups=True,
        transactions=True,
        contradictions=True,
    ),
    "deletion": Mix(operations={"create": 10, "delete": 9, "grow": 2}, seconds=15),
    "retention": Mix(
        operations={"create": 10, "delete": 9},
        settings=(("retention.ms", ("300", "2000")),),
        flushing=0.0,
        seconds=15,
    ),
    "settings": Mix(
        operations={"create": 6, "alter_contradictory": 4, "alter_broker": 3, "delete": 1},
        faults={"kill": 1, "restart": 1},
        contradictions=True,
        seconds=15,
    ),
    "obstacles": Mix(
        operations={"create": 10, "grow": 3}, faults={"obstruct": 2, "deny": 1}, fault_every_s=2, seconds=15
    ),
    "full": Mix(
        operations={"create": 6, "grow": 2, "delete_records": 1},
        faults={"fill": 1},
        groups=True,
        transactions=True,
        seconds=20,
    ),
    "rot": Mix(
        operations={"create": 5},
        faults={"rot_offsets": 1, "rot_transactions": 1},
        groups=True,
        transactions=True,
        seconds=20,
    ),
    "power": Mix(
        operations={"create": 6, "alter": 4, "grow": 2, "delete_records": 2, "alter_unknown": 1},
        faults={"kill": 1, "cut_power": 2, "restart": 1},
        groups=True,
        transactions=True,
    ),
    "damage": Mix(
        operations={"create": 5, "alter": 2}, faults={"rot_data": 1}, groups=True, fault_every_s=3, seconds=20
    ),
    "unmount": Mix(operations={"create": 5}, faults={"unmount": 1}, seconds=15),
}
