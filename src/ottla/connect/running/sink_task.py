"""A sink task: reads topics as a member of the connector's group, and gives the records to the connector's
task.

Offsets are committed after the task has flushed what it was given: at least once. A connector whose writes
can be repeated (upserts, files named after offsets) makes exactly once of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.connect.clients import consumer_of, producer_of
from ottla.connect.connector_settings import TOPICS, TOPICS_REGEX
from ottla.connect.errors import ConnectError, RetriableError
from ottla.connect.plugin import Partition, SinkConnector, SinkTask
from ottla.connect.records import SinkRecord
from ottla.connect.running.environment import Worker
from ottla.connect.running.failures import Letter, Origin, Skipped, Stage
from ottla.connect.running.record_task import Order, RecordRunner
from ottla.connect.running.task_thread import Reports

_POLL_S: Final = 0.2
_POLL_RECORDS_MAX: Final = 500
_RETRY_S: Final = 3.0
_LAG_S: Final = 2.0
_CLOSE_S: Final = 10.0
_log = logging.getLogger(__name__)


def group_of(connector: str, given: Mapping[str, str]) -> str:
    return given.get("consumer.override.group.id") or f"connect-{connector}"


class SinkRunner(RecordRunner):
    def __init__(self, worker: Worker, order: Order, reports: Reports) -> None:
        super().__init__(worker, order, reports, self._send_letter)
        assert issubclass(order.kind, SinkConnector)
        self._kind = order.kind.task_class
        self._flush_s = worker.settings["offset.flush.interval.ms"] / 1000
        self._sink: SinkTask | None = None
        self._consumer: Any = None
        self._letters: Any = None
        self._letter_failure: str | None = None
        self._pending: list[SinkRecord] = []
        """Given to the task, which was not ready for them."""
        self._retry_at_s = 0.0
        self._done: dict[Partition, int] = {}
        """Up to where the task has taken records, and not flushed yet."""
        self._origins: dict[tuple[str, int, int], Origin] = {}
        self._topics: set[str] = set()
        self._flushed_s = self._looked_s = time.monotonic()
        self._are_paused = False

    def report(self, record: SinkRecord, error: Exception) -> None:
        place = record.original_topic, record.original_partition, record.offset
        try:
            self._failures.failed(
                Stage.TASK_PUT, error, self._origins.get(place) or Origin(*place), self._sink
            )
        except Skipped:
            return

    def set_up(self) -> None:
        super().set_up()
        client = self._worker.settings.client_of("consumer", self._connector)
        wanted = {
            "group.id": group_of(self.task.connector, self._connector),
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
        }
        self._consumer = consumer_of({"client.id": f"connector-consumer-{self.task}", **client}, wanted)
        self._sink = self._kind()
        self._sink.context = self
        self._sink.start(self._given)
        pattern = self._values[TOPICS_REGEX]
        topics = [f"^{pattern}$"] if pattern else self._values[TOPICS]
        self._consumer.subscribe(
            topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def turn(self) -> None:
        self._set_paused(bool(self._pending))
        if self._pending:
            # Nothing comes while partitions are paused, but the group hears of the member.
            self._consume(min(_POLL_S, max(0.0, self._retry_at_s - time.monotonic())))
            if time.monotonic() >= self._retry_at_s:
                self._put(self._pending)
        else:
            self._put(self._converted(self._consume(_POLL_S)))
        if time.monotonic() - self._flushed_s >= self._flush_s:
            self._flush()
        if time.monotonic() - self._looked_s >= _LAG_S:
            self._look_at_lag()

    def turn_paused(self) -> None:
        self._set_paused(True)
        if self._done:
            self._flush()
        self._consume(_POLL_S)

    def finish(self) -> None:
        self._flush()

    def tear_down(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        if self._sink is not None:
            self._sink.stop()
        if self._letters is not None:
            self._letters.flush(_CLOSE_S)
        self._consumer = self._letters = None

    # Reading

    def _consume(self, seconds: float) -> list[Any]:
        from confluent_kafka import KafkaError

        found = []
        for message in self._consumer.consume(_POLL_RECORDS_MAX, timeout=seconds):
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                _log.warning("%s: %s; waiting for the topic", self.task, error.str())
            elif error.fatal() or not error.retriable():
                raise ConnectError(f"records cannot be read: {error.str()}")
        return found

    def _converted(self, messages: Sequence[Any]) -> list[SinkRecord]:
        records = []
        for message in messages:
            place = message.topic(), message.partition()
            try:
                record = self._convert(message)
            except Skipped:
                record = None
            if record is None:
                self._done[place] = message.offset() + 1
            else:
                records.append(record)
            if place[0] not in self._topics:
                self._topics.add(place[0])
                self._worker.topic_used(self.task, place[0])
        return records

    def _convert(self, message: Any) -> SinkRecord | None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        headers = tuple(message.headers() or ())
        origin = Origin(topic, partition, offset, message.key(), message.value(), headers)
        attempt, converters = self._failures.attempt, self._converters
        key = attempt(
            Stage.KEY_CONVERTER,
            lambda: converters.key.from_bytes(topic, message.key()),
            origin,
            converters.key,
        )
        value = attempt(
            Stage.VALUE_CONVERTER,
            lambda: converters.value.from_bytes(topic, message.value()),
            origin,
            converters.value,
        )
        read = attempt(
            Stage.HEADER_CONVERTER,
            lambda: tuple(converters.header.header_from_bytes(topic, name, data) for name, data in headers),
            origin,
            converters.header,
        )
        _, timestamp_ms = message.timestamp()
        record = SinkRecord(
            topic=topic,
            partition=partition,
            key_schema=key.schema,
            key=key.value,
            value_schema=value.schema,
            value=value.value,
            timestamp_ms=timestamp_ms if timestamp_ms >= 0 else None,
            headers=read,
            offset=offset,
            original_topic=topic,
            original_partition=partition,
        )
        changed = attempt(Stage.TRANSFORMATION, lambda: self._chain.apply(record), origin, self._chain)
        if changed is not None:
            self._origins[topic, partition, offset] = origin
        return changed

    def _look_at_lag(self) -> None:
        """By what the client knows without asking: ends of partitions come with the records."""
        self._looked_s = time.monotonic()
        lag = 0
        for place in self._consumer.position(self._consumer.assignment()):
            _, end = self._consumer.get_watermark_offsets(place, cached=True)
            lag += max(0, end - place.offset) if place.offset >= 0 and end >= 0 else 0
        self._lag = lag + len(self._pending)

    # Giving

    def _put(self, records: list[SinkRecord]) -> None:
        assert self._sink is not None
        if not records:
            return
        try:
            self._sink.put(records)
        except RetriableError as error:
            _log.warning(
                "%s: %s; the same %d records come again in %g s", self.task, error, len(records), _RETRY_S
            )
            self._pending, self._retry_at_s = records, time.monotonic() + _RETRY_S
            return
        self._pending = []
        self._origins.clear()
        self._records += len(records)
        for record in records:
            place = record.original_topic, record.original_partition
            self._done[place] = max(self._done.get(place, 0), record.offset + 1)

    def _flush(self) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        self._flushed_s = time.monotonic()
        if not self._done:
            return
        assert self._sink is not None
        try:
            self._sink.flush()
        except RetriableError as error:
            _log.warning("%s: %s; offsets are committed later", self.task, error)
            return
        if self._letters is not None and self._letters.flush(_CLOSE_S):
            raise ConnectError(f"records could not be written to the dead-letter topic within {_CLOSE_S:g} s")
        if self._letter_failure is not None:
            raise ConnectError(self._letter_failure)
        places = [TopicPartition(*place, offset) for place, offset in self._done.items()]
        try:
            self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            # The group has moved on; whoever has the partitions now reads what is not committed once more.
            _log.warning("%s: offsets are not committed: %s", self.task, error.args[0].str())
            return
        self._done.clear()

    def _send_letter(self, letter: Letter) -> None:
        if self._letters is None:
            client = self._worker.settings.client_of("producer", self._connector)
            self._letters = producer_of(client, {"enable.idempotence": "true"})
            self._worker.ensure_topic(
                {
                    "topic.creation.default.partitions": "1",
                    "topic.creation.default.replication.factor": str(
                        self._values["errors.deadletterqueue.topic.replication.factor"]
                    ),
                },
                letter.topic,
            )
        self._letters.produce(
            letter.topic,
            key=letter.key,
            value=letter.value,
            headers=list(letter.headers),
            on_delivery=self._posted,
        )
        self._letters.poll(0)

    def _posted(self, error: Any, message: Any) -> None:
        if error is not None:
            self._letter_failure = f"a record could not be written to {message.topic()}: {error.str()}"

    # The group

    def _assigned(self, _: Any, partitions: Sequence[Any]) -> None:
        assert self._sink is not None
        self._sink.open([(each.topic, each.partition) for each in partitions])
        # Whether they are to be paused is said again in the next turn.
        self._are_paused = False

    def _revoked(self, _: Any, partitions: Sequence[Any]) -> None:
        self._flush()
        self._lost(_, partitions)

    def _lost(self, _: Any, partitions: Sequence[Any]) -> None:
        assert self._sink is not None
        gone = {(each.topic, each.partition) for each in partitions}
        for place in gone:
            self._done.pop(place, None)
        self._pending = [
            record
            for record in self._pending
            if (record.original_topic, record.original_partition) not in gone
        ]
        self._sink.close(sorted(gone))

    def _set_paused(self, are_paused: bool) -> None:
        if are_paused != self._are_paused and (assigned := self._consumer.assignment()):
            (self._consumer.pause if are_paused else self._consumer.resume)(assigned)
            self._are_paused = are_paused
