"""ShareFetch (versions 1 to 2): records for a member of a share group, which is the only one to have them
for a while.

The session (`replication.share.sessions`) remembers the partitions; a request names those that are added or
removed, and acknowledgements of what came before. Records come as they lie in the log, in whole batches;
which of them are acquired is said besides. A request waits until there are some, at most as long as it
says, and a request that acknowledges waits until that is stored.

Epoch 0 opens a session, -1 closes it and releases what the member has. Version 2 can ask for an exact
number of records (KIP-1206), and for more time for some (KIP-1222): such a request brings no records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kio.schema.share_fetch.v2.request import ShareFetchRequest
from kio.schema.share_fetch.v2.response import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from kio.schema.types import BrokerId
from kio.static.primitive import i16, i32, i64

from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.outcome import error_code, error_message
from ottla.handlers.refusal import answer_with
from ottla.handlers.registry import handles
from ottla.handlers.share_requests import (
    Acknowledgements,
    Outcomes,
    acknowledge,
    acknowledgements_of,
    check_readable,
    current_leader,
    member_of,
    milliseconds,
    named_partitions,
)
from ottla.handlers.throttle import NOT_THROTTLED
from ottla.log.types import NotInMemory
from ottla.replication.partition import Partition
from ottla.replication.share.in_flight import Acquired, Wanted
from ottla.replication.share.persister import ShareKey
from ottla.replication.share.reading import Reading, read
from ottla.replication.share.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    Member,
    ShareSession,
    TopicIdPartition,
)
from ottla.replication.share.share_partition import SharePartition
from ottla.runtime.disk import ReadableBuffer
from ottla.runtime.turns import in_turns, slices_in_turns, take_turn
from ottla.wire.api import ApiKey
from ottla.wire.current_leader import NodeEndpoint as Endpoint
from ottla.wire.errors import (
    InvalidRequest,
    KafkaError,
    ShareSessionLimitReached,
    StorageError,
    UnsupportedVersion,
)

log = logging.getLogger(__name__)

BATCH_OPTIMIZED, RECORD_LIMIT = 0, 1
HOLD_OFF_SECONDS_MAX = 1.0
"""A broker that stops waits for it."""
LOADS_MAX = 16
"""As of fetches: what was loaded so often and still is not in memory is read all the same."""


@dataclass(slots=True)
class _Row:
    """What a partition is answered with."""

    error: KafkaError | None = None
    records: ReadableBuffer = b""
    acquired: list[Acquired] = field(default_factory=list)


@handles(
    ApiKey.SHARE_FETCH,
    answer_with(ShareFetchResponse, acquisition_lock_timeout=NOT_THROTTLED, responses=(), node_endpoints=()),
)
async def share_fetch(
    broker: Broker, context: RequestContext, request: ShareFetchRequest
) -> ShareFetchResponse:
    try:
        member = member_of(broker, request)
    except UnsupportedVersion:
        await _hold_off(request)
        raise
    _check(request)
    named = await named_partitions(request.topics)
    given = acknowledgements_of(named)
    session = await _session(broker, context, member, request, named, given)
    acknowledging = asyncio.ensure_future(
        acknowledge(broker, context, member, given, is_renewal=request.is_renew_ack)
    )
    # What is released is not to be fetched before it is stored, and what is renewed counts at once.
    await asyncio.sleep(0)
    rows: dict[TopicIdPartition, _Row] = {}
    try:
        if session is not None and not request.is_renew_ack:
            rows = await _Attempt(broker, context, request, session).run()
        outcomes = await acknowledging
    finally:
        acknowledging.cancel()
    if session is None and (closed := broker.share_groups.sessions.close(member)) is not None:
        await broker.share_groups.end(closed)
    return await _response(broker, context, member, rows, outcomes)


async def _hold_off(request: ShareFetchRequest) -> None:
    """Who is refused comes again at once."""
    await asyncio.sleep(min(request.max_wait.total_seconds(), HOLD_OFF_SECONDS_MAX))


def _check(request: ShareFetchRequest) -> None:
    if request.share_acquire_mode not in (BATCH_OPTIMIZED, RECORD_LIMIT):
        raise InvalidRequest(f"share acquire mode {request.share_acquire_mode}: must be 0 or 1")
    if request.is_renew_ack and (
        request.max_bytes or request.min_bytes or request.max_records or request.max_wait
    ):
        raise InvalidRequest(
            "a request that renews locks brings no records: maxBytes, minBytes, maxRecords and maxWaitMs "
            "must be 0"
        )


async def _session(
    broker: Broker,
    context: RequestContext,
    member: Member,
    request: ShareFetchRequest,
    named: Iterable[TopicIdPartition],
    given: Acknowledgements,
) -> ShareSession | None:
    """None: this request ends it."""
    forgotten = [
        TopicIdPartition(topic.topic_id, index)
        async for topic in in_turns(request.forgotten_topics_data)
        if topic.topic_id is not None
        async for some in slices_in_turns(topic.partitions)
        for index in some
    ]
    # No turns from here on: the session may end in one.
    sessions = broker.share_groups.sessions
    epoch = request.share_session_epoch
    if epoch == FINAL_EPOCH:
        sessions.find(member)
        return None
    if epoch == INITIAL_EPOCH:
        if given:
            raise InvalidRequest("a new session has acquired nothing that could be acknowledged")
        try:
            return sessions.open(member, named, context.session)
        except ShareSessionLimitReached:
            await _hold_off(request)
            raise
    session = sessions.use(member, epoch)
    sessions.change(session, named, forgotten)
    return session


class _Attempt:
    """One request for records: answered when there are enough, or in time."""

    def __init__(
        self, broker: Broker, context: RequestContext, request: ShareFetchRequest, session: ShareSession
    ) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._session = session
        self._member = session.member
        # Each time another partition is the first that is looked at.
        partitions = list(session.partitions)
        skipped = request.share_session_epoch % len(partitions) if partitions else 0
        self._partitions = partitions[skipped:] + partitions[:skipped]
        max_bytes = min(request.max_bytes, broker.config.fetch_bytes_max)
        quotas = context.session.quotas
        if quotas is not None and quotas.limits_requests:
            limit = quotas.of(context.session).fetched
            if limit is not None:
                max_bytes = min(max_bytes, max(int(limit.window_amount), 1))
        self._max_bytes = max_bytes
        self._min_bytes = min(request.min_bytes, max_bytes)
        self._opened: dict[TopicIdPartition, SharePartition] = {}
        self._watched: list[Partition] = []
        self._loads = 0
        self._must_load = False
        self._goes_on = False
        self._changed: asyncio.Future[None] | None = None

    async def run(self) -> dict[TopicIdPartition, _Row]:
        request = self._request
        if not self._partitions or request.max_records <= 0 or self._max_bytes <= 0:
            return {}
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.max_wait.total_seconds()
        try:
            while True:
                rows: dict[TopicIdPartition, _Row] = {}
                shares = await self._shares(rows)
                if self._session.is_closed:
                    # The member came anew, or is gone: what it got here would be locked, and seen by nobody.
                    return {}
                left = deadline - loop.time()
                self._collect(shares, rows, is_overdue=left <= 0)
                if rows or (left <= 0 and not self._must_load) or self._broker.share_groups.is_closed:
                    return rows
                if self._goes_on:
                    await take_turn()
                    continue
                self._changed = loop.create_future()
                self._watch()
                await asyncio.wait([self._changed], timeout=None if self._must_load else left)
                self._unwatch()
                # Whatever else changes in this turn of the event loop is answered together.
                await asyncio.sleep(0)
        finally:
            self._unwatch()

    async def _shares(
        self, rows: dict[TopicIdPartition, _Row]
    ) -> list[tuple[TopicIdPartition, SharePartition]]:
        """Those that are led here; `rows` say why others are not."""
        shares: list[tuple[TopicIdPartition, SharePartition]] = []
        async for some in slices_in_turns(self._partitions):
            shares += [(of, share) for of in some if (share := self._share(of, rows)) is not None]
        return shares

    def _collect(
        self,
        shares: list[tuple[TopicIdPartition, SharePartition]],
        rows: dict[TopicIdPartition, _Row],
        *,
        is_overdue: bool,
    ) -> None:
        """No turns here: what has been acquired must reach the member whose session is still open."""
        self._must_load = self._goes_on = False
        if not is_overdue and not rows and self._min_bytes > 1 and self._readable(shares) < self._min_bytes:
            return
        left = int(self._request.max_records)
        for of, share in shares:
            if left <= 0:
                break
            row = self._acquire(share, left, len(rows)) if share.error is None else _Row(share.error)
            if row is not None:
                rows[of] = row
                left -= sum(last - first + 1 for first, last, _ in row.acquired)

    def _share(self, of: TopicIdPartition, rows: dict[TopicIdPartition, _Row]) -> SharePartition | None:
        try:
            check_readable(self._broker, self._context, of)
            share = self._opened.get(of)
            if share is None or share.error is None:
                key = ShareKey(self._member.group_id, *of)
                share = self._opened[of] = self._broker.share_groups.partitions.open(key)
        except KafkaError as error:
            rows[of] = _Row(error)
            return None
        if share.error is not None:
            rows[of] = _Row(share.error)
            return None
        return share

    def _readable(self, shares: list[tuple[TopicIdPartition, SharePartition]]) -> int:
        found = (self._read(share, 0) for _, share in shares)
        return sum(len(reading.data) for reading in found if isinstance(reading, Reading))

    def _read(self, share: SharePartition, count: int) -> Reading | KafkaError | None:
        settings = self._broker.share_groups.settings_of(self._member.group_id)
        tp = share.partition.topic_partition
        try:
            return read(
                share,
                settings,
                max(self._max_bytes // len(self._partitions), 1),
                min_one=not count,
                wait=self._loads > LOADS_MAX,
            )
        except NotInMemory as missing:
            self._must_load = True
            self._broker.cold_reads.load(missing, self._loaded)
        except KafkaError as error:
            return error
        except OSError as error:
            log.error("cannot read %s for share group %s: %s", tp, self._member.group_id, error)
            return StorageError(f"{tp} cannot be read: {error}")
        return None

    def _acquire(self, share: SharePartition, records_max: int, count: int) -> _Row | None:
        request = self._request
        wanted = Wanted(
            records_max, max(request.batch_size, 1), is_exact=request.share_acquire_mode == RECORD_LIMIT
        )
        reading = self._read(share, count)
        if not isinstance(reading, Reading):
            return None if reading is None else _Row(reading)
        flight = share.flight
        was_at = None if flight is None else flight.next_offset
        acquired = share.acquire(self._member.member_id, reading, wanted)
        if acquired:
            records = reading.records(acquired)
            share.partition.sent_bytes += len(records)
            return _Row(records=records, acquired=acquired)
        if flight is not None and flight.next_offset != was_at:
            # Nothing but records that nobody is to get: on to those behind them, once others had their turn.
            self._goes_on = True
        return None

    # Waiting.

    def _watch(self) -> None:
        for share in self._opened.values():
            share.wait(self._wake)
            share.partition.watchers[self] = None
            self._watched.append(share.partition)

    def _unwatch(self) -> None:
        for share in self._opened.values():
            share.wait_no_more(self._wake)
        for partition in self._watched:
            partition.watchers.pop(self, None)
        self._watched.clear()

    def partition_changed(self) -> None:
        self._wake()

    def _loaded(self) -> None:
        self._loads += 1
        self._wake()

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)


async def _response(
    broker: Broker,
    context: RequestContext,
    member: Member,
    rows: dict[TopicIdPartition, _Row],
    outcomes: Outcomes,
) -> ShareFetchResponse:
    topics: dict[Any, list[PartitionData]] = {}
    nodes: dict[int, Endpoint] = {}
    async for of in in_turns({**rows, **outcomes}):
        row = rows.get(of) or _Row()
        acknowledged = outcomes.get(of)
        leader = current_leader(broker, context, of, row.error or acknowledged)
        if leader is not None and leader.node is not None:
            nodes[leader.node.node_id] = leader.node
        topics.setdefault(of.topic_id, []).append(
            PartitionData(
                partition_index=i32(of.partition),
                error_code=error_code(row.error),
                error_message=error_message(row.error),
                acknowledge_error_code=i16(error_code(acknowledged).value),
                acknowledge_error_message=error_message(acknowledged),
                current_leader=LeaderIdAndEpoch(
                    leader_id=i32(-1 if leader is None else leader.leader_id),
                    leader_epoch=i32(-1 if leader is None else leader.leader_epoch),
                ),
                # kio copies it into the answer as it is.
                records=row.records,  # type: ignore[arg-type]
                acquired_records=tuple(
                    AcquiredRecords(first_offset=i64(first), last_offset=i64(last), delivery_count=i16(count))
                    for first, last, count in row.acquired
                ),
            )
        )
    _count(context, sum(len(row.records) for row in rows.values()))
    return ShareFetchResponse(
        throttle_time=context.session.throttle_time,
        error_code=error_code(None),
        acquisition_lock_timeout=milliseconds(
            broker.share_groups.settings_of(member.group_id).lock_duration_ms
        ),
        responses=tuple(
            ShareFetchableTopicResponse(topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in topics.items()
        ),
        node_endpoints=tuple(
            NodeEndpoint(node_id=BrokerId(node.node_id), host=node.host, port=i32(node.port), rack=node.rack)
            for node in nodes.values()
        ),
    )


def _count(context: RequestContext, size: int) -> None:
    """Who reads more than its quota waits before it is read from again."""
    quotas = context.session.quotas
    if not size or quotas is None or not quotas.limits_requests:
        return
    limit = quotas.of(context.session).fetched
    if limit is not None and (wait_ms := limit.record(size, quotas.now_ms())):
        context.session.throttle(wait_ms)
