"""Error codes of answers as the exceptions that the broker raises for them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from ottla.wire.errors import ErrorCode, KafkaError

STALE_METADATA = frozenset(
    (
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
        ErrorCode.replica_not_available,
        ErrorCode.kafka_storage_error,
        ErrorCode.not_controller,
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
    )
)
"""What a broker answers that is not, or no longer, the one to ask."""


class ClusterUnreachable(Exception):
    """None of the brokers could be reached; the text names them and what each one failed with."""

    def __init__(self, text: str, failures: Mapping[str, str]) -> None:
        super().__init__(text)
        self.failures = failures
        """What became of the last attempt, by address."""


def is_retriable(code: ErrorCode) -> bool:
    return code != ErrorCode.none and code.retriable


@cache
def _error_type(code: ErrorCode) -> type[KafkaError]:
    for kind in KafkaError.__subclasses__():
        if kind.code == code:
            return kind
    name = "".join(word.capitalize() for word in code.name.split("_"))
    return type(name, (KafkaError,), {"code": code})


def error_for(code: ErrorCode, message: str | None, about: str) -> KafkaError:
    """`about` says what was asked, so that the text makes sense far from here."""
    return _error_type(code)(message or "", about=about)


def raise_for_code(code: ErrorCode, message: str | None, about: str) -> None:
    if code != ErrorCode.none:
        raise error_for(code, message, about)
