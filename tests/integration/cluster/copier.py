"""A copier as a process: `python -m tests.integration.cluster.copier SERVERS NAME`. It says what it does.

A line for each transaction, and one when there was none to make. It has no end of its own.
"""

from __future__ import annotations

import os
import sys
import threading

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from tests.integration.cluster.workload import (
    COPIED,
    GROUP_SESSION_MS,
    QUIET,
    WAIT_S,
    WRITTEN,
    Transactional,
    place_of,
    value_of,
)


class Copier(Transactional):
    """Reads in a group and writes what it reads, with the offsets of the group in the same transaction."""

    def __init__(self, servers: str, name: str) -> None:
        super().__init__(servers, name)
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "copiers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": GROUP_SESSION_MS,
                **QUIET,
            }
        )
        self._consumer.subscribe([WRITTEN])

    def one(self, producer: Producer) -> None:
        messages = [each for each in self._consumer.consume(1000, 0.2) if each.error() is None]
        if not messages:
            print("waits", flush=True)
            return
        producer.begin_transaction()
        ends: dict[int, int] = {}
        for message in messages:
            partition, offset = place_of(message)
            producer.produce(COPIED, value_of(message), partition=partition)
            ends[partition] = offset + 1
        offsets = [TopicPartition(WRITTEN, partition, end) for partition, end in ends.items()]
        group = self._consumer.consumer_group_metadata()
        self._until_done(lambda: producer.send_offsets_to_transaction(offsets, group, WAIT_S))
        self.commit(producer)
        print("copied", flush=True)

    def was_aborted(self) -> None:
        """What was read has to be read again."""
        assigned = self._consumer.assignment()
        if not assigned:
            return

        def rewind() -> None:
            for place in self._consumer.committed(assigned, WAIT_S):
                self._consumer.seek(TopicPartition(place.topic, place.partition, max(place.offset, 0)))

        try:
            self._until_done(rewind)
        except KafkaException:
            # Taken away meanwhile: whoever has it now reads from what was committed. So does this one,
            # which forgets what it has.
            self._consumer.unsubscribe()
            self._consumer.subscribe([WRITTEN])

    def was_lost(self) -> None:
        self.was_aborted()

    def close(self) -> None:
        self._consumer.close()


def main() -> None:
    servers, name = sys.argv[1:]
    # Whoever started this may be gone without a word.
    threading.Thread(target=lambda: sys.stdin.read() or os._exit(0), daemon=True).start()
    Copier(servers, name).work()


if __name__ == "__main__":
    main()
