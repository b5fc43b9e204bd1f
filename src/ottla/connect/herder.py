"""Looks after connectors: takes commands, writes them down, and does what the config topic says.

Everything here runs on one event loop. A command changes nothing by itself: it writes records, and what
they mean is done when they are read back, in the same way by every worker and after every restart.
`Lifecycle` decides what that is; connectors and tasks run in threads and report back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from ottla.client.admin.groups import commit_offsets, committed_offsets, delete_group, delete_offsets
from ottla.client.admin.topics import create_topics
from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClusterUnreachable
from ottla.client.peer import PeerUnusable
from ottla.connect.connector_settings import CONNECTOR_CLASS, NAME, TASKS_MAX
from ottla.connect.errors import (
    SERVER_ERROR,
    ConnectError,
    RestError,
    bad_request,
    conflict,
    not_found,
)
from ottla.connect.membership import slot_of
from ottla.connect.offset_requests import Wanted, shown, shown_sink, sink_offsets
from ottla.connect.plugin import Connector, SinkConnector, SourceConnector, SparkSink, SparkSource
from ottla.connect.plugins import Kind, Plugins
from ottla.connect.running.environment import Worker
from ottla.connect.running.failures import trace_of
from ottla.connect.running.sink_task import SinkRunner, group_of
from ottla.connect.running.source_task import SourceRunner
from ottla.connect.running.spark_query import SparkHost, SparkRunner, forget_checkpoint
from ottla.connect.running.task_thread import Reports, Runner
from ottla.connect.state.configs import (
    Change,
    Config,
    Configs,
    ConnectorChanged,
    ConnectorEntry,
    LoggerSet,
    RestartAsked,
    TargetState,
    TasksChanged,
    connector_entries,
    logger_entry,
    removal_entries,
    restart_entry,
    target_entry,
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
from ottla.connect.validation import Validator
from ottla.connect.worker_settings import WorkerSettings
from ottla.wire.errors import ErrorCode, KafkaError

_log = logging.getLogger(__name__)
_ALTERED: Final = "The offsets for this connector have been altered successfully"
_RESET: Final = "The offsets for this connector have been reset successfully"
_UNKNOWN_GROUP: Final = {ErrorCode.group_id_not_found}


class RequestElsewhere(Exception):
    """What a request is about is another worker's; the text is its address."""


