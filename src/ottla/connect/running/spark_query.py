"""Connectors on Spark: one streaming query each, in the one session of the worker.

A source's rows are written in transactions with the number of their micro-batch (`spark/exactly_once.py`);
a sink's micro-batches come again with the same rows after a failure. Both as Spark's checkpoint has it,
which lies in `ottla.spark.checkpoint.dir`.
"""

from __future__ import annotations

import json
import logging
import shutil
import threading
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from ottla.connect.chain import chain_of
from ottla.connect.column_transforms import transformed_columns
from ottla.connect.connector_settings import TOPICS, TOPICS_REGEX
from ottla.connect.errors import ConnectError
from ottla.connect.plugin import Connector, SparkSink, SparkSource
from ottla.connect.running.columns import read_columns, written_columns
from ottla.connect.running.environment import Converters, Worker, converters_of
from ottla.connect.running.record_task import Order
from ottla.connect.running.spark_letters import Letters, cause_of
from ottla.connect.running.task_thread import Measured, Reports, TaskThread
from ottla.connect.worker_settings import WorkerSettings
from ottla.spark.checkpoint import Checkpoint
from ottla.spark.engine import reports_since
from ottla.spark.positions import Offsets, from_stored

_LOOK_S: Final = 0.2
_MEASURE_S: Final = 2.0
_RESTARTS_MAX: Final = 3
_PASSING: Final = "Python worker failed to connect back"
_log = logging.getLogger(__name__)


