"""A source task: polls its connector's task, writes what that gives, and stores how far it came.

At least once: offsets are stored after the records before them are acknowledged by all replicas in sync.
Exactly once, where the worker has it enabled: records and offsets are in one transaction, whose id is the
task's own, so that a task thought dead can commit nothing any more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from ottla.connect.clients import producer_of
from ottla.connect.columns import SourceColumns
from ottla.connect.errors import ConnectError, DataError, RetriableError
from ottla.connect.plugin import SourceConnector, SourceTask
from ottla.connect.records import SourceRecord
from ottla.connect.running import column_producer
from ottla.connect.running.column_producer import CannotSend, ColumnProducer, ProducerSettings
from ottla.connect.running.environment import Worker
from ottla.connect.running.failures import Origin, Skipped, Stage
from ottla.connect.running.record_task import Order, RecordRunner
from ottla.connect.running.task_thread import Reports
from ottla.connect.state.entries import Entry
from ottla.wire.errors import KafkaError

_CLOSE_S: Final = 10.0
_FULL_S: Final = 0.01
_TRANSACTION_S: Final = 60.0
_log = logging.getLogger(__name__)


_REMEDIES: Final = {
    "MSG_SIZE_TOO_LARGE": "raise producer.override.max.request.size, and max.message.bytes of the topic",
    "UNKNOWN_TOPIC_OR_PART": "the topic or partition is gone; restart the task, which makes its topics",
    "TOPIC_AUTHORIZATION_FAILED": "let the worker's user write to it (kafka-acls), and restart the task",
    "TOPIC_EXCEPTION": "a topic's name has up to 249 letters, digits, dots, dashes and underscores",
}
_SAME_REMEDY: Final = {
    "_UNKNOWN_TOPIC": "UNKNOWN_TOPIC_OR_PART",
    "_UNKNOWN_PARTITION": "UNKNOWN_TOPIC_OR_PART",
    "CLUSTER_AUTHORIZATION_FAILED": "TOPIC_AUTHORIZATION_FAILED",
    # As error codes of the protocol are called.
    "MESSAGE_TOO_LARGE": "MSG_SIZE_TOO_LARGE",
    "RECORD_LIST_TOO_LARGE": "MSG_SIZE_TOO_LARGE",
    "UNKNOWN_TOPIC_OR_PARTITION": "UNKNOWN_TOPIC_OR_PART",
    "INVALID_TOPIC_EXCEPTION": "TOPIC_EXCEPTION",
}

_Made = tuple[SourceRecord, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]


def _remedied(name: str, text: str) -> str:
    """What a client says, and what to do about it where that is known."""
    remedy = _REMEDIES.get(_SAME_REMEDY.get(name, name))
    return text if remedy is None else f"{text}: {remedy}"


class SourceRunner(RecordRunner):
    def __init__(self, worker: Worker, order: Order, reports: Reports) -> None:
        super().__init__(worker, order, reports)
        assert issubclass(order.kind, SourceConnector)
        self._kind = order.kind.task_class
        is_exactly_once = worker.settings.is_exactly_once and order.kind().is_exactly_once(order.connector)
        self._is_exactly_once = is_exactly_once
        values = self._values
        settings = worker.settings
        self._flush_s = settings["offset.flush.interval.ms"] / 1000
        if is_exactly_once and values["transaction.boundary"] == "interval":
            interval_ms = values["transaction.boundary.interval.ms"]
            self._flush_s = self._flush_s if interval_ms is None else interval_ms / 1000
        self._flushes_each_poll = is_exactly_once and values["transaction.boundary"] != "interval"
        self._flush_timeout_s = settings["offset.flush.timeout.ms"] / 1000
        from confluent_kafka import KafkaException

        self._kafka_exception = KafkaException
        self._source: SourceTask | None = None
        self._producer: Any = None
        self._column_settings: ProducerSettings | None = None
        self._column_producer: ColumnProducer | None = None
        self._failure: str | None = None
        self._offsets: dict[str, tuple[Mapping[str, Any], Mapping[str, Any] | None]] = {}
        self._is_in_transaction = False
        self._is_commit_due = False
        self._topics: set[str] = set()
        self._flushed_s = time.monotonic()

    # What the connector's task may ask

    def offset(self, partition: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return self._worker.stored_offset(self.task.connector, partition)

    def commit_soon(self) -> None:
        self._is_commit_due = True

    # The thread's turns

    def set_up(self) -> None:
        super().set_up()
        wanted: dict[str, Any] = {
            "enable.idempotence": "true",
            "error_cb": self._heard,
            # No call per record that is written.
            "on_delivery": self._delivered,
            "delivery.report.only.error": True,
        }
        if self._is_exactly_once:
            wanted["transactional.id"] = f"{self._worker.settings['group.id']}-{self.task}"
        client = self._worker.settings.client_of("producer", self._connector)
        client = {"client.id": f"connector-producer-{self.task}", **client}
        ignored: set[str] = set()
        self._producer = producer_of(client, wanted, ignored)
        if self._is_exactly_once:
            self._producer.init_transactions(_TRANSACTION_S)
        else:
            meant = {name: value for name, value in client.items() if name not in ignored}
            self._column_settings = column_producer.settings_of(meant)
        self._source = self._kind()
        self._source.context = self
        self._source.start(self._given)

    def turn(self) -> None:
        assert self._source is not None
        records: Sequence[SourceRecord] | SourceColumns = ()
        # A source that is tolerated when it is not ready is asked again.
        with suppress(Skipped):
            records = self._failures.attempt(Stage.TASK_POLL, self._source.poll, Origin(""), self._source)
        if records:
            if not isinstance(records, SourceColumns):
                self._write(records)
            elif not self._write_columns(records):
                self._write(records.records())
        if len(self._producer) or not records:
            self._producer.poll(0)
        self._check()
        is_due = self._is_commit_due or (self._flushes_each_poll and records)
        if is_due or time.monotonic() - self._flushed_s >= self._flush_s:
            self._flush(self._flush_timeout_s)

    def turn_paused(self) -> None:
        if self._offsets:
            self._flush(self._flush_timeout_s)
        super().turn_paused()

    def finish(self) -> None:
        self._flush(_CLOSE_S)

    def tear_down(self) -> None:
        if self._is_in_transaction:
            try:
                self._producer.abort_transaction(_CLOSE_S)
            except Exception as error:
                _log.warning("the transaction of %s is left open: %s", self.task, error)
        try:
            if self._source is not None:
                self._source.stop()
        finally:
            if self._column_producer is not None:
                self._column_producer.close()
            if self._producer is not None:
                self._producer.purge()
                self._producer.flush(0)
                # Its threads and connections end with the last reference.
                self._producer = None

    # Writing

    def _write(self, records: Sequence[SourceRecord]) -> None:
        if self._is_exactly_once and not self._is_in_transaction:
            self._producer.begin_transaction()
            self._is_in_transaction = True
        self._wait_for_columns()
        last: SourceRecord | None = None
        for record in records:
            with suppress(Skipped):
                self._send(record)
            if record.source_partition is not None:
                if last is not None and last.source_partition is not record.source_partition:
                    self._note_offset(last.source_partition, last.source_offset)
                last = record
        if last is not None:
            self._note_offset(last.source_partition, last.source_offset)

    def _note_offset(self, partition: Mapping[str, Any] | None, offset: Mapping[str, Any] | None) -> None:
        assert partition is not None
        self._offsets[repr(sorted(partition.items()))] = partition, offset

    def _write_columns(self, given: SourceColumns) -> bool:
        """Without a Python object per record; False where that is not possible, and nothing was written."""
        if self._column_settings is None:
            return False
        try:
            changed = self._chain.apply_columns(given)
            made = None if not changed else self._made_columns(changed)
        except Exception as error:
            # Which record it is, and what becomes of it, is found out one by one.
            _log.debug("%s: %d records go one by one: %s", self.task, len(given), error)
            return False
        if changed is None or (changed and made is None):
            return False
        if made is None:
            # All of them were dropped.
            self._note_columns(given)
            return True
        topic, keys, values = made
        self._use_topic(topic)
        # Records that went the other way are to stand before these.
        while len(self._producer) and self._producer.flush(_FULL_S):
            if self._is_to_end():
                return False
        try:
            if self._column_producer is None:
                self._column_producer = ColumnProducer(self._column_settings, self._columns_failed)
            self._column_producer.send(topic, keys, values, given.timestamp_ms, self._is_to_end)
        except CannotSend as reason:
            _log.debug("%s: %d records go one by one: %s", self.task, len(given), reason)
            return False
        self._records += len(values)
        self._note_columns(given)
        return True

    def _note_columns(self, given: SourceColumns) -> None:
        if given.source_partition is not None:
            self._note_offset(given.source_partition, given.source_offset)

    def _made_columns(self, given: SourceColumns) -> tuple[str, Any, Any] | None:
        """The topic, keys and values as pa.BinaryArrays; None if a converter wants values."""
        converters, topic = self._converters, given.topic
        values = converters.value.columns_to_bytes(topic, given.value)
        if given.key is not None:
            keys = converters.key.columns_to_bytes(topic, given.key)
            return None if keys is None or values is None else (topic, keys, values)
        no_key = converters.key.to_bytes(topic, None, None)
        return None if values is None or no_key is not None else (topic, None, values)

    def _wait_for_columns(self) -> None:
        """Those are to stand before what goes the other way."""
        while self._column_producer is not None and not self._column_producer.flush(_FULL_S):
            self._check()
            if self.is_stopping:
                raise ConnectError("stopped before all records were written")

    def _is_to_end(self) -> bool:
        return self.is_stopping or self._failure is not None

    def _send(self, given: SourceRecord) -> None:
        try:
            made = self._made(given)
        except Exception:
            # Once more, step by step: seldom, so that the others need no steps.
            made = self._made_by_steps(given)
        if made is None:
            return
        record, key, value, headers = made
        topic = record.topic
        self._use_topic(topic)
        self._produce(topic, key, value, headers, record.partition, record.timestamp_ms)
        self._records += 1

    def _use_topic(self, topic: str) -> None:
        if topic not in self._topics:
            self._worker.ensure_topic(self._connector, topic)
            self._topics.add(topic)
            self._worker.topic_used(self.task, topic)

    def _made(self, given: SourceRecord) -> _Made | None:
        record = self._chain.apply(given) if self._chain.steps else given
        if record is None:
            return None
        converters, topic = self._converters, record.topic
        return (
            record,
            converters.key.to_bytes(topic, record.key_schema, record.key),
            converters.value.to_bytes(topic, record.value_schema, record.value),
            [(each.key, converters.header.header_to_bytes(topic, each)) for each in record.headers]
            if record.headers
            else (),
        )

    def _made_by_steps(self, given: SourceRecord) -> _Made | None:
        """What fails is tried again, skipped or the end, as `errors.*` say."""
        origin = Origin(given.topic)
        attempt = self._failures.attempt
        record = attempt(Stage.TRANSFORMATION, lambda: self._chain.apply(given), origin, self._chain)
        if record is None:
            return None
        converters, topic = self._converters, record.topic
        key = attempt(
            Stage.KEY_CONVERTER,
            lambda: converters.key.to_bytes(topic, record.key_schema, record.key),
            origin,
            converters.key,
        )
        value = attempt(
            Stage.VALUE_CONVERTER,
            lambda: converters.value.to_bytes(topic, record.value_schema, record.value),
            origin,
            converters.value,
        )
        headers = attempt(
            Stage.HEADER_CONVERTER,
            lambda: [(each.key, converters.header.header_to_bytes(topic, each)) for each in record.headers],
            origin,
            converters.header,
        )
        return record, key, value, headers

    def _produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        more: dict[str, Any] = {"timestamp": timestamp_ms or 0}
        if headers:
            more["headers"] = list(headers)
        if partition is not None:
            more["partition"] = partition
        while True:
            try:
                self._producer.produce(topic, value, key, **more)
                return
            except self._kafka_exception as error:
                said = error.args[0]
                told = DataError(_remedied(said.name(), said.str()))
                self._failures.failed(Stage.KAFKA_PRODUCE, told, Origin(topic), self._producer)
            except BufferError:
                self._producer.poll(_FULL_S)
                self._check()
                if self.is_stopping:
                    raise ConnectError("stopped before all records were written") from None

    def _flush(self, timeout_s: float) -> None:
        """Stores how far the task is, if all before it is written; else that waits for the next time."""
        self._flushed_s = time.monotonic()
        if not self._offsets and not self._is_in_transaction and not self._is_commit_due:
            return
        left = self._producer.flush(timeout_s)
        self._check()
        is_behind = self._column_producer is not None and not self._column_producer.flush(timeout_s)
        self._check()
        if left or is_behind:
            told = f"{left or 'some'} records are not written after {timeout_s:g} s"
            _log.warning("%s: %s, their offsets are stored later", self.task, told)
            if self.is_stopping:
                raise ConnectError(told)
            return
        entries = [
            self._worker.offset_entry(self.task.connector, partition, offset)
            for partition, offset in self._offsets.values()
        ]
        if self._is_in_transaction:
            self._commit(entries)
        elif entries:
            try:
                self._worker.store_offsets(entries, max(timeout_s, _CLOSE_S))
            except (TimeoutError, RetriableError) as error:
                told = f"offsets could not be stored: {str(error) or 'no answer in time'}"
                _log.warning("%s: %s; trying again later", self.task, told)
                if self.is_stopping:
                    raise ConnectError(told) from error
                return
        self._offsets.clear()
        self._is_commit_due = False
        assert self._source is not None
        self._source.commit()

    def _commit(self, entries: Sequence[Entry]) -> None:
        topic = self._worker.settings["offset.storage.topic"]
        for entry in entries:
            self._produce(topic, entry.key, entry.value)
        self._producer.commit_transaction(_TRANSACTION_S)
        self._is_in_transaction = False
        self._check()

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None and self._failure is None:
            told = _remedied(error.name(), error.str())
            self._failure = f"a record could not be written to {message.topic()}: {told}"

    def _columns_failed(self, topic: str, error: Exception) -> None:
        if self._failure is None:
            name = error.code.name.upper() if isinstance(error, KafkaError) else ""
            self._failure = f"records could not be written to {topic}: {_remedied(name, str(error))}"

    def _heard(self, error: Any) -> None:
        if error.fatal():
            self._failure = f"the producer cannot go on: {error.str()}"

    def _check(self) -> None:
        if self._failure is not None:
            raise ConnectError(self._failure)
