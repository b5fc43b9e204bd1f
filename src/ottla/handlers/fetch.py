"""Fetch (versions 4–18): whole batches from the requested offsets, at once or when enough has arrived.

With a session (version 7 on) a client names only what changed, and gets only what changed; the bookkeeping is
`replication.sessions`. Limits as Kafka's: at most max_bytes in all and partition max_bytes each, except that
the first batch found is returned whole, so that a consumer always gets on.

What only the disk has is brought into memory first, away from the event loop. Meanwhile other partitions are
answered for, and this one is as if it had nothing yet; there is no empty answer for want of it.

Who reads committed records alone gets everything up to the last stable offset, aborted records too, with a
list of the aborted transactions to skip: batches are never taken apart here.

A follower reads to the end of the log, and by the offset it asks for it says how far it has come. Who has
something else than the leader, because that was elected since, is told from where on.

Consumers that can be sent elsewhere (version 11 on) may read from followers, too, as far as those know to be
committed. Where there is a choice, the leader tells them whose replica is nearest (KIP-392).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from ottla.handlers.authorized import allowed, topic_allowed
from ottla.handlers.context import Broker
from ottla.handlers.registry import handles
from ottla.handlers.reply import PendingReply
from ottla.handlers.session import Session
from ottla.log.types import NotInMemory
from ottla.replication.partition import Partition, Role
from ottla.replication.sessions import SESSIONLESS, FetchEntry, FetchSession, FetchSet
from ottla.runtime.disk import ReadableBuffer
from ottla.security.authorizer import Authorizer, Permissions
from ottla.security.quotas import ClientQuotas
from ottla.wire import fetch as codec
from ottla.wire.acls import CLUSTER_NAME, AclResource, Operation
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError, OffsetOutOfRange
from ottla.wire.fetch import FetchedPartition, FetchRequest, fetched

log = logging.getLogger(__name__)

INITIAL_EPOCH = 0
# What was loaded so often and still is not in memory is read all the same: memory is short, and nobody must
# wait for ever.
LOADS_MAX = 16
_LEADER = Role.LEADER

_GONE = PendingReply(lambda: None)

Topics = list[tuple[bytes, list[FetchedPartition]]]


@handles(ApiKey.FETCH)
def fetch(
    broker: Broker, session: Session, version: int, frame: memoryview, at: int
) -> list[ReadableBuffer] | PendingReply:
    broker.figures.fetches += 1
    request = codec.parse(frame, at, version)
    max_bytes = broker.config.fetch_bytes_max
    if request.max_bytes > max_bytes:  # noqa: PLR1730 - half the time of min()
        request.max_bytes = max_bytes
    if session.quotas is not None and session.quotas.limits_requests and request.replica_id < 0:
        limit = session.quotas.of(session).fetched
        if limit is not None:
            request.max_bytes = min(request.max_bytes, max(int(limit.window_amount), 1))
    # Who asks for more than fits into an answer would wait in vain.
    if request.min_bytes > request.max_bytes:  # noqa: PLR1730
        request.min_bytes = request.max_bytes
    fetch_set = _fetch_set(broker, request, version)
    if isinstance(fetch_set, ErrorCode):
        return codec.encode(version, SESSIONLESS, [], fetch_set.value, session.throttle_ms)
    if session.authorizer is not None:
        _look_again(fetch_set, session.authorizer.permissions(session))
    attempt = _Attempt(broker, session, request, version, fetch_set)
    topics, enough = attempt.collect()
    if enough or (request.max_wait_ms <= 0 and not attempt.must_load):
        return attempt.encode(topics)
    if request.min_bytes > 1:
        attempt.take_back(topics)
    return attempt.wait()


def _fetch_set(broker: Broker, request: FetchRequest, version: int) -> FetchSet | ErrorCode:
    """What to read: the request's own list, or the session it opens or continues."""
    sessions = broker.fetch_sessions
    by_id = version >= codec.FIRST_WITH_TOPIC_IDS
    fetch_set: FetchSet | None = None
    if request.session_epoch > INITIAL_EPOCH:
        found = sessions.use(request.session_id, request.session_epoch, by_id)
        if isinstance(found, ErrorCode):
            return found
        fetch_set = found
        for topic, indexes in request.forgotten:
            for index in indexes:
                fetch_set.forget(topic, index)
    else:
        if request.session_id != SESSIONLESS:
            sessions.close(request.session_id)
        if request.session_epoch == INITIAL_EPOCH and request.topics:
            fetch_set = sessions.create(by_id, request.replica_id)
        if fetch_set is None:
            fetch_set = FetchSet(request.replica_id)
    lookup = broker.replicas.by_id if by_id else broker.replicas.by_name
    for topic, partitions in request.topics:
        hosted = lookup.get(topic)
        for index, leader_epoch, offset, max_bytes, last_fetched_epoch, log_start_offset in partitions:
            partition = hosted.get(index) if hosted is not None else None
            entry = fetch_set.put(topic, index, partition)
            entry.leader_epoch = leader_epoch
            entry.offset = offset
            entry.max_bytes = max_bytes
            entry.last_fetched_epoch = last_fetched_epoch
            entry.log_start_offset = log_start_offset
    return fetch_set