class SparkHost:
    """The session of the worker, started for the first connector that needs it."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._session: Any = None

    def session(self) -> Any:
        """Raises ConnectError where Spark or Java are missing."""
        from ottla.spark.java import JavaMissing
        from ottla.spark.session import SparkMissing, forget_dead_session, spark_session

        with self._lock:
            if self._session is not None and forget_dead_session():
                _log.warning("Spark's Java has ended; connectors on it fail, and start anew with another one")
                self._session = None
            if self._session is None:
                _log.info("starting Spark for the first connector that needs it")
                # Tells of each of its connections.
                logging.getLogger("py4j").setLevel(logging.WARNING)
                try:
                    self._session = spark_session(
                        f"connect {self._settings['group.id']}", master=self._settings["ottla.spark.master"]
                    )
                except (SparkMissing, JavaMissing) as error:
                    raise ConnectError(str(error)) from error
            return self._session

    def stop(self) -> None:
        with self._lock:
            if self._session is not None:
                self._session.stop()
                self._session = None


class SparkRunner(TaskThread):
    def __init__(self, worker: Worker, host: SparkHost, order: Order, reports: Reports) -> None:
        super().__init__(order.task, reports, is_paused=order.is_paused)
        self._worker = worker
        self._host = host
        self._kind = order.kind
        self._given = order.connector
        self._connector: Connector | None = None
        self._query: Any = None
        self._letters: Letters | None = None
        self._records = 0
        self._lag: int | None = None
        self._reported = ""
        self._restarts = 0
        self._looked_s = 0.0

    def measured(self) -> Measured:
        skipped = 0 if self._letters is None else self._letters.skipped
        return Measured(self._records, skipped, self._lag)

    def set_up(self) -> None:
        self._connector = self._kind()
        self._connector.start(self._given)
        self._host.session()

    def turn(self) -> None:
        if self._query is None:
            self._query = self._start_query()
        if time.monotonic() - self._looked_s >= _MEASURE_S:
            self._look_at_progress()
        try:
            has_ended = self._query.awaitTermination(_LOOK_S)
        except Exception as error:
            if _PASSING not in str(error) or self._restarts >= _RESTARTS_MAX:
                raise
            # Spark gives them ten seconds, whatever else the machine does.
            _log.warning("%s: %s; the query is started again", self.task, _PASSING)
            self._restarts += 1
            self._query = None
            return
        if has_ended:
            raise ConnectError(f"the query of {self.task} has ended by itself")

    def _look_at_progress(self) -> None:
        self._looked_s = time.monotonic()
        for report in reports_since(self._query, self._reported):
            told = json.loads(report)
            self._reported = told["timestamp"]
            self._restarts = 0
            self._records += told["numInputRows"]
            self._lag = _lag_of(told["sources"]) if isinstance(self._connector, SparkSink) else None

    def turn_paused(self) -> None:
        self._stop_query()
        super().turn_paused()

    def finish(self) -> None:
        self._stop_query()

    def tear_down(self) -> None:
        self._stop_query()
        if self._connector is not None:
            self._connector.stop()

    def _stop_query(self) -> None:
        if self._query is not None:
            query, self._query = self._query, None
            query.stop()

    @property
    def _checkpoint(self) -> str:
        return checkpoint_of(self._worker.settings, self.task.connector)

    def _start_query(self) -> Any:
        session = self._host.session()
        converters = converters_of(self._worker, self._given)
        if isinstance(self._connector, SparkSource):
            from ottla.spark.sink import write_stream

            chain = chain_of(self._worker.plugins, self._given)
            read = transformed_columns(self._connector.read(session), chain, self._given.get("topic"))
            rows = written_columns(read, converters, self._given)
            topic = None if "topic" in rows.columns else self._given["topic"]
            if topic is not None:
                self._worker.ensure_topic(self._given, topic)
                self._worker.topic_used(self.task, topic)
            client = self._worker.settings.client_of("producer", self._given)
            return write_stream(
                rows,
                application_id=f"{self._worker.settings['group.id']}-{self.task}",
                bootstrap_servers=client.pop("bootstrap.servers"),
                checkpoint=self._checkpoint,
                topic=topic,
                options={f"kafka.{name}": value for name, value in client.items()},
                query_name=str(self.task),
            )
        assert isinstance(self._connector, SparkSink)
        return self._start_sink(session, self._connector, converters)

    def _start_sink(self, session: Any, sink: SparkSink, converters: Converters) -> Any:
        client = self._worker.settings.client_of("consumer", self._given)
        source = session.readStream.format("ottla").option("includeHeaders", "true")
        for name, value in client.items():
            source = source.option(f"kafka.{name}", value)
        pattern = self._given.get(TOPICS_REGEX)
        source = (
            source.option("subscribePattern", pattern)
            if pattern
            else source.option("subscribe", self._given[TOPICS])
        )
        rows = source.options(**sink.read_options()).option("startingOffsets", "earliest").load()
        chain = chain_of(self._worker.plugins, self._given)
        letters = self._letters = Letters(self._worker, self.task, self._given)
        checkpoint = Checkpoint(session, self._checkpoint)

        def write(batch: Any, batch_id: int) -> None:
            if not sink.query_id:
                sink.query_id = checkpoint.query_id()
            try:
                with letters.sorted_out(batch, read_columns(batch, converters, self._given)) as readable:
                    sink.write(transformed_columns(readable, chain), batch_id)
            except Exception as error:
                _log.debug("%s: batch %d", self.task, batch_id, exc_info=error)
                # Short, because Spark takes the text apart in a way that a long one overflows its stack.
                raise ConnectError(f"batch {batch_id} was not written: {cause_of(error)}") from None

        for topic in self._given.get(TOPICS, "").split(","):
            if topic.strip():
                self._worker.topic_used(self.task, topic.strip())
        stream = rows.writeStream.foreachBatch(write).option("checkpointLocation", self._checkpoint)
        if trigger := sink.trigger():
            stream = stream.trigger(**trigger)
        return stream.queryName(str(self.task)).start()


def _lag_of(sources: Any) -> int | None:
    """Records of the topics that no micro-batch has taken."""
    lag = None
    for source in sources:
        if source.get("endOffset") and source.get("latestOffset"):
            done, latest = _stored(source["endOffset"]), _stored(source["latestOffset"])
            lag = (lag or 0) + sum(end - done.get(place, 0) for place, end in latest.items())
    return lag


def _stored(offsets: Any) -> Offsets:
    return from_stored(json.loads(offsets) if isinstance(offsets, str) else offsets)


def checkpoint_of(settings: WorkerSettings, connector: str) -> str:
    """A directory of its own, whatever the connector is called: a name may be `../other`, or have characters
    that paths of Hadoop cannot."""
    name = quote(connector, safe="").replace("%", "=")
    return f"{settings.checkpoint_dir}/{name if name.strip('.') else name.replace('.', '=2E')}"


def forget_checkpoint(settings: WorkerSettings, connector: str) -> None:
    """The connector starts anew. Raises ConnectError where the directory is not on this machine."""
    place = checkpoint_of(settings, connector)
    if "://" in place and not place.startswith("file://"):
        raise ConnectError(f"delete {place} to let {connector} start anew: it is not on this machine")
    path = Path(place.removeprefix("file://"))
    if path.exists():
        shutil.rmtree(path)
