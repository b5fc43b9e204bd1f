"""A client of a whole cluster: asks who leads or coordinates, and asks that broker; no retries.

What it has learned it forgets when an answer says that it is outdated, or when none comes.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ottla.runtime import Runtime
from ottla.sim.client import Client, SimClient
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode

GROUP, TRANSACTION = 0, 1
LOOK_UP_TIMEOUT_S = 1.5

_OUTDATED = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.replica_not_available,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.kafka_storage_error,
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
    }
)


class Routes:
    """What a client has learned of whom to ask. Its connections share it: no client asks a leader of whose
    successor it has heard, which may not know of that itself and refuse what comes after what it has."""

    def __init__(self) -> None:
        self.leaders: dict[tuple[str, int], tuple[str, int]] = {}
        self.coordinators: dict[tuple[str, int], tuple[str, int]] = {}
        self.epochs: dict[tuple[str, int], int] = {}
        """The newest of each leader that was heard of: whoever leads in an older one is not believed."""

    def forget(self) -> None:
        self.leaders.clear()
        self.coordinators.clear()


class RoutedClient(Client):
    def __init__(
        self,
        runtime: Runtime,
        brokers: Sequence[tuple[str, int]],
        chance: random.Random,
        timeout_s: float,
        routes: Routes | None = None,
    ) -> None:
        super().__init__(runtime, timeout_s=timeout_s)
        self._brokers = list(brokers)
        self._random = chance
        self._peers: dict[tuple[str, int], SimClient] = {}
        self.routes = routes or Routes()

    async def send(self, request: Any, *, answered: bool = True) -> Any:
        try:
            address = await self._address_for(request)
            if address is None:
                if request.__api_key__ in (ApiKey.FETCH, ApiKey.PRODUCE):
                    # Anybody else may be behind and not know it: nothing is there, or not what came before.
                    raise ConnectionError("nobody is known to lead the partition")
                address = self._random.choice(self._brokers)
            answer = await self._peer(address).send(self._in_epoch(request), answered=answered)
        except OSError:
            self.routes.forget()
            raise
        if answer is not None and _is_outdated(answer):
            self.routes.forget()
        return answer

    def close(self) -> None:
        self.routes.forget()
        for peer in self._peers.values():
            peer.close()

    def _peer(self, address: tuple[str, int], timeout_s: float | None = None) -> SimClient:
        key = address if timeout_s is None else (f"{address[0]}?", address[1])
        if key not in self._peers:
            self._peers[key] = SimClient(self._runtime, *address, timeout_s=timeout_s or self._timeout_s)
        return self._peers[key]

    async def _address_for(self, request: Any) -> tuple[str, int] | None:
        """None: anybody can answer it, or nobody knows who could."""
        match ApiKey(request.__api_key__):
            case ApiKey.PRODUCE:
                topic = request.topic_data[0]
                return await self._leader(topic.name, topic.partition_data[0].index)
            case ApiKey.FETCH:
                topic = request.topics[0]
                return await self._leader(topic.topic, topic.partitions[0].partition)
            case ApiKey.LIST_OFFSETS | ApiKey.DELETE_RECORDS:
                topic = request.topics[0]
                return await self._leader(topic.name, topic.partitions[0].partition_index)
            case ApiKey.INIT_PRODUCER_ID if request.transactional_id is None:
                return None
            case ApiKey.INIT_PRODUCER_ID | ApiKey.ADD_OFFSETS_TO_TXN | ApiKey.END_TXN:
                return await self._coordinator(request.transactional_id, TRANSACTION)
            case ApiKey.ADD_PARTITIONS_TO_TXN:
                return await self._coordinator(request.v3_and_below_transactional_id, TRANSACTION)
            case ApiKey.OFFSET_FETCH:
                return await self._coordinator(request.groups[0].group_id, GROUP)
            case _ if hasattr(request, "group_id"):
                return await self._coordinator(request.group_id, GROUP)
            case _:
                return None

    def _in_epoch(self, request: Any) -> Any:
        """A fetch says which leader it is meant for: one of another time might say that nothing is there."""
        if request.__api_key__ != ApiKey.FETCH:
            return request
        topic = request.topics[0]
        part = topic.partitions[0]
        epoch = self.routes.epochs.get((topic.topic, part.partition), -1)
        named = dataclasses.replace(part, current_leader_epoch=epoch)
        return dataclasses.replace(request, topics=(dataclasses.replace(topic, partitions=(named,)),))

    async def _leader(self, topic: str, partition: int) -> tuple[str, int] | None:
        if (topic, partition) not in self.routes.leaders:
            module = import_module("kio.schema.metadata.v12.request")
            answer = await self._look_up(
                module.MetadataRequest(
                    topics=(module.MetadataRequestTopic(topic_id=None, name=topic),),
                    allow_auto_topic_creation=False,
                    include_topic_authorized_operations=False,
                )
            )
            addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
            for part in answer.topics[0].partitions:
                key = (topic, int(part.partition_index))
                if part.leader_id in addresses and part.leader_epoch >= self.routes.epochs.get(key, -1):
                    self.routes.leaders[key] = addresses[part.leader_id]
                    self.routes.epochs[key] = int(part.leader_epoch)
        return self.routes.leaders.get((topic, partition))

    async def _coordinator(self, key: str, key_type: int) -> tuple[str, int] | None:
        if (key, key_type) not in self.routes.coordinators:
            module = import_module("kio.schema.find_coordinator.v3.request")
            answer = await self._look_up(module.FindCoordinatorRequest(key=key, key_type=key_type))
            if answer.error_code is ErrorCode.none:
                self.routes.coordinators[key, key_type] = (answer.host, answer.port)
        return self.routes.coordinators.get((key, key_type))

    async def _look_up(self, request: Any) -> Any:
        return await self._peer(self._random.choice(self._brokers), LOOK_UP_TIMEOUT_S).send(request)


def _is_outdated(answer: Any) -> bool:
    if isinstance(answer, tuple):
        return any(_is_outdated(each) for each in answer)
    if not dataclasses.is_dataclass(answer):
        return False
    for each in dataclasses.fields(answer):
        value = getattr(answer, each.name)
        if value.__class__ is ErrorCode:
            if value in _OUTDATED:
                return True
        elif value.__class__ is tuple and _is_outdated(value):
            return True
    return False
