"""Settings of librdkafka's clients that clients for columns have, too; with others, records go one by one."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

EVERY_CLIENT: Final = frozenset(
    (
        "bootstrap.servers",
        "client.id",
        "connections.max.idle.ms",
        "default.api.timeout.ms",
        "metadata.max.age.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.ms",
    )
)
_SECURITY: Final = ("security.", "ssl.", "sasl.")


def knows_all(names: Iterable[str], known: Collection[str]) -> bool:
    return all(name in known or name.startswith(_SECURITY) for name in names)
