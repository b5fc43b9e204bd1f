"""One partition of `__share_group_state`: the share-partitions that hash to it, as one state machine.

Of each there is a snapshot in the log, followed by updates; every so many updates a new snapshot. Leaders of
partitions read and write a state, told apart by leader epochs; group coordinators begin, reset and end it,
told apart by state epochs.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from ottla.coordinator.host.journal import Instant, Journal, Outcome, Ticket
from ottla.coordinator.share.batches import combine
from ottla.coordinator.share.commands import (
    NO_DELIVERY_COMPLETE_COUNT,
    NO_START_OFFSET,
    SharePartition,
    Summary,
    WriteRequest,
)
from ottla.coordinator.share.records import (
    Key,
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    StateBatch,
    Value,
)
from ottla.coordinator.share.settings import ShareSettings
from ottla.records.batch import NO_PRODUCER_ID
from ottla.wire.errors import FencedLeaderEpoch, FencedStateEpoch, InvalidRequest, UnknownTopicOrPartition

_NO_LEADER_EPOCH = -1
_STATES = (0, 2, 4)
_DELIVERIES_MAX = 1000
"""Far more than any limit may be set to; and one more delivery still fits where it is stored."""
_OFFSET_MAX = 2**63 - 2
"""The one that follows must be an offset, too."""
_BATCH_BYTES = 20
_RECORD_OVERHEAD_BYTES = 1000


@dataclass(frozen=True, slots=True)
class ShareState:
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    created_ms: int
    updates: int = 0
    """Since the snapshot."""

    def updated(self, value: ShareUpdateValue) -> ShareState:
        start_offset = self.start_offset if value.start_offset == NO_START_OFFSET else value.start_offset
        return replace(
            self,
            leader_epoch=max(self.leader_epoch, value.leader_epoch),
            start_offset=start_offset,
            delivery_complete_count=value.delivery_complete_count,
            batches=combine((*self.batches, *value.state_batches), start_offset),
            updates=self.updates + 1,
        )


class ShareShard:
    def __init__(
        self,
        settings: ShareSettings,
        partition_count: Callable[[uuid.UUID], int],
        record_bytes_max: Callable[[], int],
    ) -> None:
        """`partition_count` of a topic, 0 of one that there is not."""
        self.states: dict[SharePartition, ShareState] = {}
        self._settings = settings
        self._partition_count = partition_count
        self._record_bytes_max = record_bytes_max
        self._journal: Journal[Key, Value] = Journal(self._replay)
        self._records_since_prune = 0

    # --- life

    def replay(self, key: Key, value: Value | None, producer_id: int = NO_PRODUCER_ID) -> None:
        self._replay(key, value)

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """Nobody writes here in transactions."""

    def _replay(self, key: Key, value: Value | None) -> None:
        self._records_since_prune += 1
        name = SharePartition(key.group_id, key.topic_id, key.partition)
        match value:
            case None:
                self.states.pop(name, None)
            case ShareSnapshotValue():
                self.states[name] = ShareState(
                    value.snapshot_epoch,
                    value.state_epoch,
                    value.leader_epoch,
                    value.start_offset,
                    value.delivery_complete_count,
                    value.state_batches,
                    value.create_timestamp,
                )
            case ShareUpdateValue():
                before = self.states.get(name)
                # An update whose snapshot was lost with a damaged part of the log still says something.
                self.states[name] = (before or _unknown(value)).updated(value)

    def next_deadline_ms(self) -> int | None:
        return None

    def tick(self, now: Instant) -> Outcome:
        return self._journal.take()

    def topics_deleted(self, topic_ids: Collection[uuid.UUID], now: Instant) -> Outcome:
        self._journal.now = now
        for name in [name for name in self.states if name.topic_id in topic_ids]:
            self._forget(name)
        return self._journal.take()

    # --- commands

    def initialize(
        self, name: SharePartition, state_epoch: int, start_offset: int, ticket: Ticket, now: Instant
    ) -> Outcome:
        def initialize() -> None:
            state = self.states.get(name)
            _check_not_negative("state epoch", state_epoch)
            if state is not None:
                _check_state_epoch(name, state, state_epoch)
            _check_offset("start offset", start_offset)
            self._check_exists(name)
            if state is None or (state.state_epoch, state.start_offset) != (state_epoch, start_offset):
                self._put_snapshot(
                    name,
                    ShareState(
                        snapshot_epoch=0 if state is None else state.snapshot_epoch + 1,
                        state_epoch=state_epoch,
                        # Whoever has been replaced as leader stays so.
                        leader_epoch=_NO_LEADER_EPOCH if state is None else state.leader_epoch,
                        start_offset=start_offset,
                        delivery_complete_count=NO_DELIVERY_COMPLETE_COUNT
                        if start_offset == NO_START_OFFSET
                        else 0,
                        batches=(),
                        created_ms=now.wall_ms,
                    ),
                )
            self._journal.reply(ticket, None)

        return self._journal.run(initialize, ticket, now)

    def read(self, name: SharePartition, leader_epoch: int, ticket: Ticket, now: Instant) -> Outcome:
        """Who reads leads the partition from now on."""

        def read() -> None:
            _check_not_negative("leader epoch", leader_epoch)
            state = self._initialized(name, "read")
            _check_leader_epoch(name, state, leader_epoch)
            self._check_exists(name)
            if leader_epoch != state.leader_epoch:
                self._put_update(
                    name,
                    state,
                    replace(state, leader_epoch=leader_epoch),
                    (),
                )
            self._journal.reply(ticket, self.states[name])

        return self._journal.run(read, ticket, now)

    def write(self, name: SharePartition, request: WriteRequest, ticket: Ticket, now: Instant) -> Outcome:
        def write() -> None:
            _check_not_negative("leader epoch", request.leader_epoch)
            _check_not_negative("state epoch", request.state_epoch)
            state = self._initialized(name, "write")
            _check_leader_epoch(name, state, request.leader_epoch)
            _check_state_epoch(name, state, request.state_epoch)
            self._check_exists(name)
            _check_offset("start offset", request.start_offset)
            _check_batches(request.batches)
            self._check_fits(name, state, request)
            self._put_update(
                name,
                state,
                replace(
                    state,
                    start_offset=max(state.start_offset, request.start_offset),
                    delivery_complete_count=_complete_count(state, request),
                ),
                request.batches,
            )
            self._journal.reply(ticket, None)

        return self._journal.run(write, ticket, now)

    def delete(self, name: SharePartition, ticket: Ticket, now: Instant) -> Outcome:
        def delete() -> None:
            self._check_exists(name)
            if name in self.states:
                self._forget(name)
            self._journal.reply(ticket, None)

        return self._journal.run(delete, ticket, now)

    def summarize(self, name: SharePartition, ticket: Ticket, now: Instant) -> Outcome:
        def summarize() -> None:
            self._check_exists(name)
            state = self.states.get(name)
            self._journal.reply(
                ticket,
                Summary()
                if state is None
                else Summary(
                    state.state_epoch,
                    max(state.leader_epoch, 0),
                    state.start_offset,
                    state.delivery_complete_count,
                ),
            )

        return self._journal.run(summarize, ticket, now)

    def snapshot_all(self, ticket: Ticket, now: Instant) -> Outcome:
        """All that the log has had before is superseded then. The reply says whether it was worth that."""

        def snapshot() -> None:
            is_worth_it = self._records_since_prune > len(self.states)
            if is_worth_it:
                for name, state in list(self.states.items()):
                    self._put_snapshot(name, replace(state, snapshot_epoch=state.snapshot_epoch + 1))
                self._records_since_prune = 0
            self._journal.reply(ticket, is_worth_it)

        return self._journal.run(snapshot, ticket, now)

    # --- steps

    def _initialized(self, name: SharePartition, verb: str) -> ShareState:
        state = self.states.get(name)
        if state is None:
            raise InvalidRequest(f"the state of {name} has not been initialized; there is nothing to {verb}")
        return state

    def _check_exists(self, name: SharePartition) -> None:
        if not 0 <= name.partition < self._partition_count(name.topic_id):
            raise UnknownTopicOrPartition(f"the partition of {name} does not exist")

    def _check_fits(self, name: SharePartition, state: ShareState, request: WriteRequest) -> None:
        """The whole state is one record some day; the log would not take one that is too long, nor would the
        shard get over that."""
        room = self._record_bytes_max() - _RECORD_OVERHEAD_BYTES - 4 * len(name.group_id)
        batches_max = max(room // _BATCH_BYTES, 1)
        # Each new one cuts at most one other in two.
        if len(state.batches) + 2 * len(request.batches) <= batches_max:
            return
        start_offset = max(state.start_offset, request.start_offset)
        count = len(combine((*state.batches, *request.batches), start_offset))
        if count > batches_max:
            raise InvalidRequest(
                f"the state of {name} would have {count} batches; what max.message.bytes of its topic allows "
                f"has room for {batches_max}"
            )

    def _put_update(
        self, name: SharePartition, before: ShareState, after: ShareState, batches: tuple[StateBatch, ...]
    ) -> None:
        if before.updates >= self._settings.updates_per_snapshot:
            combined = combine((*before.batches, *batches), after.start_offset)
            self._put_snapshot(
                name, replace(after, snapshot_epoch=before.snapshot_epoch + 1, batches=combined)
            )
            return
        self._journal.write(
            ShareUpdateKey(*name),
            ShareUpdateValue(
                snapshot_epoch=after.snapshot_epoch,
                leader_epoch=after.leader_epoch,
                start_offset=after.start_offset,
                delivery_complete_count=after.delivery_complete_count,
                state_batches=combine(batches, after.start_offset),
            ),
        )

    def _put_snapshot(self, name: SharePartition, state: ShareState) -> None:
        self._journal.write(
            ShareSnapshotKey(*name),
            ShareSnapshotValue(
                snapshot_epoch=state.snapshot_epoch,
                state_epoch=state.state_epoch,
                leader_epoch=state.leader_epoch,
                start_offset=state.start_offset,
                delivery_complete_count=state.delivery_complete_count,
                create_timestamp=state.created_ms,
                write_timestamp=self._journal.now.wall_ms,
                state_batches=state.batches,
            ),
        )

    def _forget(self, name: SharePartition) -> None:
        self._journal.write(ShareSnapshotKey(*name), None)


def _unknown(value: ShareUpdateValue) -> ShareState:
    return ShareState(
        value.snapshot_epoch, 0, value.leader_epoch, NO_START_OFFSET, NO_DELIVERY_COMPLETE_COUNT, (), 0
    )


def _complete_count(state: ShareState, request: WriteRequest) -> int:
    """It counts from the start offset, so the one that belongs to the higher of both start offsets."""
    if request.start_offset == state.start_offset:
        return max(request.delivery_complete_count, state.delivery_complete_count)
    if request.start_offset < state.start_offset:
        return state.delivery_complete_count
    return request.delivery_complete_count


def _check_not_negative(what: str, value: int) -> None:
    if value < 0:
        raise InvalidRequest(f"the {what} is {value}; it cannot be negative")


def _check_leader_epoch(name: SharePartition, state: ShareState, leader_epoch: int) -> None:
    if leader_epoch < state.leader_epoch:
        raise FencedLeaderEpoch(
            f"{name} has been led in epoch {state.leader_epoch} since epoch {leader_epoch}; refresh metadata"
        )


def _check_state_epoch(name: SharePartition, state: ShareState, state_epoch: int) -> None:
    if state_epoch < state.state_epoch:
        raise FencedStateEpoch(
            f"the state of {name} is in epoch {state.state_epoch}, no longer {state_epoch}: it was reset; "
            "read it again"
        )


def _check_offset(what: str, offset: int) -> None:
    if not NO_START_OFFSET <= offset <= _OFFSET_MAX:
        raise InvalidRequest(
            f"a {what} of {offset}: must be between 0 and {_OFFSET_MAX}, or {NO_START_OFFSET} for none"
        )


def _check_batches(batches: tuple[StateBatch, ...]) -> None:
    for batch in batches:
        if not 0 <= batch.first_offset <= batch.last_offset:
            raise InvalidRequest(
                f"a batch from offset {batch.first_offset} to {batch.last_offset} holds no records"
            )
        _check_offset("last offset", batch.last_offset)
        if batch.delivery_state not in _STATES:
            raise InvalidRequest(
                f"delivery state {batch.delivery_state}: must be 0 (available), 2 (acknowledged) or "
                "4 (archived)"
            )
        if not 0 <= batch.delivery_count <= _DELIVERIES_MAX:
            raise InvalidRequest(
                f"a delivery count of {batch.delivery_count}: must be between 0 and {_DELIVERIES_MAX}"
            )
