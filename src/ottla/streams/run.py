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

from ottla.spark.connection import Connection, shared_connection
from ottla.spark.session import spark_session, with_settings
from ottla.spark.sink import EXACTLY_ONCE, GUARANTEES, write_stream
from ottla.streams.application.lag import CatchUp, hop_topics, reading
from ottla.streams.application.life import ApplicationState, Life, StateListener
from ottla.streams.application.manifest import NAME, Generation, Manifest, StateDirectory, to_text
from ottla.streams.application.monitor import ApplicationSnapshot, Monitor, application_snapshot
from ottla.streams.application.moving import move_entries
from ottla.streams.application.preparation import Preparation, prepare, query_name
from ottla.streams.application.purging import Purger
from ottla.streams.application.supervisor import Supervised, Supervisor
from ottla.streams.application.upgrade import Action
from ottla.streams.errors import StreamsError
from ottla.streams.on_spark.cluster_topics import create_missing, existing_partitions, owned_topics
from ottla.streams.on_spark.query import QueryBuilder
from ottla.streams.on_spark.query_plan import Kind, Query, Wishes, naming_remedy
from ottla.streams.on_spark.reports import Reports
from ottla.streams.on_spark.shipping import ship_modules
from ottla.streams.on_spark.shuffles import SHUFFLE_PARTITIONS, divide_state
from ottla.streams.on_spark.worker_tasks import TaskSettings
from ottla.streams.plan.partitions import task_count
from ottla.streams.plan.plan import Plan, subtopologies
from ottla.streams.plan.topology import Topology
from ottla.streams.queries.tables import open_table, table_names
from ottla.streams.tasks.failures import ErrorHandlers, ErrorPolicy, OnError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.streams.queries.view import TableView

logger = logging.getLogger("ottla.streams")

STATUS_INTERVAL_S = 0.1
_UPGRADES = ("keep", "discard")


@dataclass(frozen=True, slots=True)
class StreamsConfig:
    """How an application runs. ``properties`` are client settings, such as security, by their Kafka names.

    ``upgrade`` says what happens to state that the new version of a program cannot keep: ``keep`` refuses to
    start, ``discard`` begins without it.
    """

    application_id: str
    bootstrap_servers: str
    state_dir: str = ""
    master: str | None = None
    offset_reset: str = "earliest"
    on_error: OnError | str | ErrorHandlers = OnError.FAIL
    dead_letter_topic: str | None = None
    trigger: Mapping[str, Any] | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    max_offsets_per_trigger: int | None = None
    # How long records wait for topics of the same sub-topology that have nothing in their partition, so that
    # the oldest record is taken first. By default none waits.
    max_task_idle_ms: int = 0
    fail_on_data_loss: bool = True
    upgrade: str = "keep"
    # exactly_once_v2 or at_least_once, which is quicker and writes a micro-batch again after a crash.
    processing_guarantee: str = EXACTLY_ONCE
    # Settings of Spark, such as spark.sql.shuffle.partitions, for the session that the application starts.
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    # How often a query that fails is started again before the application gives up.
    restarts_max: int = 10
    # Between two deletions of what was read from topics between queries.
    purge_interval_ms: int = 30_000

    def __post_init__(self) -> None:
        shuffles = self.spark_settings.get(SHUFFLE_PARTITIONS, "1")
        if not shuffles.isdecimal() or int(shuffles) == 0:
            raise StreamsError(f"{SHUFFLE_PARTITIONS} is {shuffles!r}: it has to be a number greater than 0")
        if self.max_offsets_per_trigger is not None and self.max_offsets_per_trigger < 1:
            raise StreamsError(
                f"max_offsets_per_trigger is {self.max_offsets_per_trigger}: give a number greater than 0"
            )
        if self.max_task_idle_ms < 0:
            raise StreamsError(
                f"max_task_idle_ms is {self.max_task_idle_ms}: give 0, with which nothing waits, or more"
            )
        if self.processing_guarantee not in GUARANTEES:
            raise StreamsError(
                f"processing_guarantee is {self.processing_guarantee!r}: "
                f"choose one of {', '.join(GUARANTEES)}"
            )
        if self.upgrade not in _UPGRADES:
            raise StreamsError(f"upgrade is {self.upgrade!r}: choose one of {', '.join(_UPGRADES)}")

    @property
    def checkpoint_dir(self) -> str:
        """Where Spark keeps state and progress: all of Spark must reach it."""
        return f"{self.state_dir or Path.home() / '.ottla' / 'streams'}/{self.application_id}"


