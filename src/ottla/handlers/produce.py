"""Produce (versions 3–13): append each partition's records, answer with the offsets they got.

What has to come before an answer is told in `replication.appends`. acks=0 has no answer; an error then closes
the connection, which is how such a producer learns of it.
"""

from __future__ import annotations

from ottla.handlers.context import Broker
from ottla.handlers.registry import handles
from ottla.handlers.reply import PendingReply
from ottla.handlers.session import Session
from ottla.replication.appends import PendingAppend
from ottla.runtime.disk import ReadableBuffer
from ottla.wire import produce as codec
from ottla.wire.api import ApiKey
from ottla.wire.frame import MalformedFrame


@handles(ApiKey.PRODUCE)
def produce(
    broker: Broker, session: Session, version: int, frame: memoryview, at: int
) -> list[ReadableBuffer] | PendingReply | None:
    request = codec.parse(frame, at, version)
    transactional_id, acks, timeout_ms, topics = request
    walk = session.listener in broker.config.walking_listeners
    if transactional_id is None:
        outcome = broker.appends.append(version, acks, timeout_ms, topics, walk)
    else:
        outcome = broker.appends.append_transactional(version, request, walk)
    if isinstance(outcome, PendingAppend):
        if acks:
            return _answer_later(broker, session, version, outcome)
        outcome = outcome.results
    elif acks:
        return [codec.encode(version, outcome, session.throttle_ms, broker.leaders, session.listener)]
    for _, rows in outcome:
        for row in rows:
            if row.error_code:
                raise MalformedFrame(f"a producer with acks=0 cannot be told of error {row.error_code}")
    return None


def _answer_later(broker: Broker, session: Session, version: int, pending: PendingAppend) -> PendingReply:
    # Only the waiting can be cancelled.
    reply = PendingReply(on_cancel=lambda: None)

    def answer(error: Exception | None) -> None:
        if error is None:
            body = codec.encode(
                version, pending.results, session.throttle_ms, broker.leaders, session.listener
            )
            reply.complete([body])
        else:
            reply.fail(error)

    pending.when_done(answer)
    return reply
