"""Simulated consumers of both protocols, and the invariants that hold whatever they do.

A live client is stepped at least every few seconds of simulated time; a crashed one is not stepped at all
until it wakes up as a zombie. All clients of a fleet are in one group and read one topic.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping

from group_driver import Driver, subscription

from ottla.coordinator.groups.classic_group import ClassicGroup, State
from ottla.coordinator.groups.commands import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    JoinReply,
    LeavingMember,
    SyncReply,
)
from ottla.coordinator.groups.consumer_group import ConsumerGroup
from ottla.coordinator.groups.embedded import encode_assignment, parse_assignment
from ottla.coordinator.groups.records import decode
from ottla.coordinator.groups.settings import GroupSettings
from ottla.coordinator.groups.shard import GroupShard
from ottla.coordinator.groups.state import Groups
from ottla.wire.errors import ErrorCode, FencedInstanceId, KafkaError, UnreleasedInstanceId

GROUP = "g"
TOPIC = "orders"
SESSION_MS = 10_000
REBALANCE_MS = 30_000
SETTINGS = GroupSettings(group_initial_rebalance_delay_ms=1_000, consumer_session_timeout_ms=SESSION_MS)


class Violation(AssertionError):
    """An invariant does not hold; its name comes first."""


class Client(ABC):
    def __init__(self, fleet: Fleet, name: str, instance_id: str | None) -> None:
        self.fleet = fleet
        self.driver = fleet.driver
        self.name = name
        self.instance_id = instance_id
        self.member_id = ""
        self.is_live = True
        self.owned: frozenset[int] = frozenset()
        self.positions: dict[int, int] = {}

    def _own(self, partitions: frozenset[int]) -> None:
        gained, self.owned = partitions - self.owned, partitions
        for partition in gained:
            self.positions[partition] = self.driver.fetch(GROUP, partition, TOPIC) or 0

    def commit(self) -> None:
        for partition in sorted(self.owned):
            offset = self.positions[partition] + 1
            error = self.driver.commit(GROUP, offset, partition, TOPIC, **self._identity())
            if error is ErrorCode.none:
                self.positions[partition] = offset
                self.fleet.committed(partition, offset, self.name)

    def _must_not_lose(self, error: ErrorCode) -> None:
        if error in (
            ErrorCode.unknown_member_id,
            ErrorCode.fenced_member_epoch,
            ErrorCode.fenced_instance_id,
        ):
            raise self.fleet.violation(f"LiveMembersStay: {self.name} ({self.member_id}) got {error.name}")

    @abstractmethod
    def _identity(self) -> dict[str, object]: ...

    @abstractmethod
    def step(self) -> None:
        """Whatever the client does next: one or a few requests."""

    @abstractmethod
    def leave(self) -> None: ...

    @abstractmethod
    def restart(self) -> None:
        """The process is replaced by another one with the same instance id."""

    @abstractmethod
    def wake(self) -> None:
        """Back after a long pause, not knowing what happened meanwhile."""

    @property
    @abstractmethod
    def is_stable(self) -> bool: ...

    def broker_restarted(self) -> None:  # noqa: B027
        pass


class ClassicClient(Client):
    """Eager: gives up everything before it rejoins."""

    def __init__(self, fleet: Fleet, name: str, instance_id: str | None) -> None:
        super().__init__(fleet, name, instance_id)
        self.generation = -1
        self.phase = "idle"
        self.ticket = 0
        self.is_suspect = False
        """Has been away, so being fenced would be no surprise."""

    def _identity(self) -> dict[str, object]:
        return {"member_id": self.member_id, "generation": self.generation, "instance_id": self.instance_id}

    @property
    def is_stable(self) -> bool:
        return self.phase == "stable"

    def step(self) -> None:
        for _ in range(4):
            match self.phase:
                case "idle":
                    self._join()
                case "joining" if not self.driver.is_parked(self.ticket):
                    self._joined()
                case "syncing" if not self.driver.is_parked(self.ticket):
                    self._synced()
                case "stable":
                    self._heartbeat()
                    return
                case _:
                    return

    def _join(self) -> None:
        self.owned = frozenset()
        self.phase = "joining"
        self.ticket = self.driver.join(
            GROUP,
            self.member_id,
            instance_id=self.instance_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocols=(("range", subscription(TOPIC, version=1)),),
            client_id=self.name,
        )
        self.fleet.sent(self.ticket)

    def _reset(self, error: ErrorCode) -> None:
        self.owned = frozenset()
        self.phase = "idle"
        if error in (ErrorCode.unknown_member_id, ErrorCode.illegal_generation):
            self.generation = -1
        if error is ErrorCode.unknown_member_id:
            self.member_id = ""
        if error is ErrorCode.fenced_instance_id:
            self.is_live = False

    def _joined(self) -> None:
        reply = self.driver.replies[self.ticket]
        if isinstance(reply, KafkaError):
            self._reset(reply.code)
            return
        assert isinstance(reply, JoinReply)
        if reply.error is ErrorCode.member_id_required:
            self.member_id = reply.member_id
        if reply.error is not ErrorCode.none:
            self._reset(reply.error)
            return
        self.member_id, self.generation = reply.member_id, reply.generation
        self.phase = "syncing"
        self.ticket = self.driver.sync(
            GROUP,
            self.member_id,
            self.generation,
            instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=reply.protocol_name,
            assignments=() if reply.skip_assignment else self._assign([m for m, _, _ in reply.members]),
        )
        self.fleet.sent(self.ticket)

    def _assign(self, members: list[str]) -> tuple[tuple[str, bytes], ...]:
        topic = self.driver.topics.topics[TOPIC]
        count = len(topic.partitions)
        return tuple(
            (
                member,
                encode_assignment(
                    1, {topic.id: frozenset(range(n, count, len(members)))}, self.driver.topics
                ),
            )
            for n, member in enumerate(sorted(members))
        )

    def _synced(self) -> None:
        reply = self.driver.replies[self.ticket]
        error = reply.code if isinstance(reply, KafkaError) else reply.error
        if error is not ErrorCode.none:
            self._reset(error)
            return
        assert isinstance(reply, SyncReply)
        partitions = frozenset(parse_assignment(reply.assignment)[0].get(TOPIC, ()))
        self.fleet.assigned(self.generation, self.instance_id or self.member_id, partitions)
        self._own(partitions)
        self.phase = "stable"
        self.is_suspect = False

    def _heartbeat(self) -> None:
        error = self.driver.heartbeat(GROUP, self.member_id, self.generation, self.instance_id)
        if error is not ErrorCode.none:
            if not self.is_suspect:
                self._must_not_lose(error)
            self._reset(error)
            self._join() if self.is_live else None
        else:
            self.is_suspect = False

    def leave(self) -> None:
        if self.member_id and self.instance_id is None:
            self.driver.leave(GROUP, LeavingMember(self.member_id))
        self.is_live, self.owned = False, frozenset()

    def restart(self) -> None:
        self.member_id, self.generation, self.phase, self.owned = "", -1, "idle", frozenset()
        self.is_suspect = False

    def wake(self) -> None:
        self.is_live, self.is_suspect = True, True
        self.commit()
        self.owned = frozenset()
        self.phase = "idle"

    def broker_restarted(self) -> None:
        if self.phase in ("joining", "syncing"):
            self.phase = "idle"


class ConsumerClient(Client):
    def __init__(self, fleet: Fleet, name: str, instance_id: str | None) -> None:
        super().__init__(fleet, name, instance_id)
        self.member_id = f"{name}-0"
        self.incarnation = 0
        self.epoch = 0

    def _identity(self) -> dict[str, object]:
        return {"member_id": self.member_id, "generation": self.epoch, "instance_id": self.instance_id}

    @property
    def is_stable(self) -> bool:
        return self.epoch > 0

    def _owned_by_id(self) -> Mapping[uuid.UUID, frozenset[int]]:
        return {self.driver.topics.topics[TOPIC].id: self.owned} if self.owned else {}

    def step(self) -> None:
        try:
            if self.epoch == 0:
                self.owned = frozenset()
                reply = self.driver.consumer(
                    GROUP,
                    self.member_id,
                    0,
                    topics=(TOPIC,),
                    instance_id=self.instance_id,
                    rebalance_timeout_ms=REBALANCE_MS,
                )
            else:
                reply = self.driver.consumer(
                    GROUP,
                    self.member_id,
                    self.epoch,
                    owned=self._owned_by_id(),
                    instance_id=self.instance_id,
                )
        except UnreleasedInstanceId:
            return
        except FencedInstanceId:
            self.is_live, self.owned = False, frozenset()
            return
        except KafkaError as error:
            if self.epoch > 0:
                self._must_not_lose(error.code)
            self.epoch, self.owned = 0, frozenset()
            return
        self.epoch = reply.member_epoch
        if reply.assignment is not None:
            self._own(reply.assignment.get(self.driver.topics.topics[TOPIC].id, frozenset()))

    def leave(self) -> None:
        if self.epoch > 0:
            self._leave(LEAVE_EPOCH)
        self.is_live, self.owned = False, frozenset()

    def _leave(self, epoch: int) -> None:
        try:
            self.driver.consumer(GROUP, self.member_id, epoch, instance_id=self.instance_id)
        except KafkaError as error:
            if not isinstance(error, FencedInstanceId):
                self._must_not_lose(error.code)

    def restart(self) -> None:
        if self.epoch > 0:
            self._leave(LEAVE_STATIC_EPOCH if self.instance_id else LEAVE_EPOCH)
        self.incarnation += 1
        self.member_id = f"{self.name}-{self.incarnation}"
        self.epoch, self.owned = 0, frozenset()

    def wake(self) -> None:
        self.is_live = True
        self.commit()
        self.epoch, self.owned = 0, frozenset()


KINDS: dict[str, type[Client]] = {"classic": ClassicClient, "consumer": ConsumerClient}


class Fleet:
    def __init__(self, shard_type: type[GroupShard], partitions: int = 4) -> None:
        from group_driver import topics

        self.driver = Driver(SETTINGS, topics(**{TOPIC: partitions}), shard_type)
        self.clients: list[Client] = []
        self.offsets: dict[int, int] = {}
        self.generations: dict[int, dict[str, frozenset[int]]] = {}
        self.waiting: dict[int, int] = {}
        self.is_broken = False

    def violation(self, text: str) -> Violation:
        self.is_broken = True
        return Violation(text)

    # --- what clients report

    def sent(self, ticket: int) -> None:
        self.waiting[ticket] = self.driver.now_ms

    def committed(self, partition: int, offset: int, who: str) -> None:
        last = self.offsets.get(partition, 0)
        if offset < last:
            raise self.violation(
                f"CommittedOffsetsNeverGoBack: {who} committed {offset} for {partition} after {last}"
            )
        self.offsets[partition] = offset

    def assigned(self, generation: int, member_id: str, partitions: frozenset[int]) -> None:
        if isinstance(self.driver.shard.groups.by_id[GROUP], ConsumerGroup):
            return  # there the generation is the member's own
        members = self.generations.setdefault(generation, {})
        for other, theirs in members.items():
            if other != member_id and theirs & partitions:
                raise self.violation(
                    f"OneOwnerPerPartition: {member_id} and {other} own {set(theirs & partitions)} "
                    f"in generation {generation}"
                )
        members[member_id] = partitions

    # --- what may happen

    def start(self, kind: str, instance_id: str | None) -> None:
        name = f"{kind}{len(self.clients)}"
        self.clients.append(KINDS[kind](self, name, instance_id))

    @property
    def live(self) -> list[Client]:
        return [client for client in self.clients if client.is_live]

    def round(self, duration_ms: int) -> None:
        self._step_all()
        self.driver.advance(duration_ms)
        self._step_all()

    def _step_all(self) -> None:
        for client in self.live:
            client.step()
            self._check_owners()

    def restart_broker(self) -> None:
        # Generations since the last stored one are void: nobody owned anything in them after the restart.
        self.driver.restart()
        self.waiting.clear()
        group = self.driver.shard.groups.by_id.get(GROUP)
        if isinstance(group, ClassicGroup):
            self.generations = {g: m for g, m in self.generations.items() if g <= group.generation}
        for client in self.clients:
            client.broker_restarted()

    # --- invariants

    def check(self) -> None:
        if not isinstance(self.driver.shard.groups.by_id.get(GROUP), ClassicGroup):
            self.generations.clear()  # a classic group that comes later counts from the start
        self._check_beliefs()
        self._check_owners()
        self._check_offsets()
        self._check_answers()
        self._check_replay()

    def _check_beliefs(self) -> None:
        owners: dict[int, str] = {}
        for client in self.live:
            for partition in client.owned:
                if partition in owners:
                    raise self.violation(
                        f"OneOwnerPerPartition: {client.name} and {owners[partition]} both read {partition}"
                    )
                owners[partition] = client.name

    def _check_owners(self) -> None:
        group = self.driver.shard.groups.by_id.get(GROUP)
        if not isinstance(group, ConsumerGroup):
            return
        owners: dict[tuple[uuid.UUID, int], str] = {}
        for member in group.members.values():
            for epochs in (member.assigned, member.revoking):
                for topic_id, partitions in epochs.items():
                    for partition in partitions:
                        if (topic_id, partition) in owners:
                            raise self.violation(
                                f"OneOwnerPerPartition: {member.member_id} and "
                                f"{owners[topic_id, partition]} at group epoch {group.epoch}"
                            )
                        owners[topic_id, partition] = member.member_id

    def _check_offsets(self) -> None:
        for partition, offset in self.offsets.items():
            found = self.driver.fetch(GROUP, partition, TOPIC)
            if found != offset:
                raise self.violation(
                    f"CommittedOffsetsNeverGoBack: partition {partition} has {found}, committed was {offset}"
                )

    def _check_answers(self) -> None:
        limit_ms = REBALANCE_MS + 2 * SETTINGS.group_initial_rebalance_delay_ms
        for ticket, since_ms in list(self.waiting.items()):
            if not self.driver.is_parked(ticket):
                del self.waiting[ticket]
            elif self.driver.now_ms - since_ms > limit_ms:
                raise self.violation(
                    f"EveryRequestIsAnswered: {self.driver.now_ms - since_ms} ms without a reply"
                )

    def _check_replay(self) -> None:
        last = dict(self.driver.log)
        order = {key: index for index, (key, _) in enumerate(self.driver.log)}
        compacted = [(k, last[k]) for k in sorted(last, key=order.__getitem__) if last[k] is not None]
        for log in (self.driver.log, compacted):
            replayed = Groups()
            for key, value in log:
                replayed.replay(*decode(key, value))
            expected, found = durable(self.driver.shard.groups, replayed), durable(replayed, replayed)
            if expected != found:
                raise self.violation(f"RestartFindsTheSameState: {found} is not {expected}")

    def check_convergence(self) -> None:
        """Left alone, the group settles: every partition is read, by one client, and all is quiet."""
        for _ in range(60):
            self.round(2_000)
            self.check()
        live = self.live
        restless = [client.name for client in live if not client.is_stable]
        if restless:
            raise self.violation(f"AssignmentsConverge: {restless} are not settled")
        read = frozenset().union(*(client.owned for client in live)) if live else frozenset()
        everything = set(range(len(self.driver.topics.topics[TOPIC].partitions)))
        if live and read != everything:
            raise self.violation(f"AssignmentsConverge: nobody reads {everything - read}")
        loads = [len(client.owned) for client in live]
        if live and max(loads) - min(loads) > 1:
            raise self.violation(f"AssignmentsConverge: unbalanced, {loads}")
        group = self.driver.shard.groups.by_id.get(GROUP)
        members = 0 if group is None else len(group.members)
        if members != len(live):
            raise self.violation(f"AssignmentsConverge: {members} members for {len(live)} live clients")


def durable(groups: Groups, replayed: Groups) -> dict[str, object]:
    """What must not depend on whether it was lived through or replayed. A rebalance is not stored."""
    state: dict[str, object] = {"offsets": groups.offsets}
    for group_id, group in groups.by_id.items():
        match group:
            case ClassicGroup(state=State.STABLE | State.EMPTY) if group_id in replayed.by_id:
                state[group_id] = group.to_record()
            case ClassicGroup():
                state[group_id] = getattr(replayed.by_id.get(group_id), "to_record", lambda: None)()
            case ConsumerGroup():
                state[group_id] = (
                    group.epoch,
                    group.metadata_hash,
                    group.assignment_epoch,
                    group.members,
                    {m: t for m, t in group.target.items() if t},
                    group.regexes,
                    group.owners,
                )
    return state
