"""Cores of a quorum alone, with crashes and a network that loses, delays, reorders and cuts. No I/O.

A log is a list of (epoch, value). What was not synced before a crash may be gone after it. Everything follows
from the seed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, NamedTuple, assert_never
from uuid import UUID

from raft_checkers import Checkers, Violation

from ottla.metadata.snapshot import SnapshotId
from ottla.raft.core import RaftCore, Timeouts
from ottla.raft.events import (
    Answered,
    AppendFetched,
    AppendLeaderChange,
    AppendQuorumChange,
    Commit,
    Effect,
    Election,
    Event,
    InstallSnapshot,
    LeaderChanged,
    PersistElection,
    Reply,
    Requested,
    Resign,
    Send,
    Started,
    StoreSnapshotPart,
    Synced,
    SyncLog,
    Tick,
    Truncate,
    Unanswered,
    Warn,
)
from ottla.raft.messages import (
    AddVoterRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Position,
    RemoveVoterRequest,
    Request,
    VoterChange,
)
from ottla.raft.roles import Role
from ottla.raft.voters import SUPPORTED, ReplicaKey, Voter, VoterSet

TIMEOUTS = Timeouts(election=100, fetch=200, backoff_max=100, request=200, retry_backoff=5)
# Elections take about as long as a message: many stand at once.
NERVOUS = Timeouts(election=20, fetch=60, backoff_max=20, request=60, retry_backoff=3)
FETCH_WAIT_MS = 20
SNAPSHOT_PART = 3

Entry = tuple[int, Any]


class Voters(NamedTuple):
    """The value of an entry that changes them."""

    set: VoterSet
    why: str


class SimLog:
    """Entries before `start_offset` are only in the snapshot, which is the list of them."""

    def __init__(self, voters: VoterSet) -> None:
        self._voters = [(-1, voters)]
        """With the offsets from which on they are."""
        self.kraft_version = 0
        self.entries: list[Entry] = []
        self.start_offset = 0
        self.synced = 0
        self.snapshot: SnapshotId | None = None
        self._epochs: list[int] = []
        self._starts: list[int] = []

    @property
    def voters(self) -> VoterSet:
        return self._voters[-1][1]

    @property
    def former_voters(self) -> VoterSet:
        return self._voters[-2][1] if len(self._voters) > 1 else VoterSet()

    @property
    def voters_offset(self) -> int:
        return self._voters[-1][0]

    @property
    def end_offset(self) -> int:
        return len(self.entries)

    @property
    def last_epoch(self) -> int:
        return self.entries[-1][0] if self.entries else 0

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        return self.snapshot

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return self.snapshot

    def end_of_epoch(self, epoch: int) -> Position:
        higher = bisect_right(self._epochs, epoch)
        if higher == len(self._epochs):
            return Position(self.last_epoch, self.end_offset)
        return Position(self._epochs[higher - 1] if higher else epoch, self._starts[higher])

    def append(self, entry: Entry) -> None:
        if not self._epochs or self._epochs[-1] != entry[0]:
            self._epochs.append(entry[0])
            self._starts.append(len(self.entries))
        if isinstance(entry[1], Voters):
            self._voters.append((len(self.entries), entry[1].set))
        self.entries.append(entry)

    def truncate(self, end_offset: int) -> None:
        del self.entries[end_offset:]
        self.synced = min(self.synced, end_offset)
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
        while self._voters[-1][0] >= end_offset:
            self._voters.pop()

    def take_snapshot(self, offset: int) -> None:
        self.snapshot = SnapshotId(offset, self.entries[offset - 1][0])
        self.start_offset = offset

    def install(self, snapshot: SnapshotId, entries: list[Entry]) -> None:
        self.truncate(0)
        for entry in entries:
            self.append(entry)
        self.snapshot, self.start_offset, self.synced = snapshot, snapshot.offset, snapshot.offset


class SimNode:
    def __init__(self, key: ReplicaKey, log: SimLog, rate: float) -> None:
        self.key = key
        self.id = key.id
        self.log = log
        self.election = Election()
        self.rate = rate
        """Of its clock."""
        self.is_up = False
        self.life = 0
        self.core: RaftCore
        self.parts: list[Entry] = []
        self.waiting: dict[int, tuple[FetchRequest, Callable[[FetchResponse], None]]] = {}
        self.tick_at: float | None = None
        self.leads_epoch: int | None = None


class Quorum:
    def __init__(
        self,
        seed: int,
        core: type[RaftCore] = RaftCore,
        *,
        voters: int = 3,
        observers: int = 0,
        log: type[SimLog] = SimLog,
        changes: bool = False,
    ) -> None:
        """`changes`: the log has the voters, whose disks have ids; else they are those of a configuration."""
        self.random = Random(seed)
        self._core = core
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._values = count(1)
        self._waiting_ids = count()
        self._changes = (f"change {number}" for number in count(1))
        self._log = log
        self.changes = changes
        self._disks = count(1)
        ids = range(1, voters + observers + 1)
        keys = [self._new_key(node_id) for node_id in ids]
        self.voters = VoterSet(Voter(key, (), SUPPORTED) for key in keys[:voters])
        self.nodes = {
            key.id: SimNode(key, self._new_log(key), 0.9 + 0.2 * self.random.random()) for key in keys
        }
        self.checkers = Checkers()
        self.cut: set[tuple[int, int]] = set()
        """Directed pairs between which nothing gets through."""
        self.loss = 0.0
        self.delay_ms = 2.0
        self.torn_steps = 0.0
        """How likely a crash strikes between the effects of one step."""
        self.full_disks = 0.0
        """How likely it is that who leads no more cannot keep what it has not synced."""
        self.timeouts = TIMEOUTS
        self.records_per_fetch = 5
        self.sync_ms = 10.0

    def _new_key(self, node_id: int) -> ReplicaKey:
        return ReplicaKey(node_id, UUID(int=1000 * node_id + next(self._disks)) if self.changes else None)

    def _new_log(self, key: ReplicaKey) -> SimLog:
        """Who is no voter from the beginning is not told who they are."""
        log = self._log(self.voters if not self.changes or self.voters.includes(key) else VoterSet())
        log.kraft_version = 1 if self.changes else 0
        return log

    # Time.

    def at(self, delay_ms: float, action: Callable[[], None]) -> None:
        heappush(self._heap, (self.now + delay_ms, next(self._order), action))

    def run(self, duration_ms: float, until: Callable[[], bool] | None = None) -> bool:
        end = self.now + duration_ms
        heap = self._heap
        while heap and heap[0][0] <= end:
            self.now, _, action = heappop(heap)
            action()
            if until is not None and until():
                return True
        self.now = end
        return until is None or until()

    # Nodes.

    def start(self, node: SimNode) -> None:
        node.is_up = True
        node.life += 1
        node.tick_at = None
        node.leads_epoch = None
        node.waiting.clear()
        # The file may be behind what the log proves.
        last_epoch = node.log.last_epoch
        election = node.election if node.election.epoch >= last_epoch else Election(last_epoch)
        bootstrap = tuple(self.nodes) if self.changes else self.voters.ids
        node.core = self._core(node.key, node.log, election, self.random, self.timeouts, bootstrap)
        self.checkers.started(node.id)
        self.step(node, Started())

    def crash(self, node: SimNode, power_loss: bool) -> None:
        node.is_up = False
        node.leads_epoch = None
        if power_loss:
            node.log.truncate(self.random.randint(node.log.synced, node.log.end_offset))
        node.log.synced = node.log.end_offset

    def lose_disk(self, node: SimNode) -> None:
        """It comes back empty, with another id."""
        if node.is_up:
            self.crash(node, power_loss=True)
        node.key = self._new_key(node.id)
        node.log = self._new_log(node.key)
        node.election = Election()

    def clock(self, node: SimNode) -> int:
        return int(self.now * node.rate)

    def step(self, node: SimNode, event: Event) -> None:
        effects = node.core.step(event, self.clock(node))
        self._carry_out_all(node, effects, None)

    def _carry_out_all(
        self, node: SimNode, effects: list[Effect], reply: Callable[[Any], None] | None
    ) -> None:
        torn = bool(effects) and self._tears(effects)
        done = self.random.randint(0, len(effects)) if torn else len(effects)
        life = node.life
        for effect in effects[:done]:
            self._carry_out(node, effect, reply)
            if not node.is_up or node.life != life:
                return
        if torn:
            self.crash(node, power_loss=True)
            if self.random.random() < 0.8:
                self.at(self.random.expovariate(1 / 10), lambda: self.start_again(node, life))
        else:
            self._arm(node)

    def _tears(self, effects: list[Effect]) -> bool:
        likely = self.torn_steps * (20 if isinstance(effects[0], PersistElection) else 1)
        return likely > 0 and self.random.random() < likely

    def start_again(self, node: SimNode, life: int) -> None:
        if not node.is_up and node.life == life:
            self.start(node)

    def _arm(self, node: SimNode) -> None:
        due_ms = node.core.due_ms()
        if due_ms is None:
            return
        at = max(due_ms / node.rate + 0.01, self.now)
        if node.tick_at is not None and self.now <= node.tick_at <= at:
            return
        node.tick_at = at
        life = node.life

        def tick() -> None:
            if node.life == life and node.is_up and node.tick_at == at:
                node.tick_at = None
                self.step(node, Tick())

        self.at(at - self.now, tick)

    def _carry_out(  # noqa: PLR0912 - one branch per effect
        self, node: SimNode, effect: Effect, reply: Callable[[Any], None] | None
    ) -> None:
        log = node.log
        match effect:
            case PersistElection():
                node.election = effect.election
            case AppendLeaderChange():
                self.checkers.leads(node.id, effect.epoch, log.entries)
                node.leads_epoch = effect.epoch
                self._append(node, (effect.epoch, _first_value(node, effect)))
            case AppendQuorumChange():
                self._append(node, (node.core.epoch, Voters(effect.change.voters, next(self._changes))))
            case AppendFetched():
                for offset, entry in effect.records:
                    if offset == log.end_offset:
                        log.append(entry)
                        self.checkers.appended(node.id, offset, entry)
                log.synced = log.end_offset
                self.step(node, Synced(log.end_offset))
            case SyncLog():
                if self.full_disks and self.random.random() < self.full_disks:
                    # Without room for what this node wrote as leader.
                    log.truncate(log.synced)
                log.synced = log.end_offset
            case Truncate():
                self.checkers.truncates(node.id, effect.end_offset, log.entries)
                log.truncate(effect.end_offset)
                self.step(node, Synced(log.end_offset))
            case StoreSnapshotPart():
                if effect.position == 0:
                    node.parts = []
                assert len(node.parts) == effect.position
                node.parts += effect.data
            case InstallSnapshot():
                log.install(effect.snapshot, node.parts)
                self.checkers.installs(node.id, log.entries)
                self.step(node, Synced(log.end_offset))
            case Commit():
                self.checkers.commits(node.id, effect.high_watermark, log.entries)
                self._wake(node)
            case LeaderChanged():
                if node.core.role is not Role.LEADER:
                    node.leads_epoch = None
                self._wake(node)
            case Send():
                self._send(node, effect)
            case Reply():
                assert reply is not None
                reply(effect.response)
            case Warn():
                self.checkers.warned(effect.text)
            case _:
                assert_never(effect)

    def _append(self, node: SimNode, entry: Entry) -> None:
        offset = node.log.end_offset
        node.log.append(entry)
        self.checkers.appended(node.id, offset, entry)
        life, epoch = node.life, node.core.epoch

        def synced() -> None:
            leads_on = node.is_up and node.core.epoch == epoch and node.core.role is Role.LEADER
            if node.life == life and leads_on:
                node.log.synced = max(node.log.synced, offset + 1)
                self.step(node, Synced(node.log.synced))

        self.at(self.random.uniform(0.1, self.sync_ms), synced)
        self._wake(node)

    def propose(self, node: SimNode) -> None:
        """What a client would write."""
        if node.is_up and node.core.role is Role.LEADER and node.leads_epoch == node.core.epoch:
            self._append(node, (node.core.epoch, next(self._values)))

    def change(self, node: SimNode, request: VoterChange) -> None:
        """What an administrator would ask for."""
        if node.is_up and node.leads_epoch == node.core.epoch:
            self._receive(node, request, lambda _: None)

    def snapshot(self, node: SimNode) -> None:
        committed = node.core.committed if node.is_up else None
        if committed is not None and node.log.start_offset < committed <= node.log.end_offset:
            node.log.take_snapshot(committed)

    # The network.

    def _send(self, node: SimNode, effect: Send) -> None:
        target = self.nodes[effect.node_id]
        life = node.life

        def back(response: Any) -> None:
            if node.life == life and node.is_up:
                self.step(node, Answered(effect.node_id, effect.request_id, response))

        def answer(response: Any) -> None:
            self._deliver(target.id, node.id, lambda: back(response))

        def refused() -> None:
            if node.life == life and node.is_up:
                self.step(node, Unanswered(effect.node_id, effect.request_id, self.random.random() < 0.5))

        def arrive() -> None:
            if target.is_up:
                self._receive(target, effect.request, answer)
            elif (target.id, node.id) not in self.cut:
                refused()

        self._deliver(node.id, target.id, arrive)
        if self.random.random() < 0.01:
            self._deliver(node.id, target.id, arrive)

    def _deliver(self, source: int, target: int, action: Callable[[], None]) -> None:
        if (source, target) in self.cut or self.random.random() < self.loss:
            return
        self.at(self.random.expovariate(1 / self.delay_ms), action)

    def _receive(self, node: SimNode, request: Request, answer: Callable[[Any], None]) -> None:
        def reply(response: Any) -> None:
            if (
                isinstance(request, FetchRequest)
                and isinstance(response, FetchResponse)
                and response.is_valid
            ):
                self._answer_fetch(node, request, response, answer)
            elif isinstance(request, FetchSnapshotRequest) and response.is_valid:
                answer(_snapshot_part(node, request, response))
            else:
                answer(response)

        self._carry_out_all(node, node.core.step(Requested(request), self.clock(node)), reply)

    def _answer_fetch(
        self,
        node: SimNode,
        request: FetchRequest,
        response: FetchResponse,
        answer: Callable[[Any], None],
    ) -> None:
        records = [
            (offset, node.log.entries[offset])
            for offset in range(
                request.offset, min(node.log.end_offset, request.offset + self.records_per_fetch)
            )
        ]
        if records:
            answer(response._replace(records=records))
        elif request.has_waited or (response.high_watermark or 0) > (request.high_watermark or 0):
            answer(response)
        else:
            key = next(self._waiting_ids)
            node.waiting[key] = (request, answer)
            life = node.life
            self.at(FETCH_WAIT_MS, lambda: self._wait_over(node, life, key))

    def _wait_over(self, node: SimNode, life: int, key: int) -> None:
        if node.life == life and node.is_up and key in node.waiting:
            request, answer = node.waiting.pop(key)
            self._receive(node, request._replace(has_waited=True), answer)

    def _wake(self, node: SimNode) -> None:
        life = node.life
        for key in list(node.waiting):
            self.at(0, lambda key=key: self._wait_over(node, life, key))  # type: ignore[misc]

    # What everybody sees in the end.

    def leader(self) -> SimNode | None:
        """The one that a majority follows and that has everything committed."""
        leaders = [
            node
            for node in self.nodes.values()
            if node.is_up
            and node.core.role is Role.LEADER
            and node.core.is_voter
            and node.core.high_watermark == node.log.end_offset
        ]
        return max(leaders, key=lambda node: node.core.epoch, default=None)

    def has_converged(self) -> bool:
        leader = self.leader()
        return leader is not None and all(
            node.core.epoch == leader.core.epoch
            and node.log.end_offset == leader.log.end_offset
            and node.core.committed == leader.core.committed
            for node in self.nodes.values()
            if node.is_up
        )

    def can_recover(self) -> bool:
        """Of whatever set of voters any node believes in, a majority still has its disks."""
        return all(self._has_majority(node.log.voters) for node in self.nodes.values())

    def _has_majority(self, voters: VoterSet) -> bool:
        return len(voters) == 0 or self.survives(voters)

    def survives(self, voters: VoterSet, lost: SimNode | None = None) -> bool:
        """Whether a majority would be left without one disk."""
        whole = [node for node in self.nodes.values() if node is not lost and voters.includes(node.key)]
        return len(whole) >= voters.majority

    def resign(self, node: SimNode) -> None:
        if node.is_up:
            self.step(node, Resign(stopping=False))


def _first_value(node: SimNode, effect: AppendLeaderChange) -> Any:
    name = f"leader {node.id}.{node.life}"
    return name if effect.written is None else Voters(effect.written.voters, name)


def _snapshot_part(
    node: SimNode, request: FetchSnapshotRequest, response: FetchSnapshotResponse
) -> FetchSnapshotResponse:
    from ottla.wire.errors import ErrorCode

    if node.log.snapshot != request.snapshot:
        return response._replace(error=ErrorCode.snapshot_not_found)
    size = request.snapshot.offset
    data = node.log.entries[request.position : min(size, request.position + SNAPSHOT_PART)]
    return response._replace(size=size, data=data)


def run_seed(
    seed: int,
    core: type[RaftCore] = RaftCore,
    *,
    log: type[SimLog] = SimLog,
    turns: int = 40,
    faults: bool = True,
    changes: bool = False,
) -> Quorum:
    """A life full of faults, then quiet: a majority must find a leader, and everybody must agree."""
    shape = Random(seed)
    voters, observers = (1, 2, 3, 3, 3, 4, 5), (0, 0, 1)
    if changes:
        voters, observers = (1, 1, 2, 3, 3, 4), (1, 2, 3)
    quorum = Quorum(
        seed,
        core,
        voters=shape.choice(voters),
        observers=shape.choice(observers),
        log=log,
        changes=changes,
    )
    random = quorum.random
    quorum.timeouts = shape.choice((TIMEOUTS, NERVOUS))
    quorum.records_per_fetch = shape.choice((1, 1, 5))
    quorum.sync_ms = shape.choice((1, 10, 100))
    habit = shape.choice(
        (_disturb, _hunt_leaders, _divide, _divide) if changes else (_disturb, _hunt_leaders)
    )
    nodes = list(quorum.nodes.values())
    for node in nodes:
        quorum.at(random.uniform(0, 50), lambda node=node: quorum.start(node))  # type: ignore[misc]
    quorum.run(60)
    quorum.torn_steps = shape.choice((0.0, 0.002, 0.01, 0.03)) if faults else 0
    if changes:
        quorum.full_disks = shape.choice((0.0, 0.3))
    for _ in range(turns if faults else 0):
        habit(quorum, random, nodes)
        for _ in range(random.randint(0, 6)):
            node = random.choice(nodes)
            quorum.propose(node)
            quorum.run(random.uniform(0, 15))
        if changes:
            _change_voters(quorum, random, nodes)
        for node in nodes:
            quorum.propose(node)
        quorum.run(random.uniform(1, 80))
    _quieten(quorum, random, nodes)
    if not quorum.can_recover():
        return quorum
    if not quorum.run(20_000, quorum.has_converged):
        raise Violation(
            "NoLeaderThoughAMajorityLives",
            "; ".join(
                f"node {node.id} {node.core.role.value if node.is_up else 'down'} epoch {node.core.epoch} "
                f"leader {node.core.leader_id} end {node.log.end_offset} committed {node.core.committed}"
                for node in nodes
            ),
        )
    quorum.checkers.check_all_have_committed({node.id: node.log.entries for node in nodes if node.is_up})
    return quorum


def _disturb(quorum: Quorum, random: Random, nodes: list[SimNode]) -> None:
    """One thing goes wrong, or gets better."""
    node = random.choice(nodes)
    match random.randrange(12):
        case 0 | 1:
            if node.is_up:
                quorum.crash(node, power_loss=random.random() < 0.7)
        case 2 | 3 | 4:
            for down in nodes:
                if not down.is_up:
                    quorum.start(down)
                    break
        case 5:
            quorum.loss = random.choice((0.0, 0.0, 0.1, 0.3))
        case 6:
            quorum.delay_ms = random.choice((0.5, 2, 2, 10, 60))
        case 7:
            ids = [each.id for each in nodes]
            side = set(random.sample(ids, random.randint(1, len(ids))))
            quorum.cut = {(a, b) for a in ids for b in ids if (a in side) != (b in side)}
        case 8:
            other = random.choice(nodes)
            quorum.cut.add((node.id, other.id))
        case 9 | 10:
            quorum.cut.clear()
            quorum.loss = 0
        case 11:
            if random.random() < 0.5:
                quorum.snapshot(node)
            else:
                quorum.resign(node)


def _hunt_leaders(quorum: Quorum, random: Random, nodes: list[SimNode]) -> None:
    """Whoever leads goes down, and mostly up again soon, while another one hears nothing."""
    quorum.delay_ms = random.choice((1, 5, 15))
    for node in nodes:
        if not node.is_up and random.random() < 0.5:
            quorum.start(node)
    for leader in nodes:
        if leader.is_up and leader.core.role is Role.LEADER and random.random() < 0.7:
            quorum.crash(leader, power_loss=random.random() < 0.8)
            life = leader.life
            quorum.at(
                random.expovariate(1 / 50),
                lambda leader=leader, life=life: quorum.start_again(leader, life),  # type: ignore[misc]
            )
    quorum.cut.clear()
    if random.random() < 0.7:
        deaf = random.choice(nodes)
        for other in nodes:
            quorum.cut |= {(other.id, deaf.id), (deaf.id, other.id)}


def _divide(quorum: Quorum, random: Random, nodes: list[SimNode]) -> None:
    """Two sides that cannot see each other, each with its own idea of who the voters are; or one again."""
    quorum.delay_ms = random.choice((1, 5))
    for node in nodes:
        if not node.is_up and random.random() < 0.7:
            quorum.start(node)
        elif node.is_up and random.random() < 0.05:
            quorum.crash(node, power_loss=random.random() < 0.5)
    quorum.cut.clear()
    if random.random() < 0.7:
        ids = list(quorum.nodes)
        side = set(random.sample(ids, random.randint(1, len(ids))))
        quorum.cut = {(a, b) for a in ids for b in ids if (a in side) != (b in side)}


def _change_voters(quorum: Quorum, random: Random, nodes: list[SimNode]) -> None:
    """Somebody is added or removed, sometimes several at once; now and then a disk is lost."""
    for leader in nodes:
        if not leader.is_up or leader.core.role is not Role.LEADER:
            continue
        for _ in range(random.choice((0, 1, 2, 4))):
            voters = leader.core.voters
            others = [node for node in nodes if voters.get(node.id) is None]
            if others and random.random() < 0.6:
                new = Voter(random.choice(others).key, (), SUPPORTED)
                quorum.change(leader, AddVoterRequest(new))
                continue
            # Rather those whose disks are lost; and never so that nothing would go on.
            gone = [voter for voter in voters.voters if quorum.nodes[voter.key.id].key != voter.key]
            removed = random.choice(gone or voters.voters).key
            if quorum.survives(voters.without(removed.id)):
                quorum.change(leader, RemoveVoterRequest(removed))
    if random.random() < 0.1:
        node = random.choice(nodes)
        if all(quorum.survives(each.log.voters, lost=node) for each in nodes if len(each.log.voters)):
            quorum.lose_disk(node)


def _quieten(quorum: Quorum, random: Random, nodes: list[SimNode]) -> None:
    """The network heals; of the nodes that are down, some stay down, but a majority of voters lives."""
    quorum.cut.clear()
    quorum.loss, quorum.delay_ms, quorum.torn_steps = 0, 2, 0
    quorum.full_disks = 0
    voters = [node for node in nodes if node.id in quorum.voters.ids]
    may_stay_down = 0 if quorum.changes else len(voters) - quorum.voters.majority
    for node in nodes:
        if not node.is_up:
            if node in voters and may_stay_down > 0 and random.random() < 0.5:
                may_stay_down -= 1
            else:
                quorum.start(node)