class StreamsApplication:
    def __init__(self, topology: Topology, config: StreamsConfig) -> None:
        self.config = config
        self.plan: Plan = topology.plan.decorated(config.application_id)
        self._preparation: Preparation | None = None
        self._manifest: Manifest = {}
        self._supervised: list[Supervised] = []
        self._supervisor: Supervisor | None = None
        self._life = Life()
        self._monitor: Monitor | None = None
        self._reports: Reports | None = None
        self._started_ms = 0

    @property
    def state(self) -> ApplicationState:
        return self._life.state

    def set_state_listener(self, listener: StateListener) -> None:
        """Called with the new state and the one before, in the thread that brings the change about. What it
        raises is logged."""
        self._life.listener = listener

    def snapshot(self) -> ApplicationSnapshot:
        """The application with its queries, nodes and stores, and their numbers since it was started."""
        return application_snapshot(
            self.plan,
            self._monitor,
            application_id=self.config.application_id,
            state=self.state,
            is_paused=any(each.is_paused for each in self._supervised),
            started_ms=self._started_ms,
            bootstrap_servers=self.config.bootstrap_servers,
        )

    @property
    def queries(self) -> list[Any]:
        """Spark's queries, as they are now."""
        return [each.query for each in self._supervised]

    def prepare(self, session: SparkSession | None = None) -> Preparation:
        """Look at the cluster and at what ran before; nothing is changed. A state directory that only Spark
        can reach needs a session.

        Raises what would keep the application from starting, except that its state cannot be kept: that is
        in the decisions.
        """
        config = self.config
        directory = StateDirectory(config.checkpoint_dir, session)
        return prepare(
            self.plan,
            config.application_id,
            self._connection(),
            directory,
            discard=config.upgrade == "discard",
            wishes=Wishes(config.max_task_idle_ms > 0, config.dead_letter_topic is not None),
        )

    @property
    def has_local_state(self) -> bool:
        """Whether the state directory can be read without Spark."""
        return StateDirectory(self.config.checkpoint_dir).is_local

    def check(self) -> None:
        """Raises what would keep the application from starting, as far as that shows without Spark."""
        if self.has_local_state:
            self.prepare().refuse()
        else:
            existing_partitions(self._connection(), self.plan)

    def start(self, session: SparkSession | None = None) -> None:
        """Start all queries, on the given session or one of its own."""
        if self._supervised:
            raise StreamsError(f"{self.config.application_id} runs already")
        self._life.move(ApplicationState.REBALANCING)
        try:
            self._start(session)
        except BaseException:
            self._life.move(ApplicationState.ERROR)
            raise

    def _start(self, session: SparkSession | None) -> None:
        config = self.config
        self._started_ms = time.time_ns() // 1_000_000
        # Before Spark, which takes its time to start.
        self.check()
        session = session or spark_session(
            config.application_id, master=config.master, settings=config.spark_settings
        )
        directory = StateDirectory(config.checkpoint_dir, session)
        self._preparation = preparation = self.prepare(session)
        preparation.refuse()
        for decision in preparation.decisions:
            if decision.action in {Action.REBUILT, Action.DROPPED}:
                logger.warning("%s", decision)
        for store in preparation.unnamed_stores():
            logger.warning(
                "the store %s has no name: its state is lost when the topology changes; name it with %s",
                store,
                naming_remedy(store),
            )
        connection = self._connection()
        preparation.empty_changelogs(connection)
        create_missing(connection, self._owned_topics(preparation))
        manifest = preparation.generations(
            connection,
            directory,
            lambda stores, tasks: move_entries(session, self._source_options(), stores, tasks),
        )
        directory.write(NAME, to_text(manifest))
        self._manifest = manifest
        ship_modules(self.plan)
        self._reports = reports = Reports(session)
        try:
            for query in preparation.queries:
                # One after the other: each starts processes of its own, and Spark gives those ten seconds.
                self._supervise(session, query, manifest[query.label])
        except BaseException:
            self._stop_queries()
            raise
        self._monitor = monitor = Monitor(
            self.plan,
            config.application_id,
            preparation.queries,
            {query.label: each for query, each in zip(preparation.queries, self._supervised, strict=True)},
            reports.total,
        )
        purger = Purger(connection, self._purged_topics(preparation), config.purge_interval_ms / 1000)

        def every_look() -> None:
            self._follow()
            monitor.look_if_due()
            purger.purge_if_due({each.name: each.query for each in self._supervised})

        self._supervisor = Supervisor(self._supervised, every_look)
        self._follow()

    def _follow(self) -> None:
        """Bring the state up to what the queries are."""
        conditions = {each.condition for each in self._supervised}
        if "failed" in conditions:
            self._life.move(ApplicationState.ERROR)
        elif "waiting" in conditions:
            self._life.move(ApplicationState.REBALANCING)
        else:
            self._life.move(ApplicationState.RUNNING)

    def catch_up(self) -> CatchUp:
        """Tells when everything was worked on that is in the topics now."""
        preparation, config = self._prepared(), self.config
        readings = [
            reading(
                query,
                self._name(query),
                config.offset_reset,
                preparation.counts,
                self._manifest[query.label].begin,
            )
            for query in preparation.queries
        ]
        return CatchUp(self._connection(), readings, hop_topics(self.plan, readings))

    def is_idle(self) -> bool:
        """Whether no query has records at hand. Those with timers by the clock always have work to do."""
        queries = zip(self._prepared().queries, self.queries, strict=True)
        return all(
            query.has_clock_timers or not running.status["isDataAvailable"] for query, running in queries
        )

    def process_all_available(self) -> None:
        """Until everything that is in the topics now has been worked on. Raises what made a query fail."""
        catch_up = self.catch_up()
        if any(each.is_paused for each in self._supervised):
            raise StreamsError(f"{self.config.application_id} is paused: resume it first")
        while catch_up.lag() > 0 or not self.is_idle():
            self.raise_failure()
            time.sleep(STATUS_INTERVAL_S)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until a query ends; whether one did. Raises what made it fail."""
        self._prepared()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self.raise_failure()
            if any(each.is_over for each in self._supervised):
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(STATUS_INTERVAL_S)

    def pause(self) -> None:
        """Stop working on records until ``resume``; state and progress stay."""
        self._prepared()
        for each in self._supervised:
            each.pause()

    def resume(self) -> None:
        """Go on where ``pause`` has stopped."""
        self._prepared()
        for each in self._supervised:
            each.resume()

    def failure(self) -> tuple[str, Exception] | None:
        """The query that has failed for good, and why."""
        for each in self._supervised:
            if each.is_over and (failure := each.query.exception()) is not None:
                return each.name, failure
        return None

    def raise_failure(self) -> None:
        if (failed := self.failure()) is not None:
            raise failed[1]

    def tables(self) -> list[str]:
        """The names of the tables that can be asked."""
        return table_names(self.plan)

    def table(self, name: str) -> TableView:
        """What a table holds, from its topic: works in any process, whether the application runs or not."""
        config = self.config
        return open_table(self.plan, config.application_id, name, config.bootstrap_servers, config.properties)

    def stop(self) -> None:
        """Stop all queries. A micro-batch under way is done again at the next start."""
        self._life.move(ApplicationState.PENDING_SHUTDOWN)
        if self._supervisor is not None:
            self._supervisor.stop()
            self._supervisor = None
        if self._monitor is not None:
            self._monitor.look()
            self._monitor = None
        self._stop_queries()
        self._life.move(ApplicationState.NOT_RUNNING)

    def _stop_queries(self) -> None:
        for query in self.queries:
            query.stop()
        self._supervised.clear()

    def _prepared(self) -> Preparation:
        if self._preparation is None:
            raise StreamsError(f"{self.config.application_id} was not started")
        return self._preparation

    def _connection(self) -> Connection:
        return shared_connection(self.config.bootstrap_servers, dict(self.config.properties))

    def _name(self, query: Query) -> str:
        return query_name(self.config.application_id, query.label)

    def _supervise(self, session: SparkSession, query: Query, generation: Generation) -> None:
        config, preparation, name = self.config, self._prepared(), self._name(query)
        place = f"{query.label}/{generation.number}"
        directory = StateDirectory(config.checkpoint_dir, session)
        is_fresh = directory.is_empty(f"{place}/commits")

        checkpoint = f"{config.checkpoint_dir}/{place}"

        def begin(trigger: Mapping[str, Any] | None) -> Any:
            builder = QueryBuilder(
                session,
                self._task_settings(preparation.counts),
                self._source_options(),
                offset_reset=config.offset_reset,
                begin=generation.begin,
                restored=generation.restored if is_fresh else {},
            )
            rows = builder.build(query)
            with with_settings(session, self._query_settings(session, query)):
                return write_stream(
                    rows,
                    application_id=name,
                    bootstrap_servers=config.bootstrap_servers,
                    checkpoint=checkpoint,
                    options={f"kafka.{key}": value for key, value in config.properties.items()},
                    trigger=trigger,
                    output_mode="update",
                    query_name=name,
                    guarantee=config.processing_guarantee,
                )

        def start() -> Any:
            is_divided = query.kind is not Kind.STATELESS and not directory.is_empty(f"{place}/offsets")
            if is_divided and SHUFFLE_PARTITIONS in config.spark_settings:
                partitions = int(self._query_settings(session, query)[SHUFFLE_PARTITIONS])
                divide_state(
                    session, checkpoint, partitions, lambda: begin({"once": True}).awaitTermination()
                )
            running = begin(config.trigger)
            while running.isActive and running.status["message"].startswith("Initializing"):
                time.sleep(STATUS_INTERVAL_S)
            return running

        self._supervised.append(Supervised(name, start, config.restarts_max))

    def _query_settings(self, session: SparkSession, query: Query) -> dict[str, str]:
        """What Spark is told about a query. More shuffle partitions than tasks would have nothing to do, and
        each costs time in every micro-batch."""
        given = self.config.spark_settings
        settings = {name: value for name, value in given.items() if name.startswith("spark.sql.")}
        if query.kind is Kind.TASKS:
            wanted = int(settings.get(SHUFFLE_PARTITIONS) or session.conf.get(SHUFFLE_PARTITIONS) or 1)
            tasks = task_count(query.plan, self._prepared().counts)
            settings[SHUFFLE_PARTITIONS] = str(min(wanted, tasks))
        return settings

    def _owned_topics(self, preparation: Preparation) -> dict[str, tuple[int, dict[str, str]]]:
        counts = preparation.counts
        tasks = {
            store: task_count(query.plan, counts)
            for query in preparation.queries
            for store in query.plan.stores
            if store not in query.plan.global_stores
        }
        owned = owned_topics(
            self.plan, self.config.application_id, counts, self._written_topics(preparation), tasks
        )
        if self.config.dead_letter_topic is not None:
            owned.setdefault(self.config.dead_letter_topic, (1, {}))
        return {name: spec for name, spec in owned.items() if name not in counts or spec[1]}

    def _written_topics(self, preparation: Preparation) -> list[str]:
        """Internal topics that no shuffle stands for."""
        shuffled = {topic for query in preparation.queries for topic in query.shuffled_topics}
        return sorted(set(self.plan.internal_topics) - shuffled)

    def _purged_topics(self, preparation: Preparation) -> dict[str, list[str]]:
        return {
            topic: [self._name(query) for query in preparation.queries if topic in query.topics]
            for topic in self._written_topics(preparation)
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
            reports=self._reports,
        )

    def _source_options(self) -> dict[str, str]:
        options = {f"kafka.{name}": value for name, value in self.config.properties.items()}
        options["kafka.bootstrap.servers"] = self.config.bootstrap_servers
        options["kafka.isolation.level"] = "read_committed"
        options["failOnDataLoss"] = str(self.config.fail_on_data_loss).lower()
        if self.config.max_task_idle_ms:
            options["maxTaskIdleMs"] = str(self.config.max_task_idle_ms)
        if self.config.max_offsets_per_trigger is not None:
            options["maxOffsetsPerTrigger"] = str(self.config.max_offsets_per_trigger)
        return options
