"""A partition's next state, case by case: who is in sync, who stays eligible, who leads."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

import pytest

from ottla.controller.partition_change import (
    RECOVERED,
    RECOVERING,
    Election,
    PartitionTarget,
    Surroundings,
    change_partition,
)
from ottla.metadata.delta import after_change
from ottla.metadata.image import PartitionImage
from ottla.metadata.records import NO_LEADER

TOPIC = UUID(int=300)


def directory(broker_id: int) -> UUID:
    return UUID(int=200 + broker_id)


def partition(**changes: Any) -> PartitionImage:
    replicas: tuple[int, ...] = changes.pop("replicas", (1, 2, 3))
    state: dict[str, Any] = {
        "replicas": replicas,
        "isr": replicas,
        "leader": 1,
        "leader_epoch": 5,
        "partition_epoch": 50,
        "directories": tuple(directory(replica) for replica in replicas),
    }
    return PartitionImage(**{**state, **changes})


class Case(NamedTuple):
    before: PartitionImage
    alive: set[int]
    target: PartitionTarget
    expected: dict[str, Any]
    """What differs from `before`; the partition's epoch is one more if anything does."""
    eligible: bool = False
    isr_min: int = 2


LEFT = partition(isr=(2,), leader=2)
GONE = partition(isr=(1,), leader=NO_LEADER)
EMPTY = partition(isr=(), leader=NO_LEADER, eligible_leader_replicas=(2, 3), last_known_elr=(1,))
LAST = partition(isr=(), leader=NO_LEADER, last_known_elr=(1,))
PREFERRED = PartitionTarget(election=Election.PREFERRED)
UNCLEAN = PartitionTarget(election=Election.UNCLEAN)

