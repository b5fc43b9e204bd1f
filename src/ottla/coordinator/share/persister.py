"""The state of share groups, for leaders of partitions: read from and written to the share coordinator,
wherever it is.

A broker that coordinates what it asks for itself is not asked over the network. What fails because a
coordinator moves, starts or is not there yet is asked again for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from ottla.coordinator.share.commands import SharePartition, WriteRequest
from ottla.coordinator.share.coordinator import ShareCoordinator
from ottla.coordinator.share.records import StateBatch as StoredBatch
from ottla.coordinator.transactions.gathering import Gathering
from ottla.coordinator.transactions.other_brokers import AskBroker
from ottla.metadata.image import MetadataImage
from ottla.metadata.internal_topics import SHARE_STATE_TOPIC
from ottla.replication.share.in_flight import State, StateBatch
from ottla.replication.share.persister import ShareKey, StateChange, StoredState
from ottla.runtime.clock import Clock
from ottla.runtime.tasks import TaskScope
from ottla.wire.api import ApiKey
from ottla.wire.errors import CoordinatorNotAvailable, ErrorCode, KafkaError

T = TypeVar("T")

PATIENCE_SECONDS = 30.0
DELAY_SECONDS_FIRST = 0.02
DELAY_SECONDS_MAX = 1.0
_PASSING = {
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.not_coordinator,
    ErrorCode.network_exception,
    ErrorCode.request_timed_out,
}


class _Read(NamedTuple):
    key: ShareKey
    leader_epoch: int


class _Write(NamedTuple):
    key: ShareKey
    change: StateChange


class SharePersister:
    def __init__(
        self,
        node_id: int,
        coordinator: ShareCoordinator,
        image: Callable[[], MetadataImage],
        ask: AskBroker,
        clock: Clock,
        tasks: TaskScope,
    ) -> None:
        self._node_id = node_id
        self._coordinator = coordinator
        self._image = image
        self._ask = ask
        self._clock = clock
        self._reads = Gathering[_Read, StoredState | KafkaError](
            self._read_all, lambda asked: asked.key, tasks, "share-states-of"
        )
        self._writes = Gathering[_Write, KafkaError | None](
            self._write_all, lambda asked: asked.key, tasks, "share-states-to"
        )

    async def read(self, key: ShareKey, leader_epoch: int) -> StoredState:
        async def once() -> StoredState:
            broker_id = self._broker_of(key)
            if broker_id == self._node_id:
                return await self._read_here(key, leader_epoch)
            answer = await self._reads.ask(broker_id, _Read(key, leader_epoch))
            if isinstance(answer, KafkaError):
                raise answer
            return answer

        return await self._patiently(once)

    async def write(self, key: ShareKey, change: StateChange) -> None:
        async def once() -> None:
            broker_id = self._broker_of(key)
            if broker_id == self._node_id:
                await self._coordinator.write(SharePartition(*key), _write_request(change))
                return
            answer = await self._writes.ask(broker_id, _Write(key, change))
            if answer is not None:
                raise answer

        await self._patiently(once)

    async def _patiently(self, once: Callable[[], Awaitable[T]]) -> T:
        until = self._clock.monotonic() + PATIENCE_SECONDS
        delay = DELAY_SECONDS_FIRST
        while True:
            try:
                return await once()
            except KafkaError as error:
                if error.code not in _PASSING or self._clock.monotonic() >= until:
                    raise
            await asyncio.sleep(delay)
            delay = min(delay * 2, DELAY_SECONDS_MAX)

    def _broker_of(self, key: ShareKey) -> int:
        topic = self._image().topics.get(SHARE_STATE_TOPIC)
        index = self._coordinator.partition_for(SharePartition(*key))
        leader = -1 if topic is None else topic.partitions[index].leader
        if leader < 0:
            raise CoordinatorNotAvailable(f"nobody leads {SHARE_STATE_TOPIC}-{index} now; retry")
        return leader

    async def _read_here(self, key: ShareKey, leader_epoch: int) -> StoredState:
        state = await self._coordinator.read(SharePartition(*key), leader_epoch)
        return StoredState(state.state_epoch, state.start_offset, _batches(state.batches))

    # Asking others. A request is about one group.

    async def _read_all(self, broker_id: int, asked: Sequence[_Read]) -> list[StoredState | KafkaError]:
        async def of_group(group_id: str, some: list[_Read]) -> Any:
            topics = [
                {
                    "topic_id": topic_id,
                    "partitions": [
                        {"partition": each.key.partition, "leader_epoch": each.leader_epoch} for each in rows
                    ],
                }
                for topic_id, rows in _by_topic(some)
            ]
            return await self._ask(
                broker_id, ApiKey.READ_SHARE_GROUP_STATE, {"group_id": group_id, "topics": topics}
            )

        def told(row: Any) -> StoredState | KafkaError:
            if row.error_code != ErrorCode.none:
                return _error(row, "ReadShareGroupState")
            return StoredState(row.state_epoch, row.start_offset, _batches(row.state_batches))

        found = await _all_groups(asked, of_group, told)
        return [found.get(each.key, _unanswered(each.key)) for each in asked]

    async def _write_all(self, broker_id: int, asked: Sequence[_Write]) -> list[KafkaError | None]:
        async def of_group(group_id: str, some: list[_Write]) -> Any:
            topics = [
                {"topic_id": topic_id, "partitions": [_written(each) for each in rows]}
                for topic_id, rows in _by_topic(some)
            ]
            return await self._ask(
                broker_id, ApiKey.WRITE_SHARE_GROUP_STATE, {"group_id": group_id, "topics": topics}
            )

        def told(row: Any) -> KafkaError | None:
            return None if row.error_code == ErrorCode.none else _error(row, "WriteShareGroupState")

        found = await _all_groups(asked, of_group, told)
        return [found.get(each.key, _unanswered(each.key)) for each in asked]


Asked = TypeVar("Asked", _Read, _Write)


async def _all_groups(
    asked: Sequence[Asked],
    of_group: Callable[[str, list[Asked]], Awaitable[Any]],
    told: Callable[[Any], T],
) -> dict[ShareKey, T]:
    ordered = sorted(asked, key=lambda each: each.key)
    groups = [(group_id, list(some)) for group_id, some in groupby(ordered, lambda each: each.key.group_id)]
    answers = await asyncio.gather(*(of_group(group_id, some) for group_id, some in groups))
    return {
        ShareKey(group_id, result.topic_id, row.partition): told(row)
        for (group_id, _), answer in zip(groups, answers, strict=True)
        for result in answer.results
        for row in result.partitions
    }


def _by_topic(asked: list[Asked]) -> list[tuple[Any, list[Asked]]]:
    return [(topic_id, list(rows)) for topic_id, rows in groupby(asked, lambda each: each.key.topic_id)]


def _batches(stored: Iterable[Any]) -> list[StateBatch]:
    return [
        StateBatch(each.first_offset, each.last_offset, State(each.delivery_state), each.delivery_count)
        for each in stored
    ]


def _written(asked: _Write) -> dict[str, Any]:
    change = asked.change
    return {
        "partition": asked.key.partition,
        "state_epoch": change.state_epoch,
        "leader_epoch": change.leader_epoch,
        "start_offset": change.start_offset,
        "delivery_complete_count": change.delivery_complete_count,
        "state_batches": [
            {
                "first_offset": first,
                "last_offset": last,
                "delivery_state": int(state),
                "delivery_count": count,
            }
            for first, last, state, count in change.batches
        ],
    }


def _write_request(change: StateChange) -> WriteRequest:
    return WriteRequest(
        change.state_epoch,
        change.leader_epoch,
        change.start_offset,
        change.delivery_complete_count,
        tuple(StoredBatch(first, last, int(state), count) for first, last, state, count in change.batches),
    )


def _error(row: Any, about: str) -> KafkaError:
    # Late, because who coordinates everything itself need not load what asks others.
    from ottla.client.errors import error_for

    return error_for(row.error_code, row.error_message, about)


def _unanswered(key: ShareKey) -> KafkaError:
    return CoordinatorNotAvailable(f"the share coordinator says nothing of {key}; retry")
