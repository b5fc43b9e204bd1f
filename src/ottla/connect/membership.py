"""Which connectors and tasks are this worker's: those of the slots it has in the workers' group.

Slots are the partitions of the offset topic, which workers of one `group.id` divide among them as any
consumers do, by the public protocol; a connector or task belongs to the slot of its name's hash. Nothing is
read. A slot that leaves is let go of once what belongs to it has stopped, and the slots of a worker that
dies go to the others.
"""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ottla.connect.clients import consumer_of
from ottla.connect.state.lifecycle import Unit

_POLL_S: Final = 0.1
_log = logging.getLogger(__name__)


def slot_of(unit: Unit, count: int) -> int:
    """The same for all workers."""
    return zlib.crc32(str(unit).encode()) % count


class Membership:
    """`gained` and `lost` are called from its thread; slots are the group's to give away when `lost`
    returns."""

    def __init__(
        self,
        client: Mapping[str, str],
        group: str,
        topic: str,
        gained: Callable[[set[int]], None],
        lost: Callable[[set[int]], None],
    ) -> None:
        self._client = client
        self._group = group
        self._topic = topic
        self._gained = gained
        self._lost = lost
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="connect-group", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Leaves the group."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        wanted = {
            "group.id": self._group,
            "enable.auto.commit": False,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": self._client.get("session.timeout.ms", "10000"),
        }
        consumer = consumer_of(self._client, wanted)
        try:
            consumer.subscribe(
                [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
            )
            while not self._stopping.is_set():
                message = consumer.poll(_POLL_S)
                if message is not None and (error := message.error()) is not None:
                    _log.warning("the group %s: %s; trying again", self._group, error.str())
        except Exception:
            _log.exception(
                "this worker is no longer in the group %s and runs nothing: start it again", self._group
            )
        finally:
            consumer.close()

    def _assigned(self, consumer: Any, partitions: Sequence[Any]) -> None:
        consumer.incremental_assign(partitions)
        consumer.pause(partitions)
        self._gained({each.partition for each in partitions})

    def _revoked(self, consumer: Any, partitions: Sequence[Any]) -> None:
        try:
            self._lost({each.partition for each in partitions})
        except Exception:
            _log.exception("slots %s leave before all that belongs to them has stopped", partitions)
        consumer.incremental_unassign(partitions)