class Herder(Worker):
    def __init__(
        self, settings: WorkerSettings, plugins: Plugins, cluster: ClusterClient, worker_id: Callable[[], str]
    ) -> None:
        self.settings = settings
        self.plugins = plugins
        self.configs, self.statuses, self.offsets = Configs(), Statuses(), Offsets()
        self.validator = Validator(plugins, settings.converters, is_exactly_once=settings.is_exactly_once)
        self.is_ready = False
        self._cluster = cluster
        self._worker_id = worker_id
        self._lifecycle = Lifecycle(self.configs)
        self._log: StateLog | None = None
        self._connectors: dict[str, Connector] = {}
        self._runners: dict[TaskId, Runner] = {}
        self._spark = SparkHost(settings)
        self._work: asyncio.Queue[Callable[[], Sequence[Action]]] = asyncio.Queue()
        self._outbox: asyncio.Queue[Entry] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._changing = asyncio.Lock()
        self._worked = asyncio.Event()
        self._slots: set[int] = set()
        self.on_logger: Callable[[str, str], object] = lambda logger, level: None

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
        self.is_ready = True
        self._spawn(self._do_work())
        self._spawn(self._publish())
        for name in self.statuses.connectors.keys() - self.configs.connectors.keys():
            self._forget(name)
        self._work.put_nowait(self._lifecycle.reconcile)

    # Which of all connectors and tasks are this worker's

    def share(self, slot_count: int) -> None:
        """From here on only those of the slots that `gain` has brought; all of them without it."""
        self._lifecycle.is_assigned = lambda unit: slot_of(unit, slot_count) in self._slots

    def gain(self, slots: set[int]) -> None:
        """From any thread."""

        def gain() -> None:
            self._slots |= slots
            self._work.put_nowait(self._lifecycle.reconcile)

        self._loop.call_soon_threadsafe(gain)

    def lose(self, slots: set[int], slot_count: int) -> None:
        """From any thread but the loop's; returns when nothing of them runs any more."""

        async def lose() -> None:
            self._slots -= slots
            if not self.is_ready:
                # The worker stops, and everything has.
                return
            self._work.put_nowait(self._lifecycle.reconcile)
            await self._until(
                lambda: all(slot_of(unit, slot_count) not in slots for unit in self._lifecycle.running)
            )

        asyncio.run_coroutine_threadsafe(lose(), self._loop).result()

    async def stop(self) -> None:
        """All connectors and tasks, in good order, within the time that they have for it."""
        self._work.put_nowait(self._lifecycle.stop_all)
        await self._until(lambda: not self._lifecycle.running)
        self.is_ready = False
        with suppress(TimeoutError):
            await asyncio.wait_for(self._outbox.join(), self._grace_s)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self._spark.stop)

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

    # Commands

    async def put_connector(
        self, name: str, given: Mapping[str, Any], *, target: TargetState | None = None, replace: bool
    ) -> bool:
        """True if there was none of the name."""
        validation = await asyncio.to_thread(self.validator.validate, given)
        validation.refuse()
        async with self._changing:
            is_new = name not in self.configs.connectors
            if not is_new and not replace:
                raise conflict(f"Connector {name} already exists")
            await self._append_config(connector_entries(name, given, target))
        return is_new

    async def patch_connector(self, name: str, changes: Mapping[str, Any]) -> None:
        merged = {**self._entry(name).config, **changes}
        await self.put_connector(
            name, {key: value for key, value in merged.items() if value is not None}, replace=True
        )

    async def delete_connector(self, name: str) -> None:
        self._entry(name)
        await self._append_config(removal_entries(name))

    async def set_target(self, name: str, target: TargetState) -> None:
        if name not in self.configs.connectors:
            raise not_found(f"Unknown connector {name}")
        await self._append_config([target_entry(name, target)])

    async def restart(self, asked: RestartAsked) -> dict[str, Any]:
        """The connector's state as it is about to be."""
        name = asked.connector
        if name not in self.configs.connectors:
            raise not_found(f"Unknown connector: {name}")
        if name not in self.statuses.connectors:
            raise not_found(f"Status for connector {name} not found")
        restarted = self._lifecycle.restarted(asked, self._failed(name))
        await self._append_config([restart_entry(asked)])
        answer = self.shown_status(name)
        # Who asks for the state from here on sees that it is done.
        await self._work.join()
        await self._outbox.join()
        if name in restarted:
            answer["connector"]["state"] = State.RESTARTING.value
            answer["connector"].pop("trace", None)
        for row in answer["tasks"]:
            if TaskId(name, row["id"]) in restarted:
                row["state"] = State.RESTARTING.value
                row.pop("trace", None)
        return answer

    async def restart_unit(self, unit: Unit) -> None:
        """A connector alone, or one of its tasks."""
        name = unit.connector if isinstance(unit, TaskId) else unit
        entry = self.configs.connectors.get(name)
        if entry is None:
            raise not_found(f"Unknown connector: {name}")
        if isinstance(unit, TaskId) and unit.task >= len(entry.tasks):
            raise not_found(f"Unknown task: {unit}")
        if not self._lifecycle.is_assigned(unit):
            raise RequestElsewhere(self._owner(unit))
        self._work.put_nowait(lambda: self._lifecycle.restart_one(unit))
        await self._work.join()

    def _owner(self, unit: Unit) -> str:
        """The worker that has it, by what it said last."""
        found = (
            self.statuses.tasks.get(unit) if isinstance(unit, TaskId) else self.statuses.connectors.get(unit)
        )
        if found is None:
            raise not_found(f"No status found for {unit}: no worker has it yet")
        return found.worker

    async def set_cluster_logger(self, logger: str, level: str) -> None:
        await self._append_config([logger_entry(logger, level)])

    # Offsets

    async def shown_offsets(self, name: str) -> dict[str, Any]:
        entry = self._entry(name)
        if self._kind(entry.config) is Kind.SINK:
            found = await self._asked(committed_offsets(self._cluster, group_of(name, entry.config)))
            return shown_sink({place: committed.offset for place, committed in (found or {}).items()})
        assert self._log is not None
        await self._log.read_to_end()
        return shown(self.offsets.of(name))

    async def alter_offsets(self, name: str, wanted: Sequence[Wanted] | None) -> str:
        """What to tell; `wanted` None forgets all."""
        entry = self._stopped(name)
        if issubclass(self._class(entry.config), SparkSource | SparkSink):
            if wanted is not None:
                raise bad_request(
                    f"How far {name} is lies in Spark's checkpoint: it can be reset (DELETE), not altered"
                )
            await asyncio.to_thread(forget_checkpoint, self.settings, name)
        elif self._kind(entry.config) is Kind.SINK:
            await self._alter_sink(name, entry, wanted)
        else:
            await self._alter_source(name, entry, wanted)
        return _RESET if wanted is None else _ALTERED

    async def _alter_source(self, name: str, entry: ConnectorEntry, wanted: Sequence[Wanted] | None) -> None:
        assert self._log is not None
        await self._log.read_to_end()
        changes = (
            [Wanted(partition, None) for partition, _ in self.offsets.of(name)] if wanted is None else wanted
        )
        connector = self._class(entry.config)()
        assert isinstance(connector, SourceConnector)
        try:
            await asyncio.to_thread(connector.alter_offsets, entry.config, list(changes))
        except ConnectError as error:
            raise RestError(SERVER_ERROR, str(error)) from None
        entries = [self.offsets.entry(name, partition, offset) for partition, offset in changes]
        await self._log.append(self.settings["offset.storage.topic"], entries)

    async def _alter_sink(self, name: str, entry: ConnectorEntry, wanted: Sequence[Wanted] | None) -> None:
        group = group_of(name, entry.config)
        if wanted is None:
            await self._asked(delete_group(self._cluster, group), name)
            return
        offsets = sink_offsets(wanted)
        if any(offset is not None and offset < 0 for offset in offsets.values()):
            raise RestError(SERVER_ERROR, f"Failed to modify offsets for sink connector {name}")
        kept = {place: offset for place, offset in offsets.items() if offset is not None}
        if kept:
            await self._asked(commit_offsets(self._cluster, group, kept), name)
        if forgotten := [place for place in offsets if place not in kept]:
            await self._asked(delete_offsets(self._cluster, group, forgotten), name)

    async def _asked(self, question: Awaitable[Any], altered: str = "") -> Any:
        """None where the group does not exist."""
        try:
            return await question
        except KafkaError as error:
            if error.code in _UNKNOWN_GROUP:
                return None
            if altered and error.code in {ErrorCode.non_empty_group, ErrorCode.unknown_member_id}:
                raise bad_request(
                    f"Failed to alter consumer group offsets for connector {altered} either because "
                    "its tasks "
                    "haven't stopped completely yet or the connector was resumed before the request "
                    "to alter its "
                    "offsets could be successfully completed. If the connector is in a stopped "
                    "state, this operation "
                    "can be safely retried. If it doesn't eventually succeed, the Connect cluster "
                    "may need to be "
                    "restarted to get rid of the zombie sink tasks."
                ) from None
            raise RestError(SERVER_ERROR, str(error)) from None
        except (ClusterUnreachable, PeerUnusable) as error:
            raise RestError(SERVER_ERROR, str(error)) from None

    async def reset_topics(self, name: str) -> None:
        for topic in sorted(self.statuses.topics.get(name, ())):
            self._outbox.put_nowait(topic_entry(name, topic, None))

    async def check_health(self) -> None:
        """Raises what keeps the worker from doing its work."""
        assert self._log is not None
        await self._log.read_to_end()

    # What REST shows

    def shown_info(self, name: str) -> dict[str, Any]:
        entry = self._entry(name)
        kind = self._kind(entry.config)
        return {
            "name": name,
            "config": dict(entry.config),
            "tasks": [{"connector": name, "task": number} for number in range(len(entry.tasks))],
            "type": "unknown" if kind is None else kind.value,
        }

    def shown_status(self, name: str) -> dict[str, Any]:
        status = self.statuses.connectors.get(name)
        if status is None:
            raise not_found(f"No status found for connector {name}")
        entry = self.configs.connectors.get(name)
        kind = None if entry is None else self._kind(entry.config)
        return {
            "name": name,
            "connector": status.shown(),
            "tasks": [
                {"id": number, **task.shown()} for number, task in self.statuses.tasks_of(name).items()
            ],
            "type": "unknown" if kind is None else kind.value,
        }

    def shown_tasks(self, name: str) -> list[dict[str, Any]]:
        tasks = self._entry(name).tasks
        return [
            {"id": {"connector": name, "task": number}, "config": dict(task)}
            for number, task in enumerate(tasks)
        ]

    def _entry(self, name: str) -> ConnectorEntry:
        found = self.configs.connectors.get(name)
        if found is None:
            raise not_found(f"Connector {name} not found")
        return found

    def _stopped(self, name: str) -> ConnectorEntry:
        entry = self._entry(name)
        if entry.target is not TargetState.STOPPED or entry.tasks:
            raise bad_request(
                "Connectors must be in the STOPPED state before their offsets can be modified. This "
                "can be done for "
                f"the specified connector by issuing a 'PUT' request to the '/connectors/{name}/stop' "
                "endpoint"
            )
        return entry

    def _kind(self, config: Config) -> Kind | None:
        found = self.plugins.find(config.get(CONNECTOR_CLASS), Kind.SOURCE, Kind.SINK)
        return None if found is None else found.kind

    def _class(self, config: Config) -> type[Connector]:
        name = str(config.get(CONNECTOR_CLASS))
        found = self.plugins.connector(name)
        if found is None:
            raise ConnectError(
                f"there is no connector {name} here: install its package where the worker runs"
            )
        return found

    def _failed(self, name: str) -> set[Unit]:
        found: set[Unit] = set()
        status = self.statuses.connectors.get(name)
        if status is not None and status.state is State.FAILED:
            found.add(name)
        tasks = self.statuses.tasks_of(name).items()
        return found | {TaskId(name, number) for number, task in tasks if task.state is State.FAILED}

    # What tasks ask for, from their threads

    def stored_offset(self, connector: str, partition: Mapping[str, Any]) -> Mapping[str, Any] | None:
        async def read() -> Mapping[str, Any] | None:
            assert self._log is not None
            await self._log.read_to_end()
            return self.offsets.get(connector, partition)

        return asyncio.run_coroutine_threadsafe(read(), self._loop).result()

    def offset_entry(
        self, connector: str, partition: Mapping[str, Any], offset: Mapping[str, Any] | None
    ) -> Entry:
        return self.offsets.entry(connector, partition, offset)

    def store_offsets(self, entries: Sequence[Entry], timeout_s: float) -> None:
        assert self._log is not None
        storing = self._log.append(self.settings["offset.storage.topic"], entries)
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
            if topic in await self._cluster.topics([topic]):
                return
            wanted = wanted_topic(connector, topic)
            brokers = len((await self._cluster.cluster()).brokers)
            factor = min(wanted.replication_factor, brokers)
            await create_topics(self._cluster, [wanted._replace(replication_factor=factor)])

        asyncio.run_coroutine_threadsafe(ensure(), self._loop).result()

    # Doing what the records say

    def _apply_config(self, entry: Entry) -> None:
        change = self.configs.apply(entry)
        if change is not None and self.is_ready:
            self._work.put_nowait(lambda: self._changed(change))

    def _changed(self, change: Change) -> Sequence[Action]:
        match change:
            case ConnectorChanged(name):
                actions = self._lifecycle.reconcile()
                if name not in self.configs.connectors:
                    for topic in sorted(self.statuses.topics.get(name, ())):
                        self._outbox.put_nowait(topic_entry(name, topic, None))
                return actions
            case TasksChanged():
                return self._lifecycle.reconcile()
            case RestartAsked(name):
                return self._lifecycle.restart(change, self._failed(name))
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
                self._spawn(self._start_connector(name, action))
            case Stop(TaskId() as task, run):
                if (runner := self._runners.get(task)) is not None:
                    runner.stop()
                self._spawn(self._await_end(task, run))
            case Stop(str() as name, run):
                self._spawn(self._stop_connector(name, run))
            case Pause(TaskId() as task):
                self._runners[task].pause()
            case Resume(TaskId() as task):
                self._runners[task].resume()
            case Pause() | Resume():
                # A connector itself goes on; its tasks are what pauses.
                pass
            case ComputeTasks(name):
                self._spawn(self._compute_tasks(name))
            case RemoveTasks(name):
                self._spawn(self._append_config(task_entries(name, ())))

    async def _start_connector(self, name: str, action: Start) -> None:
        try:
            connector = self._class(action.connector_config)()
            await asyncio.to_thread(connector.start, action.connector_config)
        except Exception as error:
            self._report(self._lifecycle.failed, name, action.run, trace_of(error))
            return
        if not self._lifecycle.is_current(name, action.run):
            await asyncio.to_thread(connector.stop)
            return
        self._connectors[name] = connector
        self._report(self._lifecycle.started, name, action.run)

    async def _stop_connector(self, name: str, run: int) -> None:
        connector = self._connectors.pop(name, None)
        if connector is not None:
            try:
                await asyncio.to_thread(connector.stop)
            except Exception:
                _log.exception("the connector %s did not stop in good order", name)
        self._report(self._lifecycle.stopped, name, run)

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
            await self._append_config(task_entries(name, tasks))

    def _start_task(self, task: TaskId, action: Start) -> None:
        reports = Reports(
            started=lambda: self._from_thread(self._lifecycle.started, task, action.run),
            failed=lambda error: self._from_thread(self._lifecycle.failed, task, action.run, trace_of(error)),
            stopped=lambda: self._from_thread(self._gone, task, action.run),
        )
        try:
            runner = self._runners[task] = self._runner(task, action, reports)
            runner.start()
        except Exception as error:
            self._report(self._lifecycle.failed, task, action.run, trace_of(error))

    def _gone(self, task: TaskId, run: int) -> Sequence[Action]:
        if self._lifecycle.is_run(task, run):
            self._runners.pop(task, None)
        return self._lifecycle.stopped(task, run)

    def _runner(self, task: TaskId, action: Start, reports: Reports) -> Runner:
        connector, given = action.connector_config, action.task_config
        assert given is not None
        kind = self._class(connector)
        paused = action.is_paused
        if issubclass(kind, SparkSource | SparkSink):
            return SparkRunner(self, self._spark, task, kind, connector, reports, is_paused=paused)
        if issubclass(kind, SourceConnector):
            exactly_once = self.settings.is_exactly_once and kind().is_exactly_once(connector)
            return SourceRunner(
                self,
                task,
                kind.task_class,
                connector,
                given,
                reports,
                is_paused=paused,
                is_exactly_once=exactly_once,
            )
        assert issubclass(kind, SinkConnector)
        return SinkRunner(self, task, kind.task_class, connector, given, reports, is_paused=paused)

    async def _await_end(self, task: TaskId, run: int) -> None:
        """A task that does not stop in time is left behind: nothing it reports counts any more."""
        runner = self._runners.get(task)
        await asyncio.sleep(self.settings["task.shutdown.graceful.timeout.ms"] / 1000)
        if task in self._lifecycle.running and self._runners.get(task) is runner:
            actions = self._lifecycle.stopped(task, run)
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
                assert self._log is not None
                await self._log.append(self.settings["status.storage.topic"], entries)
            except ConnectError as error:
                _log.error("statuses are not told: %s", error)
            finally:
                for _ in entries:
                    self._outbox.task_done()

    async def _append_config(self, entries: Sequence[Entry]) -> None:
        assert self._log is not None
        await self._log.append(self.settings["config.storage.topic"], entries)

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