CASES = {
    "nothing to do": Case(partition(), {1, 2, 3}, PartitionTarget(), {}),
    "a follower falls behind": Case(partition(), {1, 2, 3}, PartitionTarget(isr=(1, 2)), {"isr": (1, 2)}),
    "a follower catches up": Case(
        partition(isr=(1, 2)), {1, 2, 3}, PartitionTarget(isr=(1, 2, 3)), {"isr": (1, 2, 3)}
    ),
    "the leader goes": Case(
        partition(), {2, 3}, PartitionTarget(isr=(2, 3)), {"isr": (2, 3), "leader": 2, "leader_epoch": 6}
    ),
    "the order of replicas decides, not that of the ISR": Case(
        partition(isr=(1, 3, 2)), {2, 3}, PartitionTarget(isr=(3, 2)),
        {"isr": (3, 2), "leader": 2, "leader_epoch": 6},
    ),
    "the last in sync goes and stays known": Case(
        partition(isr=(1,)), {2, 3}, PartitionTarget(isr=()), {"leader": NO_LEADER, "leader_epoch": 6}
    ),
    "the last in sync goes and eligible ones are kept": Case(
        partition(isr=(1,)), {2, 3}, PartitionTarget(isr=()),
        {"isr": (), "leader": NO_LEADER, "leader_epoch": 6, "eligible_leader_replicas": (1,),
         "last_known_elr": (1,)}, True,
    ),
    "nobody leads and nobody can": Case(GONE, {2, 3}, PartitionTarget(), {}),
    "the last in sync comes back": Case(
        GONE, {1, 2, 3}, PartitionTarget(), {"leader": 1, "leader_epoch": 6}
    ),
    "an unclean election where nobody in sync lives": Case(
        GONE, {3}, UNCLEAN,
        {"isr": (3,), "leader": 3, "leader_epoch": 6, "leader_recovery_state": RECOVERING},
    ),
    "an unclean election is clean where it can be": Case(
        GONE, {1, 2}, UNCLEAN, {"leader": 1, "leader_epoch": 6}
    ),
    "an unclean election of nobody": Case(GONE, set(), UNCLEAN, {}),
    "the unclean leader has recovered": Case(
        partition(isr=(3,), leader=3, leader_recovery_state=RECOVERING), {3},
        PartitionTarget(isr=(3,), recovery_state=RECOVERED), {"leader_recovery_state": RECOVERED},
    ),
    "the preferred leader again": Case(
        partition(leader=2), {1, 2, 3}, PREFERRED, {"leader": 1, "leader_epoch": 6}
    ),
    "the preferred leader is not in sync": Case(partition(leader=2, isr=(2, 3)), {1, 2, 3}, PREFERRED, {}),
    "the preferred leader is not there": Case(partition(leader=2), {2, 3}, PREFERRED, {}),
    "no preferred leader, but any": Case(
        partition(leader=NO_LEADER, isr=(3, 2)), {2, 3}, PREFERRED, {"leader": 2, "leader_epoch": 6}
    ),
    "below the minimum who leaves is eligible": Case(
        partition(isr=(1, 2)), {1, 2}, PartitionTarget(isr=(1,)),
        {"isr": (1,), "eligible_leader_replicas": (2,)}, True,
    ),
    "at the minimum nobody is": Case(
        partition(isr=(1,), eligible_leader_replicas=(3,)), {1, 2}, PartitionTarget(isr=(1, 2)),
        {"isr": (1, 2), "eligible_leader_replicas": ()}, True,
    ),
    "an eligible one leads where nobody is in sync": Case(
        EMPTY, {3}, PartitionTarget(),
        {"isr": (3,), "leader": 3, "leader_epoch": 6, "eligible_leader_replicas": (2,),
         "last_known_elr": ()}, True,
    ),
    "who lost its log's end is not eligible": Case(
        EMPTY, {1}, PartitionTarget(lost=2), {"eligible_leader_replicas": (3,)}, True
    ),
    "the last leader, where nobody is eligible": Case(
        LAST, {1}, PartitionTarget(),
        {"isr": (1,), "leader": 1, "leader_epoch": 6, "leader_recovery_state": RECOVERING,
         "last_known_elr": ()}, True,
    ),
    "not the last leader while others are eligible": Case(EMPTY, {1}, PartitionTarget(), {}, True),
    "eligible ones are forgotten when the feature is off": Case(
        LEFT, {2}, PartitionTarget(isr=(2,)), {}
    ),
    "a directory is told": Case(
        partition(), {1, 2, 3}, PartitionTarget(directories={2: UUID(int=999)}),
        {"directories": (directory(1), UUID(int=999), directory(3))},
    ),
    "replicas are added": Case(
        partition(replicas=(1, 2)), {1, 2, 4},
        PartitionTarget(replicas=(1, 4, 2), removing=(2,), adding=(4,)),
        {"replicas": (1, 4, 2), "removing_replicas": (2,), "adding_replicas": (4,),
         "directories": (directory(1), directory(4), directory(2))},
    ),
    "a reassignment is complete": Case(
        partition(replicas=(1, 4, 2), isr=(1, 2), removing_replicas=(2,), adding_replicas=(4,)), {1, 2, 4},
        PartitionTarget(isr=(1, 2, 4)),
        {"replicas": (1, 4), "isr": (1, 4), "removing_replicas": (), "adding_replicas": (),
         "leader_epoch": 6, "directories": (directory(1), directory(4))},
    ),
    "a reassignment without the leader is complete": Case(
        partition(replicas=(4, 5, 1, 2), isr=(1, 4), removing_replicas=(1, 2), adding_replicas=(4, 5)),
        {1, 2, 4, 5}, PartitionTarget(isr=(1, 4, 5)),
        {"replicas": (4, 5), "isr": (4, 5), "removing_replicas": (), "adding_replicas": (),
         "leader": 4, "leader_epoch": 6, "directories": (directory(4), directory(5))},
    ),
    "those that go are needed until all that stay are in sync": Case(
        partition(replicas=(3, 4, 1, 2), isr=(1, 2), removing_replicas=(1, 2)), {1, 2, 3, 4},
        PartitionTarget(isr=(1, 2, 3)), {"isr": (1, 2, 3)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_partition_change(case: Case) -> None:
    surroundings = Surroundings(
        may_lead=lambda broker_id: broker_id in case.alive,
        directory_for_new=directory,
        isr_min=case.isr_min,
        keeps_eligible=case.eligible,
    )
    record = change_partition(TOPIC, 0, case.before, case.target, surroundings)
    if not case.expected:
        assert record is None
        return
    assert record is not None
    after = after_change(case.before, record)
    before_fields = {name: getattr(case.before, name) for name in PartitionImage.__slots__}
    changed = {
        name: getattr(after, name)
        for name in PartitionImage.__slots__
        if getattr(after, name) != before_fields[name]
    }
    assert changed == {"partition_epoch": 51, **case.expected}
