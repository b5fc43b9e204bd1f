"""Runs a topology on Spark: creates the topics it owns, starts its queries, waits, stops.

config = StreamsConfig(application_id="word-count", bootstrap_servers="localhost:9092")
app = StreamsApplication(topology, config)
app.start()
app.wait()
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.client.transaction import Transactions
from ottla.spark.connection import Connection, shared_connection
from ottla.spark.session import spark_session
from ottla.spark.sink import write_stream
from ottla.streams.errors import StreamsError
from ottla.streams.on_spark.cluster_topics import create_missing, existing_partitions, owned_topics
from ottla.streams.on_spark.query import QueryBuilder
from ottla.streams.on_spark.query_plan import Query, compile_plan
from ottla.streams.on_spark.shipping import ship_modules
from ottla.streams.on_spark.worker_tasks import TaskSettings
from ottla.streams.plan.partitions import partition_counts, task_count
from ottla.streams.plan.plan import Plan, subtopologies
from ottla.streams.plan.topology import Topology
from ottla.streams.queries.tables import open_table, table_names
from ottla.streams.tasks.failures import ErrorPolicy, OnError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.streams.queries.view import TableView

logger = logging.getLogger("ottla.streams")

START_ATTEMPTS_MAX = 10
STATUS_INTERVAL_S = 0.1
# Spark gives a worker ten seconds to start, which a busy machine can exceed.
_WORKER_LATE = "Python worker failed to connect back"


@dataclass(frozen=True, slots=True)
class StreamsConfig:
    """How an application runs. ``properties`` are client settings, such as security, by their Kafka names."""

    application_id: str
    bootstrap_servers: str
    state_dir: str = ""
    master: str | None = None
    offset_reset: str = "earliest"
    on_error: OnError | str = OnError.FAIL
    dead_letter_topic: str | None = None
    trigger: Mapping[str, Any] | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    max_offsets_per_trigger: int | None = None

    @property
    def checkpoint_dir(self) -> str:
        """Where Spark keeps state and progress: all of Spark must reach it."""
        return f"{self.state_dir or Path.home() / '.ottla' / 'streams'}/{self.application_id}"


class StreamsApplication:
    def __init__(self, topology: Topology, config: StreamsConfig) -> None:
        self.config = config
        self.plan: Plan = topology.plan.decorated(config.application_id)
        self.compiled: list[Query] = compile_plan(self.plan)
        self.queries: list[Any] = []
        self._session: SparkSession | None = None
        self._builder: QueryBuilder | None = None

    def start(self, session: SparkSession | None = None) -> None:
        """Start all queries, on the given session or one of its own."""
        if self.queries:
            raise StreamsError(f"{self.config.application_id} runs already")
        config = self.config
        connection = shared_connection(config.bootstrap_servers, dict(config.properties))
        counts = partition_counts(self.plan, existing_partitions(connection, self.plan))
        tasks = self._store_partitions(counts)
        written = sorted(
            set(self.plan.internal_topics) - {t for q in self.compiled for t in q.shuffled_topics}
        )
        owned = owned_topics(self.plan, config.application_id, counts, written, tasks)
        if config.dead_letter_topic is not None:
            owned.setdefault(config.dead_letter_topic, (1, {}))
        create_missing(
            connection, {name: spec for name, spec in owned.items() if name not in counts or spec[1]}
        )
        session = session or spark_session(config.application_id, master=config.master)
        self._session = session
        ship_modules(self.plan)
        self._builder = builder = QueryBuilder(
            session,
            self._task_settings(counts),
            self._source_options(),
            offset_reset=config.offset_reset,
            given_offsets=self._given_offsets(connection),
        )
        try:
            for query in self.compiled:
                # One after the other: each starts processes of its own, and Spark gives those ten seconds.
                self.queries.append(self._start_query(builder, query))
        except BaseException:
            self.stop()
            raise

    def _start_query(self, builder: QueryBuilder, query: Query) -> Any:
        config, name = self.config, self.query_name(query)
        for attempt in range(1, START_ATTEMPTS_MAX + 1):
            running = write_stream(
                builder.build(query),
                application_id=name,
                bootstrap_servers=config.bootstrap_servers,
                checkpoint=f"{config.checkpoint_dir}/{query.number}",
                options={f"kafka.{key}": value for key, value in config.properties.items()},
                trigger=config.trigger,
                output_mode="update",
                query_name=name,
            )
            while running.isActive and running.status["message"].startswith("Initializing"):
                time.sleep(STATUS_INTERVAL_S)
            if not _came_too_late(running) or attempt == START_ATTEMPTS_MAX:
                break
            logger.warning("%s: Spark's Python worker came too late, starting again", name)
        return running

    def _revive(self) -> bool:
        """Start queries again that ended because a worker came too late; whether there were any."""
        ended = [at for at, query in enumerate(self.queries) if _came_too_late(query)]
        for at in ended:
            assert self._builder is not None
            logger.warning("%s: Spark's Python worker came too late, going on", self.queries[at].name)
            self.queries[at] = self._start_query(self._builder, self.compiled[at])
        return bool(ended)

    def _given_offsets(self, connection: Connection) -> dict[tuple[str, int], int]:
        """Those that streams-application-reset has set. Those of a micro-batch say so, and count only
        together with its state."""
        given: dict[tuple[str, int], int] = {}
        for query in self.compiled:
            group = self.query_name(query)
            committed = connection.run(Transactions(connection.cluster, group).committed_offsets(group))
            given |= {place: found.offset for place, found in committed.items() if not found.metadata}
        return given

    def query_name(self, query: Query) -> str:
        """The transactional id and group of a query: the application's where there is one query only."""
        application_id = self.config.application_id
        return application_id if len(self.compiled) == 1 else f"{application_id}-{query.number}"

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until a query ends; whether one did. Raises what made it fail."""
        if self._session is None:
            raise StreamsError(f"{self.config.application_id} was not started")
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self._revive()
            for query in self.queries:
                # Raises what ended it.
                if not query.isActive and query.awaitTermination(0):
                    return True
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(STATUS_INTERVAL_S)

    def process_all_available(self) -> None:
        """Until everything that is in the topics now has been worked on."""
        # Once for each hop a record can take through internal topics.
        for _ in self.compiled:
            for at in range(len(self.compiled)):
                try:
                    self.queries[at].processAllAvailable()
                except Exception:
                    if not self._revive():
                        raise
                    self.queries[at].processAllAvailable()

    def tables(self) -> list[str]:
        """The names of the tables that can be asked."""
        return table_names(self.plan)

    def table(self, name: str) -> TableView:
        """What a table holds, from its topic: works in any process, whether the application runs or not."""
        config = self.config
        return open_table(self.plan, config.application_id, name, config.bootstrap_servers, config.properties)

    def stop(self) -> None:
        """Stop all queries. A micro-batch under way is done again at the next start."""
        for query in self.queries:
            query.stop()
        self.queries.clear()

    def _store_partitions(self, counts: Mapping[str, int]) -> dict[str, int]:
        return {
            store: task_count(query.plan, counts)
            for query in self.compiled
            for store in query.plan.stores
            if store not in query.plan.global_stores
        }

    def _task_settings(self, counts: Mapping[str, int]) -> TaskSettings:
        parts = [
            self.plan.only(names) for names in subtopologies(self.plan) if names <= self.plan.global_nodes
        ]
        return TaskSettings(
            application_id=self.config.application_id,
            errors=ErrorPolicy.of(self.config.on_error, self.config.dead_letter_topic),
            partition_counts=dict(counts),
            bootstrap_servers=self.config.bootstrap_servers,
            client_properties=dict(self.config.properties),
            global_parts=tuple(parts),
        )

    def _source_options(self) -> dict[str, str]:
        options = {f"kafka.{name}": value for name, value in self.config.properties.items()}
        options["kafka.bootstrap.servers"] = self.config.bootstrap_servers
        options["kafka.isolation.level"] = "read_committed"
        if self.config.max_offsets_per_trigger is not None:
            options["maxOffsetsPerTrigger"] = str(self.config.max_offsets_per_trigger)
        return options


def _came_too_late(query: Any) -> bool:
    return not query.isActive and _WORKER_LATE in str(query.exception())
