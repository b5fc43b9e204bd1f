"""A sink task: reads topics as a member of the connector's group, and gives the records to the connector's
task.

Offsets are committed after the task has flushed what it was given: at least once. A connector whose writes
can be repeated (upserts, files named after offsets) makes exactly once of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.clients import consumer_of, producer_of
from ottla.connect.connector_settings import TOPICS, TOPICS_REGEX
from ottla.connect.errors import ConnectError, DataError, RetriableError
from ottla.connect.plugin import Partition, SinkConnector, SinkTask
from ottla.connect.records import SinkRecord
from ottla.connect.running import column_reader
from ottla.connect.running.column_reader import Chunk, ColumnReader, TopicMissing
from ottla.connect.running.environment import Worker
from ottla.connect.running.failures import Letter, Origin, Skipped, Stage
from ottla.connect.running.fetched import Messages, columns_are_read, sink_columns
from ottla.connect.running.record_task import Order, RecordRunner
from ottla.connect.running.task_thread import Reports
from ottla.records.compression import CorruptRecords

if TYPE_CHECKING:
    from ottla.records.arrow import ArrowDecoder

_POLL_S: Final = 0.2
_POLL_RECORDS_MAX: Final = 2000
_RETRY_S: Final = 3.0
_LAG_S: Final = 2.0
_CLOSE_S: Final = 10.0
_LOOKS: Final = 2
_LOOK_S: Final = 1.0
_log = logging.getLogger(__name__)


def _origin(message: Any) -> Origin:
    headers = tuple(message.headers() or ())
    place = message.topic(), message.partition(), message.offset()
    return Origin(*place, message.key(), message.value(), headers)


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
        self._given_messages: Iterable[Any] = ()
        """What `_pending`, or what the task is given now, was made of."""
        self._ends: dict[Partition, int] = {}
        """Behind those, and behind what was skipped among them."""
        self._topics: set[str] = set()
        self._assigned_topics: set[str] = set()
        self._flushed_s = self._looked_s = time.monotonic()
        self._are_paused = False
        self._early: list[Any] = []
        """Messages that came while the task was paused."""
        self._missed_s: float | None = None
        """When a topic was looked for in vain."""
        self._reader: ColumnReader | None = None
        self._decoders: dict[Partition, ArrowDecoder] = {}
        self._unplaced: set[Partition] = set()
        """Assigned, and not read yet."""
        self._at: dict[Partition, int] = {}
        """Up to where the reader's records were given."""
        self._chunk: Chunk | None = None
        self._batches: Iterator[Any] = iter(())
        """What is left of it."""

    def report(self, record: SinkRecord, error: Exception) -> None:
        place = record.original_topic, record.original_partition, record.offset
        found = (
            _origin(each)
            for each in self._given_messages
            if (each.topic(), each.partition(), each.offset()) == place
        )
        try:
            self._failures.failed(Stage.TASK_PUT, error, next(found, None) or Origin(*place), self._sink)
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
        client = {"client.id": f"connector-consumer-{self.task}", **client}
        ignored: set[str] = set()
        self._consumer = consumer_of(client, wanted, ignored)
        self._sink = self._kind()
        self._sink.context = self
        self._sink.start(self._given)
        if self._sink.takes_columns and not self._chain and columns_are_read(self._converters):
            meant = {name: value for name, value in client.items() if name not in ignored}
            settings = column_reader.settings_of(meant)
            self._reader = None if settings is None else ColumnReader(settings)
        pattern = self._values[TOPICS_REGEX]
        topics = [f"^{pattern}$"] if pattern else self._values[TOPICS]
        self._consumer.subscribe(
            topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def turn(self) -> None:
        self._set_paused(bool(self._pending))
        if self._pending:
            # Little comes while partitions are paused, but the group hears of the member.
            self._consume_paused(min(_POLL_S, max(0.0, self._retry_at_s - time.monotonic())))
            if time.monotonic() >= self._retry_at_s:
                self._put(self._pending)
        elif self._reader is not None:
            self._turn_columns(self._reader)
        elif messages := self._early or self._consume(_POLL_S):
            self._early = []
            self._given_messages = messages
            self._ends.clear()
            self._put(self._converted(messages))
        if time.monotonic() - self._flushed_s >= self._flush_s:
            self._flush()
        if time.monotonic() - self._looked_s >= _LAG_S:
            self._look_at_lag()
        if self._missed_s is not None and time.monotonic() - self._missed_s >= _LOOK_S:
            self._look_for_topic()

    def turn_paused(self) -> None:
        self._set_paused(True)
        if self._done:
            self._flush()
        self._consume_paused(_POLL_S)

    def finish(self) -> None:
        self._flush()

    def tear_down(self) -> None:
        with ExitStack() as left:
            # Each, whatever becomes of the others; the last one first.
            left.callback(self._forget_clients)
            if self._letters is not None:
                left.callback(self._letters.flush, _CLOSE_S)
            if self._sink is not None:
                left.callback(self._sink.stop)
            if self._reader is not None:
                left.callback(self._reader.close)
            if self._consumer is not None:
                left.callback(self._consumer.close)

    def _forget_clients(self) -> None:
        """Their threads end with the last reference."""
        self._consumer = self._letters = None

    # Reading

    def _consume_paused(self, seconds: float) -> None:
        """Partitions that come to this task meanwhile are not paused yet, and the client would not give what
        it has given of them once more."""
        found = self._consume(seconds)
        if self._reader is None:
            self._early += found
        self._set_paused(True)

    def _consume(self, seconds: float) -> list[Any]:
        from confluent_kafka import KafkaError

        found = []
        for message in self._consumer.consume(_POLL_RECORDS_MAX, timeout=seconds):
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                self._miss_topic()
                self._missed_s = time.monotonic()
                _log.warning("%s: %s; waiting for the topic", self.task, error.str())
            elif error.fatal() or not error.retriable():
                raise ConnectError(f"records cannot be read: {error.str()}")
        return found

    def _miss_topic(self) -> None:
        """One that was not there yet is waited for; one that was there is gone with all that was in it."""
        if self._values[TOPICS_REGEX]:
            return
        for _ in range(_LOOKS):
            there = self._consumer.list_topics(timeout=_CLOSE_S).topics
            gone = sorted(self._assigned_topics - there.keys())
            if not gone or self.wait(_LOOK_S):
                return
        raise ConnectError(
            f"the topic {', '.join(gone)} is gone, and with it what was not read yet. Make it anew or take "
            "it out of topics, and restart the task"
        )

    def _look_for_topic(self) -> None:
        """By itself the client would look again after five minutes."""
        from confluent_kafka import KafkaException

        try:
            there = self._consumer.list_topics(timeout=_CLOSE_S).topics
        except KafkaException as error:
            _log.warning("%s: %s; looking again", self.task, error.args[0].str())
            there = {}
        is_there = all(topic in there for topic in self._values[TOPICS] or ())
        self._missed_s = None if is_there else time.monotonic()

    def _converted(self, messages: Sequence[Any]) -> list[SinkRecord]:
        records = []
        for message in messages:
            topic = message.topic()
            try:
                try:
                    record = self._convert(message, topic)
                except Exception:
                    # Once more, step by step: seldom, so that the others need no steps.
                    record = self._convert_by_steps(message)
            except Skipped:
                record = None
            self._ends[topic, message.partition()] = message.offset() + 1
            if record is not None:
                records.append(record)
            if topic not in self._topics:
                self._topics.add(topic)
                self._worker.topic_used(self.task, topic)
        return records

    def _convert(self, message: Any, topic: str) -> SinkRecord | None:
        converters, partition, headers = self._converters, message.partition(), message.headers()
        key_schema, key = converters.key.from_bytes(topic, message.key())
        value_schema, value = converters.value.from_bytes(topic, message.value())
        _, timestamp_ms = message.timestamp()
        record = SinkRecord(
            topic=topic,
            partition=partition,
            key_schema=key_schema,
            key=key,
            value_schema=value_schema,
            value=value,
            timestamp_ms=timestamp_ms if timestamp_ms >= 0 else None,
            headers=tuple(converters.header.header_from_bytes(topic, *each) for each in headers)
            if headers
            else (),
            offset=message.offset(),
            original_topic=topic,
            original_partition=partition,
        )
        return self._chain.apply(record) if self._chain.steps else record

    def _convert_by_steps(self, message: Any) -> SinkRecord | None:
        """What fails is tried again, skipped or the end, as `errors.*` say."""
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        origin = _origin(message)
        headers = origin.headers
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
        return attempt(Stage.TRANSFORMATION, lambda: self._chain.apply(record), origin, self._chain)

    # Reading as columns

    def _turn_columns(self, reader: ColumnReader) -> None:
        # Nothing comes this way, since partitions are paused there, but the group hears of the member.
        self._consume(0)
        if self._unplaced:
            self._begin_reading(reader)
        batch = next(self._batches, None)
        if batch is not None:
            self._put_batch(batch)
            return
        if self._chunk is not None:
            # Also behind what is not to be seen, such as the ends of transactions.
            self._at[self._chunk.place] = self._done[self._chunk.place] = self._chunk.next_offset
            self._chunk = None
        try:
            self._chunk = reader.take(_POLL_S)
        except TopicMissing as error:
            self._miss_topic()
            self._missed_s = time.monotonic()
            _log.warning("%s: %s; waiting for the topic", self.task, error)
        if self._chunk is not None:
            self._batches = self._decoded(self._chunk)

    def _begin_reading(self, reader: ColumnReader) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        self._consumer.pause(self._consumer.assignment())
        places = [TopicPartition(*place) for place in sorted(self._unplaced)]
        try:
            found = self._consumer.committed(places, timeout=_CLOSE_S)
        except KafkaException as error:
            _log.warning("%s: offsets of the group: %s; asking again", self.task, error.args[0].str())
            return
        offsets = {
            (each.topic, each.partition): each.offset if each.offset >= 0 else None
            for each in found
            if each.error is None
        }
        reader.add(offsets)
        self._at |= {place: offset for place, offset in offsets.items() if offset is not None}
        self._unplaced -= offsets.keys()

    def _decoded(self, chunk: Chunk) -> Iterator[Any]:
        from ottla.records.arrow import ArrowDecoder, find_spans

        decoder = self._decoders.get(chunk.place)
        if decoder is None:
            decoder = self._decoders[chunk.place] = ArrowDecoder(*chunk.place, include_headers=True)
        spans = find_spans(chunk.records)
        try:
            yield from decoder.decode(chunk.records, spans, chunk.offset, chunk.next_offset, chunk.aborted)
        except CorruptRecords as error:
            raise ConnectError(f"records cannot be read: {error}") from error

    def _put_batch(self, batch: Any) -> None:
        assert self._sink is not None
        assert self._chunk is not None
        topic, partition = place = self._chunk.place
        if topic not in self._topics:
            self._topics.add(topic)
            self._worker.topic_used(self.task, topic)
        self._ends.clear()
        columns = sink_columns(batch, topic, partition, self._converters)
        if columns is not None:
            self._given_messages = messages = Messages(batch, topic, partition)
            self._ends[place] = batch.column("offset")[-1].as_py() + 1
            try:
                self._sink.put_columns(columns)
            except DataError as error:
                _log.debug("%s: %d records go one by one: %s", self.task, len(columns), error)
            except RetriableError as error:
                self._wait_with(self._converted(messages.every()), error)
                return
            else:
                self._taken(len(columns))
                self._at |= self._done
                return
        self._given_messages = Messages(batch, topic, partition).every()
        self._put(self._converted(self._given_messages))
        self._at |= self._done

    def _look_at_lag(self) -> None:
        """By what the client knows without asking: ends of partitions come with the records."""
        self._looked_s = time.monotonic()
        if self._reader is not None:
            self._lag = self._reader.lag(self._at)
            return
        lag = 0
        for place in self._consumer.position(self._consumer.assignment()):
            _, end = self._consumer.get_watermark_offsets(place, cached=True)
            lag += max(0, end - place.offset) if place.offset >= 0 and end >= 0 else 0
        self._lag = lag + len(self._pending)

    # Giving

    def _put(self, records: list[SinkRecord]) -> None:
        assert self._sink is not None
        try:
            if records:
                self._sink.put(records)
        except RetriableError as error:
            self._wait_with(records, error)
            return
        self._taken(len(records))

    def _wait_with(self, records: list[SinkRecord], error: RetriableError) -> None:
        _log.warning(
            "%s: %s; the same %d records come again in %g s", self.task, error, len(records), _RETRY_S
        )
        self._pending, self._retry_at_s = records, time.monotonic() + _RETRY_S

    def _taken(self, count: int) -> None:
        self._pending, self._given_messages = [], ()
        self._records += count
        # What was skipped among them counts only now: an offset behind it is behind the others, too.
        self._done |= self._ends
        self._ends.clear()

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
        self._assigned_topics |= {each.topic for each in partitions}
        places = [(each.topic, each.partition) for each in partitions]
        self._sink.open(places)
        if self._reader is not None:
            self._unplaced.update(places)
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
            self._ends.pop(place, None)
            self._at.pop(place, None)
        self._early = [each for each in self._early if (each.topic(), each.partition()) not in gone]
        self._unplaced -= gone
        if self._reader is not None:
            self._reader.remove(gone)
        if self._chunk is not None and self._chunk.place in gone:
            self._chunk, self._batches = None, iter(())
        self._pending = [
            record
            for record in self._pending
            if (record.original_topic, record.original_partition) not in gone
        ]
        self._sink.close(sorted(gone))

    def _set_paused(self, are_paused: bool) -> None:
        # What the reader reads stays paused here.
        if (
            self._reader is None
            and are_paused != self._are_paused
            and (assigned := self._consumer.assignment())
        ):
            (self._consumer.pause if are_paused else self._consumer.resume)(assigned)
            self._are_paused = are_paused
