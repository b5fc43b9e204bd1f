"""Deletes what was read from topics between queries: nothing else would, because nothing there may expire."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from typing import Any

from ottla.client.admin.topics import Partition, delete_records
from ottla.client.errors import ClusterUnreachable
from ottla.spark.connection import Connection
from ottla.spark.positions import Offsets
from ottla.streams.on_spark.progress import last_begin
from ottla.wire.errors import KafkaError

logger = logging.getLogger("ottla.streams")


class Purger:
    """`readers` are the queries that read each topic, by name."""

    def __init__(
        self, connection: Connection, readers: Mapping[str, Collection[str]], interval_s: float
    ) -> None:
        self._connection = connection
        self._readers = readers
        self._interval_s = interval_s
        self._next_s = time.monotonic() + interval_s
        self._purged: Offsets = {}

    def purge_if_due(self, queries: Mapping[str, Any]) -> None:
        if self._readers and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + self._interval_s
            self.purge({name: last_begin(query) for name, query in queries.items()})

    def purge(self, done: Mapping[str, Offsets]) -> None:
        """`done` is up to where each query will not read again, not even after a crash."""
        wanted: dict[Partition, int] = {}
        for topic, names in self._readers.items():
            ends = [done.get(name, {}) for name in names]
            for place in {place for each in ends for place in each if place[0] == topic}:
                end = min(each.get(place, 0) for each in ends)
                if end > self._purged.get(place, 0):
                    wanted[Partition(*place)] = end
        if not wanted:
            return
        try:
            deleted = self._connection.run(delete_records(self._connection.cluster, wanted))
        except (KafkaError, ClusterUnreachable, OSError) as error:
            logger.warning("what was read of %s is not deleted yet: %s", sorted(wanted)[0], error)
            return
        for place, outcome in deleted.items():
            if isinstance(outcome, KafkaError):
                logger.warning("what was read of %s is not deleted yet: %s", place, outcome)
            else:
                self._purged[place.topic, place.number] = wanted[place]
