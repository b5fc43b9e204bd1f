"""What goes wrong, as a status of HTTP and a sentence for whoever looks at the page."""

from __future__ import annotations

import struct
from typing import NamedTuple

from ottla.client.errors import ClusterUnreachable
from ottla.client.peer import PeerLost, PeerUnusable
from ottla.client.produce import InDoubt
from ottla.wire.errors import ErrorCode, KafkaError

_MISSING = {
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.unknown_topic_id,
    ErrorCode.group_id_not_found,
    ErrorCode.transactional_id_not_found,
    ErrorCode.resource_not_found,
    ErrorCode.delegation_token_not_found,
}
_NOT_THERE = {
    ErrorCode.security_disabled,
    ErrorCode.delegation_token_auth_disabled,
    ErrorCode.unsupported_version,
}
_CONFLICT = {
    ErrorCode.topic_already_exists,
    ErrorCode.non_empty_group,
    ErrorCode.group_subscribed_to_topic,
    ErrorCode.reassignment_in_progress,
}


class Refused(Exception):
    """By the console itself, before any broker was asked."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


class Problem(NamedTuple):
    status: int
    text: str
    code: str | None = None
    """Apache Kafka's name of the error, where a broker gave one."""


EXPECTED = (Refused, KafkaError, ClusterUnreachable, PeerLost, PeerUnusable, InDoubt, struct.error)
"""Everything else is a mistake of the console's own."""


def problem_of(error: Exception) -> Problem:
    match error:
        case Refused():
            return Problem(error.status, str(error))
        case KafkaError():
            text = error.message or error.code.name.replace("_", " ")
            if error.about:
                text = f"{error.about}: {text}"
            return Problem(_status(error.code), text, error.code.name.upper())
        case struct.error():
            return Problem(400, f"a number is larger than the protocol can say: {error}")
        case ClusterUnreachable() | PeerLost() | PeerUnusable() | InDoubt():
            return Problem(503, str(error))
        case _:
            return Problem(500, "the console failed; its log says how")


def _status(code: ErrorCode) -> int:
    if code in _MISSING:
        return 404
    if code.name.endswith("authorization_failed"):
        return 403
    if code in _CONFLICT:
        return 409
    if code in _NOT_THERE:
        return 501
    if code.retriable:
        return 503
    return 400
