"""Does what the config topic says: starts and stops connectors and tasks, and tells how they are.

Everything here runs on one event loop. Records of the config topic are read in the same way by every worker
and after every restart; `Lifecycle` decides what they mean, connectors and tasks run in threads and report
back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from ottla.client.admin.topics import create_topics
from ottla.client.cluster import ClusterClient
from ottla.connect.connector_settings import CONNECTOR_CLASS, NAME, TASKS_MAX
from ottla.connect.errors import ConnectError, RetriableError
from ottla.connect.lines import Lines
from ottla.connect.membership import slot_of
from ottla.connect.plugin import Connector
from ottla.connect.plugins import Plugins
from ottla.connect.running.environment import Worker
from ottla.connect.running.failures import trace_of
from ottla.connect.running.runners import Order, runner_of
from ottla.connect.running.spark_query import SparkHost
from ottla.connect.running.task_thread import Measured, Reports, Runner
from ottla.connect.state.configs import (
    Change,
    Config,
    Configs,
    ConnectorChanged,
    LoggerSet,
    RestartAsked,
    TasksChanged,
    task_entries,
)
from ottla.connect.state.entries import Entry, TaskId
from ottla.connect.state.lifecycle import (
    Action,
    ComputeTasks,
    Lifecycle,
    Pause,
    Publish,
    RemoveTasks,
    Resume,
    Start,
    Stop,
    Unit,
)
from ottla.connect.state.offsets import Offsets
from ottla.connect.state.statuses import State, Status, Statuses, status_entry, topic_entry
from ottla.connect.state_log import Apply, StateLog
from ottla.connect.topic_creation import wanted_topic
from ottla.connect.worker_settings import WorkerSettings

_AGAIN_S: Final = 1.0
_log = logging.getLogger(__name__)


class Foreman(Worker):
    def __init__(
        self, settings: WorkerSettings, plugins: Plugins, cluster: ClusterClient, worker_id: Callable[[], str]
    ) -> None:
        self.settings = settings
        self.plugins = plugins
        self.configs, self.statuses, self.offsets = Configs(), Statuses(), Offsets()
        self.is_ready = False
        self.on_logger: Callable[[str, str], object] = lambda logger, level: None
        self.lifecycle = Lifecycle(self.configs)
        self.lines = Lines(lambda name: name in self.configs.connectors)
        self.cluster = cluster
        self._worker_id = worker_id
        self._log: StateLog | None = None
        self._connectors: dict[str, Connector] = {}
        self._runners: dict[TaskId, Runner] = {}
        self._spark = SparkHost(settings)
        self._work: asyncio.Queue[Callable[[], Sequence[Action]]] = asyncio.Queue()
        self._outbox: asyncio.Queue[Entry] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._worked = asyncio.Event()
        self._slots: set[int] = set()

    @property
    def log(self) -> StateLog:
        assert self._log is not None
        return self._log

    @property
    def topics(self) -> dict[str, Apply]:
        """What the state log is to give each record of."""
        return {
            self.settings["config.storage.topic"]: self._apply_config,
            self.settings["status.storage.topic"]: self.statuses.apply,
            self.settings["offset.storage.topic"]: self.offsets.apply,
        }

    async def start(self, log: StateLog) -> None:
        """With a log that is read to its end."""
        self._log = log
        self.lines.start()
        self.is_ready = True
        self._spawn(self._do_work())
        self._spawn(self._publish())
        for name in self.statuses.connectors.keys() - self.configs.connectors.keys():
            self._forget(name)
        self._work.put_nowait(self.lifecycle.reconcile)

    # Which of all connectors and tasks are this worker's

    def share(self, slot_count: int) -> None:
        """From here on only those of the slots that `gain` has brought; all of them without it."""
        self.lifecycle.is_assigned = lambda unit: slot_of(unit, slot_count) in self._slots

    def gain(self, slots: set[int]) -> None:
        """From any thread."""

        def gain() -> None:
            self._slots |= slots
            self._work.put_nowait(self.lifecycle.reconcile)

        self._loop.call_soon_threadsafe(gain)

    def lose(self, slots: set[int], slot_count: int) -> None:
        """From any thread but the loop's; returns when nothing of them runs any more."""

        async def lose() -> None:
            self._slots -= slots
            if not self.is_ready:
                # The worker stops, and everything has.
                return
            self._work.put_nowait(self.lifecycle.reconcile)
            await self._until(
                lambda: all(slot_of(unit, slot_count) not in slots for unit in self.lifecycle.running)
            )

        asyncio.run_coroutine_threadsafe(lose(), self._loop).result()

    async def stop(self) -> None:
        """All connectors and tasks, in good order, within the time that they have for it."""
        self._work.put_nowait(self.lifecycle.stop_all)
        await self._until(lambda: not self.lifecycle.running)
        self.is_ready = False
        with suppress(TimeoutError):
            await asyncio.wait_for(self._outbox.join(), self._grace_s)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self._spark.stop)
        self.lines.stop()

    @property
    def _grace_s(self) -> float:
        return float(self.settings["task.shutdown.graceful.timeout.ms"]) / 1000 + 2

    async def _until(self, is_so: Callable[[], bool]) -> None:
        """For as long as tasks have to stop, at most."""
        deadline = time.monotonic() + self._grace_s
        await self._work.join()
        while not is_so() and (left_s := deadline - time.monotonic()) > 0:
            # Reports of connectors and tasks that have stopped are work, too.
            self._worked.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._worked.wait(), left_s)

    def measured(self) -> dict[TaskId, Measured]:
        """Of the tasks that run here."""
        return {task: runner.measured() for task, runner in self._runners.items()}

    # What commands need

    async def append_config(self, entries: Sequence[Entry]) -> None:
        await self.log.append(self.settings["config.storage.topic"], entries)

    def restart_one(self, unit: Unit) -> None:
        self._work.put_nowait(lambda: self.lifecycle.restart_one(unit))

    def forget_topic(self, connector: str, topic: str) -> None:
        """That the connector uses it."""
        self._outbox.put_nowait(topic_entry(connector, topic, None))

    async def settled(self) -> None:
        """What was asked for so far is begun, and told."""
        await self._work.join()
        await self._outbox.join()

    async def begun(self) -> None:
        await self._work.join()

    def class_of(self, config: Config) -> type[Connector]:
        name = str(config.get(CONNECTOR_CLASS))
        found = self.plugins.connector(name)
        if found is None:
            raise ConnectError(
                f"there is no connector {name} here: install its package where the worker runs"
            )
        return found

    def failed_of(self, name: str) -> set[Unit]:
        found: set[Unit] = set()
        status = self.statuses.connectors.get(name)
        if status is not None and status.state is State.FAILED:
            found.add(name)
        tasks = self.statuses.tasks_of(name).items()
        return found | {TaskId(name, number) for number, task in tasks if task.state is State.FAILED}

    # What tasks ask for, from their threads

    def stored_offset(self, connector: str, partition: Mapping[str, Any]) -> Mapping[str, Any] | None:
        async def read() -> Mapping[str, Any] | None:
            await self.log.read_to_end()
            return self.offsets.get(connector, partition)

        return asyncio.run_coroutine_threadsafe(read(), self._loop).result()

    def offset_entry(
        self, connector: str, partition: Mapping[str, Any], offset: Mapping[str, Any] | None
    ) -> Entry:
        return self.offsets.entry(connector, partition, offset)

    def store_offsets(self, entries: Sequence[Entry], timeout_s: float) -> None:
        storing = self.log.append(self.settings["offset.storage.topic"], entries)
        asyncio.run_coroutine_threadsafe(_awaited(storing), self._loop).result(timeout_s)

    def topic_used(self, task: TaskId, topic: str) -> None:
        def note() -> None:
            if topic not in self.statuses.topics.get(task.connector, ()):
                now_ms = time.time_ns() // 1_000_000
                self._outbox.put_nowait(topic_entry(task.connector, topic, task.task, now_ms))

        if self.settings["topic.tracking.enable"]:
            self._loop.call_soon_threadsafe(note)

    def ensure_topic(self, connector: Mapping[str, str], topic: str) -> None:
        if not self.settings["topic.creation.enable"]:
            return

        async def ensure() -> None:
            if topic in await self.cluster.topics([topic]):
                return
            wanted = wanted_topic(connector, topic)
            brokers = len((await self.cluster.cluster()).brokers)
            factor = min(wanted.replication_factor, brokers)
            await create_topics(self.cluster, [wanted._replace(replication_factor=factor)])

        asyncio.run_coroutine_threadsafe(ensure(), self._loop).result()

    # Doing what the records say

    def _apply_config(self, entry: Entry) -> None:
        change = self.configs.apply(entry)
        if change is not None and self.is_ready:
            self._work.put_nowait(lambda: self._changed(change))

    def _changed(self, change: Change) -> Sequence[Action]:
        match change:
            case ConnectorChanged(name):
                actions = self.lifecycle.reconcile()
                if name not in self.configs.connectors:
                    self.lines.forget(name)
                    for topic in sorted(self.statuses.topics.get(name, ())):
                        self.forget_topic(name, topic)
                return actions
            case TasksChanged():
                return self.lifecycle.reconcile()
            case RestartAsked(name):
                return self.lifecycle.restart(change, self.failed_of(name))
            case LoggerSet(logger, level):
                self.on_logger(logger, level)
                return ()

    async def _do_work(self) -> None:
        while True:
            decide = await self._work.get()
            try:
                for action in decide():
                    self._perform(action)
            except Exception:
                _log.exception("an action was left out")
            finally:
                self._work.task_done()
                self._worked.set()

    def _perform(self, action: Action) -> None:
        match action:
            case Publish(unit, state, trace):
                self._outbox.put_nowait(status_entry(unit, self._status(unit, state, trace)))
            case Start(TaskId() as task):
                self._start_task(task, action)
            case Start(str() as name):
                self._spawn_for(name, self._start_connector(name, action))
            case Stop(TaskId() as task, run):
                _log.info("task %s is to stop", task)
                if (runner := self._runners.get(task)) is not None:
                    runner.stop()
                self._spawn(self._await_end(task, run))
            case Stop(str() as name, run):
                self._spawn_for(name, self._stop_connector(name, run))
            case Pause(TaskId() as task):
                _log.info("task %s pauses", task)
                self._runners[task].pause()
            case Resume(TaskId() as task):
                _log.info("task %s goes on", task)
                self._runners[task].resume()
            case Pause() | Resume():
                # A connector itself goes on; its tasks are what pauses.
                pass
            case ComputeTasks(name):
                self._spawn_for(name, self._compute_tasks(name))
            case RemoveTasks(name):
                self._spawn(self.append_config(task_entries(name, ())))

    async def _start_connector(self, name: str, action: Start) -> None:
        try:
            connector = self.class_of(action.connector_config)()
            await asyncio.to_thread(connector.start, action.connector_config)
        except Exception as error:
            _log.error("the connector %s failed: %s", name, error, exc_info=error)
            self._report(self.lifecycle.failed, name, action.run, trace_of(error))
            return
        if not self.lifecycle.is_current(name, action.run):
            await asyncio.to_thread(connector.stop)
            return
        _log.info("the connector %s has started", name)
        self._connectors[name] = connector
        self._report(self.lifecycle.started, name, action.run)

    async def _stop_connector(self, name: str, run: int) -> None:
        connector = self._connectors.pop(name, None)
        if connector is not None:
            try:
                await asyncio.to_thread(connector.stop)
            except Exception:
                _log.exception("the connector %s did not stop in good order", name)
        self._report(self.lifecycle.stopped, name, run)

    async def _compute_tasks(self, name: str) -> None:
        connector, entry = self._connectors.get(name), self.configs.connectors.get(name)
        if connector is None or entry is None:
            return
        tasks_max = int(entry.config.get(TASKS_MAX, "1"))
        try:
            made = await asyncio.to_thread(connector.task_configs, tasks_max)
            if len(made) > tasks_max and entry.config.get("tasks.max.enforce", "true").lower() != "false":
                raise ConnectError(
                    f"The connector {name} has generated {len(made)} tasks, which is greater than "
                    f"{tasks_max}, the "
                    "maximum number of tasks it is configured to create. Raise tasks.max, or divide "
                    "its work less."
                )
        except Exception as error:
            self._outbox.put_nowait(status_entry(name, self._status(name, State.FAILED, trace_of(error))))
            _log.exception("the connector %s could not say what its tasks are", name)
            return
        tasks = tuple({**task, "task.class": connector.task_name(), NAME: name} for task in made)
        is_same = tasks == entry.tasks and entry.applied == entry.config and entry.is_consistent
        if not is_same and self._connectors.get(name) is connector:
            await self.append_config(task_entries(name, tasks))

    def _start_task(self, task: TaskId, action: Start) -> None:
        reports = Reports(
            started=lambda: self._from_thread(self.lifecycle.started, task, action.run),
            failed=lambda error: self._from_thread(self.lifecycle.failed, task, action.run, trace_of(error)),
            stopped=lambda: self._from_thread(self._gone, task, action.run),
        )
        try:
            kind = self.class_of(action.connector_config)
            given = action.task_config
            assert given is not None
            order = Order(task, kind, action.connector_config, given, action.is_paused)
            _log.info("task %s starts%s", task, ", paused" if action.is_paused else "")
            with self.lines.speaking(task):
                runner = self._runners[task] = runner_of(self, self._spark, order, reports)
            runner.start()
        except Exception as error:
            _log.error("task %s cannot start: %s", task, error, exc_info=error)
            self._report(self.lifecycle.failed, task, action.run, trace_of(error))

    def _gone(self, task: TaskId, run: int) -> Sequence[Action]:
        if self.lifecycle.is_run(task, run):
            self._runners.pop(task, None)
        return self.lifecycle.stopped(task, run)

    async def _await_end(self, task: TaskId, run: int) -> None:
        """A task that does not stop in time is left behind: nothing it reports counts any more."""
        runner = self._runners.get(task)
        await asyncio.sleep(self.settings["task.shutdown.graceful.timeout.ms"] / 1000)
        if task in self.lifecycle.running and self._runners.get(task) is runner:
            actions = self.lifecycle.stopped(task, run)
            if actions:
                _log.warning("task %s has not stopped in time and is left behind", task)
                self._work.put_nowait(lambda: actions)

    def _from_thread(self, event: Callable[..., Sequence[Action]], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(self._report, event, *arguments)
        except RuntimeError:
            _log.debug("a task has ended after its worker")

    def _report(self, event: Callable[..., Sequence[Action]], *arguments: Any) -> None:
        self._work.put_nowait(lambda: event(*arguments))

    # Writing down

    def _status(self, unit: Unit, state: State, trace: str | None) -> Status:
        name = unit.connector if isinstance(unit, TaskId) else unit
        entry = self.configs.connectors.get(name)
        found = None if entry is None else self.plugins.find(entry.config.get(CONNECTOR_CLASS))
        return Status(state, self._worker_id(), 0, trace, None if found is None else found.version)

    def _forget(self, name: str) -> None:
        """What a worker that died in between left of a connector that is deleted."""
        gone = Status(State.DESTROYED, self._worker_id())
        units: list[Unit] = [name, *(TaskId(name, number) for number in self.statuses.tasks_of(name))]
        for unit in units:
            self._outbox.put_nowait(status_entry(unit, gone))

    async def _publish(self) -> None:
        """Statuses in the order in which they came to be, as many at a time as there are."""
        while True:
            entries = [await self._outbox.get()]
            while not self._outbox.empty():
                entries.append(self._outbox.get_nowait())
            try:
                await self._write_statuses(entries)
            except ConnectError as error:
                _log.error("statuses are not told: %s", error)
            finally:
                for _ in entries:
                    self._outbox.task_done()

    async def _write_statuses(self, entries: Sequence[Entry]) -> None:
        """However long brokers are away: nobody else knows what became of the tasks here."""
        while True:
            try:
                return await self.log.append(self.settings["status.storage.topic"], entries)
            except RetriableError as error:
                _log.warning("statuses are not told yet: %s; trying again", error)
                await asyncio.sleep(_AGAIN_S)

    def _spawn_for(self, unit: Unit, work: Coroutine[Any, Any, None]) -> None:
        with self.lines.speaking(unit):
            self._spawn(work)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the worker could not do something: %s", error, exc_info=error)


async def _awaited(work: Awaitable[None]) -> None:
    await work
