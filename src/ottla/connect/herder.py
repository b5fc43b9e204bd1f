"""Commands of the REST API: what may be asked of connectors, and what is shown of them.

A command changes nothing by itself: it writes records, and what they mean is done by the `Foreman` when they
are read back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final

from ottla.client.admin.groups import commit_offsets, committed_offsets, delete_group, delete_offsets
from ottla.client.errors import ClusterUnreachable
from ottla.client.peer import PeerUnusable
from ottla.connect.connector_settings import CONNECTOR_CLASS
from ottla.connect.errors import (
    SERVER_ERROR,
    ConnectError,
    RestError,
    bad_request,
    conflict,
    not_found,
)
from ottla.connect.foreman import Foreman
from ottla.connect.lines import Line
from ottla.connect.offset_requests import Wanted, shown, shown_sink, sink_offsets
from ottla.connect.plugin import SourceConnector, SparkSink, SparkSource
from ottla.connect.plugins import Kind
from ottla.connect.running.sink_task import group_of
from ottla.connect.running.spark_query import forget_checkpoint
from ottla.connect.state.configs import (
    Config,
    ConnectorEntry,
    RestartAsked,
    TargetState,
    connector_entries,
    logger_entry,
    removal_entries,
    restart_entry,
    target_entry,
)
from ottla.connect.state.entries import TaskId
from ottla.connect.state.lifecycle import Unit
from ottla.connect.state.statuses import State
from ottla.connect.validation import Validator
from ottla.wire.errors import ErrorCode, KafkaError

_ALTERED: Final = "The offsets for this connector have been altered successfully"
_RESET: Final = "The offsets for this connector have been reset successfully"
_UNKNOWN_GROUP: Final = {ErrorCode.group_id_not_found}


class RequestElsewhere(Exception):
    """What a request is about is another worker's; the text is its address."""


class Herder:
    def __init__(self, foreman: Foreman) -> None:
        self.foreman = foreman
        self.settings, self.plugins = foreman.settings, foreman.plugins
        self.configs, self.statuses, self.offsets = foreman.configs, foreman.statuses, foreman.offsets
        self.validator = Validator(
            foreman.plugins, foreman.settings.converters, is_exactly_once=foreman.settings.is_exactly_once
        )
        self._changing = asyncio.Lock()

    # Commands

    async def put_connector(
        self, name: str, given: Mapping[str, Any], *, target: TargetState | None = None, replace: bool
    ) -> bool:
        """True if there was none of the name."""
        await self._check(given)
        async with self._changing:
            is_new = name not in self.configs.connectors
            if not is_new and not replace:
                raise conflict(f"Connector {name} already exists")
            await self.foreman.append_config(connector_entries(name, given, target))
        return is_new

    async def patch_connector(self, name: str, changes: Mapping[str, Any]) -> None:
        # As a whole, so that of two changes at once neither is lost.
        async with self._changing:
            merged = {**self._entry(name).config, **changes}
            given = {key: value for key, value in merged.items() if value is not None}
            await self._check(given)
            await self.foreman.append_config(connector_entries(name, given, None))

    async def _check(self, given: Mapping[str, Any]) -> None:
        """Raises RestError for a configuration that cannot be."""
        validation = await asyncio.to_thread(self.validator.validate, given)
        validation.refuse()

    async def delete_connector(self, name: str) -> None:
        self._entry(name)
        await self.foreman.append_config(removal_entries(name))

    async def set_target(self, name: str, target: TargetState) -> None:
        if name not in self.configs.connectors:
            raise not_found(f"Unknown connector {name}")
        await self.foreman.append_config([target_entry(name, target)])

    async def restart(self, asked: RestartAsked) -> dict[str, Any]:
        """The connector's state as it is about to be."""
        name = asked.connector
        if name not in self.configs.connectors:
            raise not_found(f"Unknown connector: {name}")
        if name not in self.statuses.connectors:
            raise not_found(f"Status for connector {name} not found")
        restarted = self.foreman.lifecycle.restarted(asked, self.foreman.failed_of(name))
        await self.foreman.append_config([restart_entry(asked)])
        answer = self.shown_status(name)
        # Who asks for the state from here on sees that it is done.
        await self.foreman.settled()
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
        if not self.foreman.lifecycle.is_assigned(unit):
            raise RequestElsewhere(self._owner(unit))
        self.foreman.restart_one(unit)
        await self.foreman.begun()

    def _owner(self, unit: Unit) -> str:
        """The worker that has it, by what it said last."""
        found = (
            self.statuses.tasks.get(unit) if isinstance(unit, TaskId) else self.statuses.connectors.get(unit)
        )
        if found is None:
            raise not_found(f"No status found for {unit}: no worker has it yet")
        return found.worker

    async def set_cluster_logger(self, logger: str, level: str) -> None:
        await self.foreman.append_config([logger_entry(logger, level)])

    # Offsets

    async def shown_offsets(self, name: str) -> dict[str, Any]:
        entry = self._entry(name)
        if self._kind(entry.config) is Kind.SINK:
            found = await self._asked(committed_offsets(self.foreman.cluster, group_of(name, entry.config)))
            return shown_sink({place: committed.offset for place, committed in (found or {}).items()})
        await self.foreman.log.read_to_end()
        return shown(self.offsets.of(name))

    async def alter_offsets(self, name: str, wanted: Sequence[Wanted] | None) -> str:
        """What to tell; `wanted` None forgets all."""
        entry = self._stopped(name)
        if issubclass(self.foreman.class_of(entry.config), SparkSource | SparkSink):
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
        await self.foreman.log.read_to_end()
        changes = (
            [Wanted(partition, None) for partition, _ in self.offsets.of(name)] if wanted is None else wanted
        )
        connector = self.foreman.class_of(entry.config)()
        assert isinstance(connector, SourceConnector)
        try:
            await asyncio.to_thread(connector.alter_offsets, entry.config, list(changes))
        except ConnectError as error:
            raise RestError(SERVER_ERROR, str(error)) from None
        entries = [self.offsets.entry(name, partition, offset) for partition, offset in changes]
        await self.foreman.log.append(self.settings["offset.storage.topic"], entries)

    async def _alter_sink(self, name: str, entry: ConnectorEntry, wanted: Sequence[Wanted] | None) -> None:
        group = group_of(name, entry.config)
        if wanted is None:
            await self._asked(delete_group(self.foreman.cluster, group), name)
            return
        offsets = sink_offsets(wanted)
        if any(offset is not None and offset < 0 for offset in offsets.values()):
            raise RestError(SERVER_ERROR, f"Failed to modify offsets for sink connector {name}")
        kept = {place: offset for place, offset in offsets.items() if offset is not None}
        if kept:
            await self._asked(commit_offsets(self.foreman.cluster, group, kept), name)
        if forgotten := [place for place in offsets if place not in kept]:
            await self._asked(delete_offsets(self.foreman.cluster, group, forgotten), name)

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
            self.foreman.forget_topic(name, topic)

    async def check_health(self) -> None:
        """Raises what keeps the worker from doing its work."""
        await self.foreman.log.read_to_end()

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

    def lines_of(self, name: str) -> list[Line]:
        """Of this worker."""
        self._entry(name)
        return self.foreman.lines.of(name)

    def workers_of(self, name: str) -> set[str]:
        """Where the connector and its tasks run, or ran last."""
        statuses = [self.statuses.connectors.get(name), *self.statuses.tasks_of(name).values()]
        return {each.worker for each in statuses if each is not None}

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
