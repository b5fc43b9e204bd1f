"""librdkafka's producers and consumers, as workers and tasks use them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from ottla.client.librdkafka import UnusableSetting, made, translated
from ottla.connect.errors import ConnectError

# Critical messages only: what matters is told with the state of a task.
_QUIET: Final = {"log_level": 2, "enable.metrics.push": False}
_log = logging.getLogger(__name__)


def producer_of(client: Mapping[str, str], wanted: Mapping[str, Any], ignored: set[str] | None = None) -> Any:
    """`client` has Java's names and wins over nothing of what is `wanted`. Settings that are none of
    librdkafka's are added to `ignored`. Raises ConnectError."""
    from confluent_kafka import Producer

    # As Java's: which partition a key is in has to be the same whoever writes it.
    return _made(Producer, {"partitioner": "murmur2_random", "acks": "all"}, client, wanted, ignored)


def consumer_of(client: Mapping[str, str], wanted: Mapping[str, Any], ignored: set[str] | None = None) -> Any:
    from confluent_kafka import Consumer

    # Where enough is fetched ahead, the client would not fetch again for a whole second.
    defaults = {"auto.offset.reset": "earliest", "fetch.queue.backoff.ms": "10"}
    return _made(Consumer, defaults, client, wanted, ignored)


def _made(
    kind: Any,
    defaults: Mapping[str, Any],
    client: Mapping[str, str],
    wanted: Mapping[str, Any],
    ignored: set[str] | None,
) -> Any:
    def ignore(name: str) -> None:
        _log.debug("the setting %s means nothing to the clients that are used here", name)
        if ignored is not None:
            ignored.add(name)

    try:
        return made(kind, {**_QUIET, **defaults, **translated(client), **wanted}, ignore)
    except UnusableSetting as error:
        raise ConnectError(str(error)) from error
