"""Produce (versions 3–13): append each partition's records, answer with the offsets they got.

What has to come before an answer is told in `replication.appends`. acks=0 has no answer; an error then closes
the connection, which is how such a producer learns of it.
"""

from __future__ import annotations

from ottla.handlers.authorized import allowed, topic_allowed
from ottla.handlers.context import Broker
from ottla.handlers.registry import handles
from ottla.handlers.reply import PendingReply
from ottla.handlers.session import Session
from ottla.records.batch import TRANSACTIONAL
from ottla.replication.appends import PendingAppend
from ottla.runtime.disk import ReadableBuffer
from ottla.security.authorizer import Authorizer, Permissions
from ottla.security.quotas import ClientQuotas
from ottla.wire import produce as codec
from ottla.wire.acls import AclResource, Operation
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.frame import MalformedFrame

ATTRIBUTES_AT = 22
"""The lower byte of a batch's attributes."""

Rows = list[tuple[bytes, list[codec.PartitionResult]]]


@handles(ApiKey.PRODUCE)
def produce(
    broker: Broker, session: Session, version: int, frame: memoryview, at: int
) -> list[ReadableBuffer] | PendingReply | None:
    broker.figures.produces += 1
    request = codec.parse(frame, at, version)
    transactional_id, acks, timeout_ms, topics = request
    walk = session.listener in broker.config.walking_listeners
    refused: Rows | None = None
    authorizer = session.authorizer
    if authorizer is not None:
        known = session.permissions
        # As a rule there is one topic, and it is known: what this path may cost is a few comparisons.
        if not (
            known is not None
            and known.acls is authorizer.acls
            and known.principal is session.principal
            and len(topics) == 1
            and topics[0].topic in known.writable[version >= codec.FIRST_WITH_TOPIC_IDS]
            and transactional_id is None
        ) and not _is_permitted(authorizer, session, version, request):
            topics, refused = _permitted(broker, authorizer.permissions(session), session, version, request)
            for _, rows in refused:
                for row in rows:
                    broker.figures.errors[ApiKey.PRODUCE, row.error_code] += 1
            request = request._replace(topics=topics)
    if transactional_id is None:
        outcome = broker.appends.append(version, acks, timeout_ms, topics, walk)
    else:
        outcome = broker.appends.append_transactional(version, request, walk)
    throttle_ms = session.throttle_ms
    quotas = session.quotas
    if quotas is not None and quotas.limits_requests:
        throttle_ms = _count(session, quotas, len(frame))
    if isinstance(outcome, PendingAppend):
        if acks:
            return _answer_later(broker, session, version, outcome, refused, throttle_ms)
        outcome = outcome.results
    if refused is not None:
        outcome = [*outcome, *refused]
    if acks:
        return [codec.encode(version, outcome, throttle_ms, broker.leaders, session.listener)]
    for _, rows in outcome:
        for row in rows:
            if row.error_code:
                raise MalformedFrame(f"a producer with acks=0 cannot be told of error {row.error_code}")
    return None


def _is_permitted(
    authorizer: Authorizer, session: Session, version: int, request: codec.ProduceRequest
) -> bool:
    """Whether it is known already that all of it is."""
    permissions = authorizer.permissions(session)
    writable = permissions.writable[version >= codec.FIRST_WITH_TOPIC_IDS]
    for topic, _ in request.topics:
        if topic not in writable:
            return False
    name = _transactional_id(request)
    return name is None or permissions.verdict(Operation.WRITE, AclResource.TRANSACTIONAL_ID, name).allowed


def _permitted(
    broker: Broker, permissions: Permissions, session: Session, version: int, request: codec.ProduceRequest
) -> tuple[list[codec.TopicData], Rows]:
    """What may be appended, and refusals of the rest."""
    name = _transactional_id(request)
    if name is not None and not allowed(
        session, ApiKey.PRODUCE, Operation.WRITE, AclResource.TRANSACTIONAL_ID, name
    ):
        code = ErrorCode.transactional_id_authorization_failed
        return [], [_refused(data, code) for data in request.topics]
    permitted: list[codec.TopicData] = []
    refused: Rows = []
    by_id = version >= codec.FIRST_WITH_TOPIC_IDS
    for data in request.topics:
        topic = data.topic
        if not topic_allowed(broker, session, ApiKey.PRODUCE, Operation.WRITE, topic, by_id=by_id):
            refused.append(_refused(data, ErrorCode.topic_authorization_failed))
            continue
        permitted.append(data)
        # An id may get its name later, and with it its rules.
        if not by_id or topic in broker.replicas.by_id:
            permissions.remember(permissions.writable[by_id], topic)
    return permitted, refused


def _transactional_id(request: codec.ProduceRequest) -> str | None:
    """Under which records are appended: it says nothing where they belong to no transaction."""
    if request.transactional_id is None:
        return None
    is_used = any(
        len(records) > ATTRIBUTES_AT and records[ATTRIBUTES_AT] & TRANSACTIONAL
        for _, partitions in request.topics
        for _, records in partitions
    )
    return request.transactional_id if is_used else None


def _refused(data: codec.TopicData, error: ErrorCode) -> tuple[bytes, list[codec.PartitionResult]]:
    return data.topic, [codec.PartitionResult(index, error.value) for index, _ in data.partitions]


def _count(session: Session, quotas: ClientQuotas, size: int) -> int:
    """How long the client has to wait for what it sent."""
    limit = quotas.of(session).produced
    if limit is None:
        return session.throttle_ms
    wait_ms = limit.record(size, quotas.now_ms())
    if wait_ms > session.throttle_ms:
        session.throttle(wait_ms)
        return wait_ms
    return session.throttle_ms


def _answer_later(
    broker: Broker,
    session: Session,
    version: int,
    pending: PendingAppend,
    refused: Rows | None,
    throttle_ms: int,
) -> PendingReply:
    # Only the waiting can be cancelled.
    reply = PendingReply(on_cancel=lambda: None)

    def answer(error: Exception | None) -> None:
        if error is None:
            results = pending.results if refused is None else [*pending.results, *refused]
            body = codec.encode(version, results, throttle_ms, broker.leaders, session.listener)
            reply.complete([body])
        else:
            reply.fail(error)

    pending.when_done(answer)
    return reply
