"""States of share groups, for coordinators of the groups: begun, ended, summarized, wherever they are kept.

A broker that coordinates a state itself is not asked over the network. What fails because a coordinator
moves, starts or is not there yet is asked again for a while.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from ottla.coordinator.groups.commands import InitializeStates, Partitions
from ottla.coordinator.groups.share_states import StateSummary
from ottla.coordinator.share.commands import SharePartition
from ottla.coordinator.share.coordinator import ShareCoordinator
from ottla.coordinator.transactions.other_brokers import AskBroker
from ottla.metadata.image import MetadataImage
from ottla.metadata.internal_topics import SHARE_STATE_TOPIC
from ottla.replication.manager import ReplicaManager
from ottla.runtime.clock import Clock
from ottla.wire.api import ApiKey
from ottla.wire.errors import CoordinatorNotAvailable, ErrorCode, KafkaError

_LATEST = -1
PATIENCE_SECONDS = 10.0
DELAY_SECONDS_FIRST = 0.02
DELAY_SECONDS_MAX = 1.0
_PASSING = {
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.not_coordinator,
    ErrorCode.network_exception,
    ErrorCode.request_timed_out,
    # Of a topic that has just been made, and that the other broker has not heard of.
    ErrorCode.unknown_topic_or_partition,
}

_Wanted = Mapping[SharePartition, Mapping[str, int]]
"""What is said of each partition."""


class StatesOfGroups:
    """Asks share coordinators, as `groups.share_states.ShareStates`."""

    def __init__(
        self,
        node_id: int,
        coordinator: ShareCoordinator,
        image: Callable[[], MetadataImage],
        ask: AskBroker,
        replicas: ReplicaManager,
        make_topic: Callable[[], Awaitable[object]],
        clock: Clock,
    ) -> None:
        """`make_topic` of the states, where it is not there yet."""
        self._node_id = node_id
        self._coordinator = coordinator
        self._image = image
        self._ask = ask
        self._replicas = replicas
        self._make_topic = make_topic
        self._clock = clock

    async def initialize(self, wanted: InitializeStates) -> Partitions:
        await self._make_topic()
        names: _Wanted = {
            SharePartition(wanted.group_id, topic_id, partition): {
                "state_epoch": wanted.state_epoch,
                "start_offset": start_offset,
            }
            for topic_id, starts in wanted.start_offsets.items()
            for partition, start_offset in starts.items()
        }
        answers = await self._ask_all(
            ApiKey.INITIALIZE_SHARE_GROUP_STATE,
            names,
            lambda name: self._coordinator.initialize(
                name, wanted.state_epoch, wanted.start_offsets[name.topic_id][name.partition]
            ),
        )
        done: dict[uuid.UUID, set[int]] = {}
        error: KafkaError | None = None
        for name, answer in answers.items():
            if isinstance(answer, KafkaError):
                error = answer
            else:
                done.setdefault(name.topic_id, set()).add(name.partition)
        if error is not None and not done:
            raise error
        return {topic_id: frozenset(partitions) for topic_id, partitions in done.items()}

    async def delete(self, group_id: str, partitions: Partitions) -> dict[uuid.UUID, KafkaError | None]:
        names: _Wanted = {name: {} for name in _names(group_id, partitions)}
        answers = await self._ask_all(ApiKey.DELETE_SHARE_GROUP_STATE, names, self._coordinator.delete)
        errors: dict[uuid.UUID, KafkaError | None] = dict.fromkeys(partitions)
        for name, answer in answers.items():
            if isinstance(answer, KafkaError):
                errors[name.topic_id] = answer
        return errors

    async def summarize(
        self, group_id: str, partitions: Partitions
    ) -> dict[tuple[uuid.UUID, int], StateSummary | KafkaError]:
        if SHARE_STATE_TOPIC not in self._image().topics:
            return {}
        names: _Wanted = {name: {"leader_epoch": -1} for name in _names(group_id, partitions)}
        answers = await self._ask_all(
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, names, self._coordinator.summarize
        )
        return {
            (name.topic_id, name.partition): answer
            if isinstance(answer, KafkaError)
            else StateSummary(
                answer.state_epoch,
                answer.leader_epoch,
                answer.start_offset,
                answer.delivery_complete_count,
            )
            for name, answer in answers.items()
        }

    async def end_offsets(
        self, partitions: Sequence[tuple[uuid.UUID, int]]
    ) -> dict[tuple[uuid.UUID, int], int]:
        image = self._image()
        found: dict[tuple[uuid.UUID, int], int] = {}
        by_broker: dict[int, dict[str, list[int]]] = {}
        ids: dict[str, uuid.UUID] = {}
        for topic_id, index in partitions:
            topic = image.topic_by_id(topic_id)
            led = None if topic is None else topic.partition(index)
            if topic is None or led is None or led.leader < 0:
                continue
            here = self._replicas.find(topic.name, index) if led.leader == self._node_id else None
            if here is not None:
                found[topic_id, index] = here.high_watermark
            elif led.leader != self._node_id:
                ids[topic.name] = topic_id
                by_broker.setdefault(led.leader, {}).setdefault(topic.name, []).append(index)
        for some in await asyncio.gather(*(self._ends_there(*each) for each in by_broker.items())):
            found |= {(ids[name], index): offset for name, index, offset in some}
        return found

    async def _ends_there(
        self, broker_id: int, topics: Mapping[str, Sequence[int]]
    ) -> list[tuple[str, int, int]]:
        wanted = [
            {
                "name": name,
                "partitions": [
                    {"partition_index": index, "current_leader_epoch": -1, "timestamp": _LATEST}
                    for index in indexes
                ],
            }
            for name, indexes in topics.items()
        ]
        try:
            answer = await self._ask(
                broker_id,
                ApiKey.LIST_OFFSETS,
                {"replica_id": -1, "isolation_level": 0, "topics": wanted},
            )
        except KafkaError:
            return []
        return [
            (topic.name, row.partition_index, row.offset)
            for topic in answer.topics
            for row in topic.partitions
            if row.error_code is ErrorCode.none
        ]

    # --- asking

    async def _ask_all(
        self, api: ApiKey, names: _Wanted, here: Callable[[SharePartition], Awaitable[Any]]
    ) -> dict[SharePartition, Any]:
        """Of each an answer or a KafkaError. What passes is waited for, for some time."""
        until = self._clock.monotonic() + PATIENCE_SECONDS
        delay = DELAY_SECONDS_FIRST
        answers: dict[SharePartition, Any] = {}
        left = dict(names)
        while left:
            answers |= await self._ask_once(api, left, here)
            left = {
                name: values
                for name, values in left.items()
                if isinstance(answers[name], KafkaError) and answers[name].code in _PASSING
            }
            if self._clock.monotonic() >= until:
                break
            if left:
                await asyncio.sleep(delay)
                delay = min(delay * 2, DELAY_SECONDS_MAX)
        return answers

    async def _ask_once(
        self, api: ApiKey, names: _Wanted, here: Callable[[SharePartition], Awaitable[Any]]
    ) -> dict[SharePartition, Any]:
        answers: dict[SharePartition, Any] = {}
        by_broker: dict[int, list[SharePartition]] = {}
        for name in names:
            try:
                by_broker.setdefault(self._broker_of(name), []).append(name)
            except KafkaError as error:
                answers[name] = error
        asked = [
            self._answered_here(some, here)
            if broker_id == self._node_id
            else self._answered_there(broker_id, api, {name: names[name] for name in some})
            for broker_id, some in by_broker.items()
        ]
        for found in await asyncio.gather(*asked):
            answers |= found
        return answers

    def _broker_of(self, name: SharePartition) -> int:
        topic = self._image().topics.get(SHARE_STATE_TOPIC)
        leader = -1 if topic is None else topic.partitions[self._coordinator.partition_for(name)].leader
        if leader < 0:
            raise CoordinatorNotAvailable(f"nobody coordinates {name} now; retry")
        return leader

    async def _answered_here(
        self, names: Iterable[SharePartition], here: Callable[[SharePartition], Awaitable[Any]]
    ) -> dict[SharePartition, Any]:
        async def one(name: SharePartition) -> Any:
            try:
                return await here(name)
            except KafkaError as error:
                return error

        listed = list(names)
        return dict(zip(listed, await asyncio.gather(*map(one, listed)), strict=True))

    async def _answered_there(self, broker_id: int, api: ApiKey, names: _Wanted) -> dict[SharePartition, Any]:
        # Late, because who coordinates everything itself need not load what asks others.
        from ottla.client.errors import error_for

        topics: dict[uuid.UUID, list[dict[str, int]]] = {}
        for name, values in names.items():
            topics.setdefault(name.topic_id, []).append({"partition": name.partition, **values})
        group_id = next(iter(names)).group_id
        about = f"{api.name} of group {group_id}"
        try:
            answer = await self._ask(
                broker_id,
                api,
                {
                    "group_id": group_id,
                    "topics": [{"topic_id": t, "partitions": some} for t, some in topics.items()],
                },
            )
        except KafkaError as error:
            return dict.fromkeys(names, error)
        found: dict[SharePartition, Any] = {
            SharePartition(group_id, topic.topic_id, row.partition): row
            if row.error_code is ErrorCode.none
            else error_for(row.error_code, row.error_message, about)
            for topic in answer.results
            for row in topic.partitions
        }
        unanswered = CoordinatorNotAvailable(f"{about}: broker {broker_id} says nothing of it; retry")
        return {name: found.get(name, unanswered) for name in names}


def _names(group_id: str, partitions: Partitions) -> list[SharePartition]:
    return [
        SharePartition(group_id, topic_id, partition)
        for topic_id, some in partitions.items()
        for partition in sorted(some)
    ]