def _look_again(fetch_set: FetchSet, permissions: Permissions) -> None:
    """Rules that changed may allow or refuse what has nothing new."""
    if fetch_set.permissions is not permissions:
        fetch_set.permissions = permissions
        for entry in fetch_set.entries.values():
            fetch_set.ready[entry] = None


def _failed(broker: Broker, entry: FetchEntry, error: ErrorCode) -> FetchedPartition:
    figures = broker.figures
    figures.errors[ApiKey.FETCH, error.value] += 1
    if entry.partition is not None:
        figures.failed_fetches[entry.partition.topic_partition.topic] += 1
    return FetchedPartition(entry.index, error.value, -1, -1, -1, b"")


def _not_led(partition: Partition, leader_epoch: int) -> ErrorCode:
    try:
        partition.check_leader_epoch(leader_epoch)
    except KafkaError as error:
        return error.code
    return ErrorCode.not_leader_or_follower


class _Attempt:
    """One request being answered: now, when enough bytes are there, or at its deadline."""

    __slots__ = (
        "_broker",
        "_loads",
        "_loop",
        "_missing",
        "_overdue",
        "_reply",
        "_request",
        "_scheduled",
        "_session",
        "_set",
        "_timer",
        "_version",
        "_waiting",
        "must_load",
    )

    def __init__(
        self, broker: Broker, session: Session, request: FetchRequest, version: int, fetch_set: FetchSet
    ) -> None:
        self._broker = broker
        self._session = session
        self._request = request
        self._version = version
        self._set = fetch_set
        self._waiting = False
        self._loads = 0
        self._missing: list[NotInMemory] | None = None
        self.must_load = False
        """All there is to answer with has to be brought into memory first."""

    def collect(self) -> tuple[Topics, bool]:
        """(what to answer, whether that is worth answering before the deadline).

        A full answer lists every partition asked for; an incremental one only those with news.
        """
        request = self._request
        fetch_set = self._set
        incremental = request.session_epoch > INITIAL_EPOCH
        room = request.max_bytes
        got = 0
        is_urgent = False
        topics: Topics = []
        last_topic: bytes | None = None
        authorizer = self._session.authorizer
        readable = None if authorizer is None else self._readable(authorizer)
        for entry in tuple(fetch_set.ready) if incremental else fetch_set.entries.values():
            if incremental and room <= 0:
                break
            row = (
                self._read(entry, room, got == 0)
                if readable is None or entry.topic in readable or self._may_read(entry.topic)
                else _failed(self._broker, entry, ErrorCode.topic_authorization_failed)
            )
            size = len(row.records)
            if size:
                got += size
                room -= size
                # What was read is of a partition. Where the answer is not sent, `take_back` is called.
                entry.partition.sent_bytes += size  # type: ignore[union-attr]
                # Still unread until the client says otherwise; last in line for the next answer.
                ready = fetch_set.ready
                del ready[entry]
                ready[entry] = None
            elif row.error_code or row.diverging is not None or row.preferred >= 0:
                is_urgent = True
            else:
                if fetch_set.replica_id >= 0:
                    self._nothing_for_follower(entry, row)
                    if (
                        incremental
                        and entry.sent_high_watermark != row.high_watermark
                        and self._broker.nearest_replicas is not None
                    ):
                        # Consumers may be waiting there.
                        is_urgent = True
                elif entry.offset >= row.high_watermark:
                    fetch_set.nothing_in(entry)
                if (
                    incremental
                    and entry.sent_high_watermark == row.high_watermark
                    and entry.sent_log_start == row.log_start_offset
                ):
                    continue
            if entry.topic is not last_topic:
                rows: list[FetchedPartition] = []
                topics.append((entry.topic, rows))
                last_topic = entry.topic
            rows.append(row)
        self.must_load = False
        if self._missing is not None:
            self.must_load = not got and not is_urgent
            self._load(self._missing)
            self._missing = None
        return topics, is_urgent or (got >= request.min_bytes and not self.must_load)

    def _readable(self, authorizer: Authorizer) -> Collection[bytes] | None:
        """Topics that the client is known to be allowed to read; None for all."""
        session = self._session
        if self._set.replica_id < 0:
            return authorizer.permissions(session).readable[self._version >= codec.FIRST_WITH_TOPIC_IDS]
        operation, kind = Operation.CLUSTER_ACTION, AclResource.CLUSTER
        is_broker = allowed(session, ApiKey.FETCH, operation, kind, CLUSTER_NAME)
        return None if is_broker else ()

    def _may_read(self, topic: bytes) -> bool:
        """Of one that is not known to be readable."""
        broker, authorizer = self._broker, self._session.authorizer
        if self._set.replica_id >= 0 or authorizer is None:
            return False
        by_id = self._version >= codec.FIRST_WITH_TOPIC_IDS
        if not topic_allowed(broker, self._session, ApiKey.FETCH, Operation.READ, topic, by_id=by_id):
            return False
        # An id may get its name later, and with it its rules.
        if not by_id or topic in broker.replicas.by_id:
            permissions = authorizer.permissions(self._session)
            permissions.remember(permissions.readable[by_id], topic)
        return True

    def _read(self, entry: FetchEntry, room: int, min_one: bool) -> FetchedPartition:
        partition = entry.partition
        is_led_elsewhere = False
        if partition is None or partition.role is not _LEADER:
            partition = self._resolve(entry)
            if partition is None:
                return _failed(self._broker, entry, self._unknown(entry))
            is_led_elsewhere = partition.role is not _LEADER
            if is_led_elsewhere and not self._may_follow(partition):
                return _failed(self._broker, entry, _not_led(partition, entry.leader_epoch))
        records: ReadableBuffer = b""
        aborted: list[tuple[int, int]] | None = None
        high_watermark = partition.high_watermark
        stable = partition.last_stable_offset
        upto = high_watermark
        if self._request.read_committed:
            upto, aborted = stable, []
        try:
            if entry.leader_epoch >= 0:
                partition.check_leader_epoch(entry.leader_epoch)
            if partition.leadership is not None or self._set.replica_id >= 0 or is_led_elsewhere:
                if self._request.rack and (preferred := self._nearest(entry, partition)) >= 0:
                    start = partition.log.start_offset
                    return FetchedPartition(
                        entry.index, 0, high_watermark, stable, start, b"", preferred=preferred
                    )
                diverging = self._compare(entry, partition)
                high_watermark = partition.high_watermark
                if diverging is not None:
                    start = partition.log.start_offset
                    return FetchedPartition(
                        entry.index, 0, high_watermark, stable, start, b"", aborted, diverging
                    )
                if self._set.replica_id >= 0:
                    upto = self._unthrottled(entry, partition)
            if entry.offset < upto:
                if room > 0:
                    max_bytes = entry.max_bytes if entry.max_bytes < room else room
                    records = partition.log.read(
                        entry.offset, max_bytes, upto, min_one, self._loads > LOADS_MAX
                    )
                    if aborted is not None:
                        aborted = partition.log.aborted_in(entry.offset, records)
            elif entry.offset > partition.log.next_offset:
                return _failed(self._broker, entry, ErrorCode.offset_out_of_range)
        except KafkaError as error:
            return _failed(self._broker, entry, error.code)
        except NotInMemory as missing:
            self._missing = [*(self._missing or ()), missing]
        except OSError as error:
            topic = partition.topic_partition.topic
            log.error("cannot read %s-%d at offset %d: %s", topic, entry.index, entry.offset, error)
            return _failed(self._broker, entry, ErrorCode.kafka_storage_error)
        return fetched(entry.index, high_watermark, stable, partition.log.start_offset, records, aborted)

    def _may_follow(self, partition: Partition) -> bool:
        """Read from a replica that follows. Those who replicate have to ask its leader."""
        return (
            partition.role is Role.FOLLOWER
            and self._version >= codec.FIRST_WITH_RACK
            and self._set.replica_id < 0
        )

    def _nearest(self, entry: FetchEntry, partition: Partition) -> int:
        selector = self._broker.nearest_replicas
        if selector is None or self._set.replica_id >= 0:
            return codec.NO_REPLICA
        return selector.select(partition, entry.offset, self._request.rack, self._session.listener)

    def _compare(self, entry: FetchEntry, partition: Partition) -> tuple[int, int] | None:
        """Where a reader has something else than the leader; it must not go on then.

        A follower that has the same has said by asking how far it has come.
        """
        log = partition.log
        last_epoch, offset = entry.last_fetched_epoch, entry.offset
        if last_epoch >= 0 and (last_epoch != log.latest_epoch or offset > log.next_offset):
            diverging = log.diverging_epoch(last_epoch, offset)
            if diverging is not None:
                return diverging
        if self._set.replica_id >= 0:
            if not log.start_offset <= offset <= log.next_offset:
                raise OffsetOutOfRange(
                    f"{partition.topic_partition} has offsets {log.start_offset} to {log.next_offset}, "
                    f"not {offset}"
                )
            epoch = self._request.replica_epoch
            partition.followed(self._set.replica_id, offset, entry.log_start_offset, epoch)
        return None

    def _unthrottled(self, entry: FetchEntry, partition: Partition) -> int:
        """How far a follower may read now. One that is held back asks again after its time-out."""
        if self._broker.replicas.throttles.holds_back_from(partition, self._set.replica_id):
            return entry.offset
        return partition.log.next_offset

    def _nothing_for_follower(self, entry: FetchEntry, row: FetchedPartition) -> None:
        """Kept among those to look at while there is a high watermark to tell it of."""
        partition = entry.partition
        if (
            partition is not None
            and entry.offset >= partition.log.next_offset
            and entry.sent_high_watermark == row.high_watermark
        ):
            self._set.nothing_in(entry)

    def _load(self, missing: list[NotInMemory]) -> None:
        for each in missing:
            self._broker.cold_reads.load(each, self._loaded)

    def _loaded(self) -> None:
        self._loads += 1
        if self._waiting:
            self._schedule()

    def _resolve(self, entry: FetchEntry) -> Partition | None:
        """A topic that was unknown, or deleted, may exist by now."""
        by_id = self._version >= codec.FIRST_WITH_TOPIC_IDS
        lookup = self._broker.replicas.by_id if by_id else self._broker.replicas.by_name
        hosted = lookup.get(entry.topic)
        entry.partition = None if hosted is None else hosted.get(entry.index)
        return entry.partition

    def _unknown(self, entry: FetchEntry) -> ErrorCode:
        by_id = self._version >= codec.FIRST_WITH_TOPIC_IDS
        lookup = self._broker.replicas.by_id if by_id else self._broker.replicas.by_name
        hosted = lookup.get(entry.topic)
        if hosted is None:
            return ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
        return hosted.why_missing(entry.index).code

    def encode(self, topics: Topics) -> list[ReadableBuffer]:
        fetch_set = self._set
        session_id = fetch_set.id if isinstance(fetch_set, FetchSession) else SESSIONLESS
        session = self._session
        throttle_ms = session.throttle_ms
        body = self._encoded(session_id, topics, throttle_ms)
        if session.quotas is not None and session.quotas.limits_requests and fetch_set.replica_id < 0:
            wait_ms, is_held_back = self._count(session.quotas, sum(map(len, body)))
            if is_held_back:
                return self._held_back(wait_ms)
            if wait_ms > throttle_ms:
                body = self._encoded(session_id, topics, wait_ms)
        if isinstance(fetch_set, FetchSession):
            for topic, rows in topics:
                for row in rows:
                    entry = fetch_set.entries[topic, row.partition]
                    entry.sent_high_watermark = row.high_watermark
                    entry.sent_log_start = row.log_start_offset
        if fetch_set.replica_id >= 0:
            session.is_replica = True
            self._broker.figures.follower_fetches += 1
            self._count_sent(topics)
        if session_id == SESSIONLESS:
            fetch_set.let_go()
        return body

    def _encoded(self, session_id: int, topics: Topics, throttle_ms: int) -> list[ReadableBuffer]:
        leaders, listener = self._broker.leaders, self._session.listener
        return codec.encode(self._version, session_id, topics, 0, throttle_ms, leaders, listener)

    def _count(self, quotas: ClientQuotas, size: int) -> tuple[int, bool]:
        """(how long the client has to wait for this answer, whether it gets none before that)."""
        limit = quotas.of(self._session).fetched
        if limit is None:
            return 0, False
        now_ms = quotas.now_ms()
        was_idle = limit.is_idle(now_ms)
        wait_ms = limit.record(size, now_ms)
        if wait_ms:
            self._session.throttle(wait_ms)
            # A batch that is larger than all that may be read in the windows comes after a pause, or never.
            if not was_idle:
                limit.take_back(size, now_ms)
                return wait_ms, True
        return wait_ms, False

    def _held_back(self, wait_ms: int) -> list[ReadableBuffer]:
        """An answer without anything; a session that has not told of its partitions yet begins anew."""
        session_id = SESSIONLESS
        if isinstance(self._set, FetchSession):
            if self._request.session_epoch > INITIAL_EPOCH:
                session_id = self._set.id
            else:
                self._broker.fetch_sessions.close(self._set.id)
        else:
            self._set.let_go()
        return codec.encode(self._version, session_id, [], throttle_ms=wait_ms)

    def _count_sent(self, topics: Topics) -> None:
        throttles = self._broker.replicas.throttles
        for topic, rows in topics:
            for row in rows:
                partition = self._set.entries[topic, row.partition].partition
                if row.records and partition is not None:
                    partition.sent_to_followers += len(row.records)
                    throttles.sent(partition, len(row.records))

    def take_back(self, topics: Topics) -> None:
        """What was collected is too little to be sent, and read again later. Anything is enough for most."""
        for topic, rows in topics:
            for row in rows:
                if row.records:
                    partition = self._set.entries[topic, row.partition].partition
                    if partition is not None:
                        partition.sent_bytes -= len(row.records)

    def wait(self) -> PendingReply:
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(max(self._request.max_wait_ms, 0) / 1000, self._finish)
        self._set.watch()
        self._set.on_ready = self._schedule
        self._waiting = True
        self._scheduled = False
        self._overdue = False
        self._reply = PendingReply(self._cancel, self._answer_as_is)
        return self._reply

    def _schedule(self) -> None:
        # Not at once: an append that touches several partitions should be answered together, and the
        # producer's own reply goes first.
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._try)

    def _try(self) -> None:
        self._scheduled = False
        if not self._waiting:
            return
        topics, enough = self.collect()
        if enough or (self._overdue and not self.must_load):
            self._answer(topics)
        else:
            if self._request.min_bytes > 1:
                self.take_back(topics)
            self._set.watch()

    def _finish(self) -> None:
        self._overdue = True
        self._try()

    def _answer_as_is(self) -> None:
        topics, _ = self.collect()
        self._answer(topics)

    def _answer(self, topics: Topics) -> None:
        reply = self._reply
        self._stop()
        reply.complete(self.encode(topics))

    def _cancel(self) -> None:
        self._stop()
        if not isinstance(self._set, FetchSession):
            self._set.let_go()

    def _stop(self) -> None:
        self._timer.cancel()
        self._waiting = False
        self._set.on_ready = None
        if not isinstance(self._set, FetchSession):
            self._set.unwatch()
        # They hold each other, and the reply the records it brings.
        self._reply = _GONE
