"""A partition's next state: its replicas, who of them is in sync, and who leads, decided together.

Whatever happens to a partition comes through `change_partition`: brokers that come and go, followers that
fall behind, elections that are asked for, replicas that move. The result is the record of it, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from ottla.metadata.image import PartitionImage
from ottla.metadata.records import LEADER_UNCHANGED, NO_LEADER, PartitionChangeRecord

RECOVERED = 0
RECOVERING = 1
"""After an unclean election, until the leader has said that it is done."""


class Election(Enum):
    ONLINE = "whoever leads, as long as it may, or another that is in sync"
    PREFERRED = "the first replica, as soon as it is in sync"
    UNCLEAN = "somebody who lives, at the price of what only others had"


class Surroundings(NamedTuple):
    """What a decision about one partition depends on besides the partition."""

    may_lead: Callable[[int], bool]
    """The broker is there for it, and so is the directory of its replica."""
    directory_for_new: Callable[[int], UUID]
    isr_min: int
    """Below it, those who leave the ISR stay eligible, where `keeps_eligible`."""
    keeps_eligible: bool
    """Eligible leader replicas (KIP-966) are on."""


class PartitionTarget(NamedTuple):
    """What is to become of a partition; nothing said stays as it is."""

    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    directories: Mapping[int, UUID] = MappingProxyType({})
    recovery_state: int | None = None
    election: Election = Election.ONLINE
    lost: int | None = None
    """A broker whose log may have lost its end: it is not eligible any more."""


class _Replicas(NamedTuple):
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class _Elected(NamedTuple):
    leader: int
    unclean: bool = False


def change_partition(
    topic_id: UUID,
    index: int,
    partition: PartitionImage,
    target: PartitionTarget,
    surroundings: Surroundings,
) -> PartitionChangeRecord | None:
    isr = partition.isr if target.isr is None else target.isr
    replicas = partition.replicas if target.replicas is None else target.replicas
    removing = partition.removing_replicas if target.removing is None else target.removing
    adding = partition.adding_replicas if target.adding is None else target.adding
    completed = _completed(replicas, isr, removing=removing, adding=adding)
    if completed is not None:
        replicas, isr = completed
        removing = adding = ()
    eligible = _eligible(partition, target, surroundings, replicas, isr)
    elected = _elect(partition, target.election, surroundings, replicas, isr, eligible)

    leader = LEADER_UNCHANGED
    if elected.leader != partition.leader:
        leader = elected.leader
        if elected.leader in eligible:
            isr = (elected.leader,)
            eligible = tuple(replica for replica in eligible if replica != elected.leader)
    elif replicas is not partition.replicas and not {*partition.replicas} <= {*replicas}:
        # Those who are no replicas any more must not go on fetching as such.
        leader = partition.leader
    recovery_state = partition.leader_recovery_state
    if elected.unclean:
        isr, eligible, recovery_state = (elected.leader,), (), RECOVERING
    elif not isr and not surroundings.keeps_eligible:
        # The last in sync stay known: only they may lead again.
        isr = partition.isr
    if target.recovery_state not in (None, partition.leader_recovery_state):
        recovery_state = target.recovery_state
    directories = _directories(partition, target, surroundings, replicas)

    record = PartitionChangeRecord(
        partition_id=index,
        topic_id=topic_id,
        isr=_if_changed(isr, partition.isr),
        leader=leader,
        replicas=_if_changed(replicas, partition.replicas),
        removing_replicas=_if_changed(removing, partition.removing_replicas),
        adding_replicas=_if_changed(adding, partition.adding_replicas),
        leader_recovery_state=-1 if recovery_state == partition.leader_recovery_state else recovery_state,
        eligible_leader_replicas=_if_changed(eligible, partition.eligible_leader_replicas),
        last_known_elr=_last_known(partition, leader) if surroundings.keeps_eligible else None,
        directories=directories if directories != partition.directories else None,
    )
    return record if _says_anything(record) else None


def _says_anything(record: PartitionChangeRecord) -> bool:
    return (
        record.leader != LEADER_UNCHANGED
        or record.isr is not None
        or record.replicas is not None
        or record.removing_replicas is not None
        or record.adding_replicas is not None
        or record.leader_recovery_state >= 0
        or record.eligible_leader_replicas is not None
        or record.last_known_elr is not None
        or record.directories is not None
    )


def _completed(
    replicas: tuple[int, ...], isr: tuple[int, ...], *, removing: tuple[int, ...], adding: tuple[int, ...]
) -> _Replicas | None:
    """What remains when the reassignment is done; None while it is not, or where there is none."""
    if not removing and not adding:
        return None
    remaining = _Replicas(
        tuple(replica for replica in replicas if replica not in removing),
        tuple(replica for replica in isr if replica not in removing),
    )
    if not remaining.replicas or not remaining.isr or not {*adding} <= {*remaining.isr}:
        return None
    # Where there will be fewer replicas, all of them must be in sync: those that go may be needed until then.
    if len(adding) < len(removing) and not {*remaining.replicas} <= {*remaining.isr}:
        return None
    return remaining


def _eligible(
    partition: PartitionImage,
    target: PartitionTarget,
    surroundings: Surroundings,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
) -> tuple[int, ...]:
    """Those who left an ISR that is too small now: nothing was committed since that they do not have."""
    if not surroundings.keeps_eligible or len(isr) >= surroundings.isr_min:
        return ()
    candidates = {*partition.eligible_leader_replicas, *partition.isr} & {*replicas}
    return tuple(sorted(candidates - {*isr, target.lost}))


def _elect(
    partition: PartitionImage,
    election: Election,
    surroundings: Surroundings,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    eligible: tuple[int, ...],
) -> _Elected:
    may_lead = surroundings.may_lead
    current = partition.leader
    candidates = isr or eligible
    able = [replica for replica in replicas if replica in candidates and may_lead(replica)]
    if able:
        if election is Election.PREFERRED and able[0] == replicas[0]:
            return _Elected(replicas[0])
        return _Elected(current if current in able else able[0])
    if surroundings.keeps_eligible and not candidates and len(partition.last_known_elr) == 1:
        [last_leader] = partition.last_known_elr
        # It may have been moved away since.
        if last_leader in replicas and may_lead(last_leader):
            return _Elected(last_leader, unclean=True)
    if election is Election.UNCLEAN:
        for replica in replicas:
            if may_lead(replica):
                return _Elected(replica, unclean=True)
    return _Elected(NO_LEADER)


def _last_known(partition: PartitionImage, leader: int) -> tuple[int, ...] | None:
    if leader == NO_LEADER and partition.leader >= 0 and not partition.last_known_elr:
        return (partition.leader,)
    if leader >= 0 and partition.last_known_elr:
        return ()
    return None


def _directories(
    partition: PartitionImage,
    target: PartitionTarget,
    surroundings: Surroundings,
    replicas: tuple[int, ...],
) -> tuple[UUID, ...]:
    if replicas is partition.replicas and not target.directories:
        return partition.directories
    assigned = {**dict(zip(partition.replicas, partition.directories, strict=True)), **target.directories}
    return tuple(
        assigned[replica] if replica in assigned else surroundings.directory_for_new(replica)
        for replica in replicas
    )


def _if_changed(new: tuple[int, ...], old: tuple[int, ...]) -> tuple[int, ...] | None:
    return None if new == old else new
