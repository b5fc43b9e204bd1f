"""Reading partitions as columns: what is wrong with one keeps no other waiting, and nobody in the dark."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterable, Mapping
from typing import Any, cast

from ottla.client.cluster import EARLIEST, ClusterClient, OffsetAt
from ottla.client.metadata import NO_LEADER, PartitionInfo, TopicInfo
from ottla.connect.running.column_reader import TopicMissing, _Loop, settings_of
from ottla.wire.errors import ErrorCode

BEGIN = 3


class Cluster:
    def __init__(self, leaders: Mapping[str, int]) -> None:
        self.leaders = dict(leaders)
        self.failure: Exception | None = None

    async def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        if self.failure is not None:
            raise self.failure
        found: dict[str, TopicInfo] = {}
        for name in names:
            if name in self.leaders:
                info = PartitionInfo(0, self.leaders[name], 0, (1,), (1,), ErrorCode.none)
                found[name] = TopicInfo(name, None, False, {0: info})
        return found

    async def list_offsets(self, wanted: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], OffsetAt]:
        assert all(self.leaders[topic] != NO_LEADER for topic, _ in wanted)
        assert set(wanted.values()) <= {EARLIEST}
        return {place: OffsetAt(BEGIN, -1, 0) for place in wanted}


def loop_of(cluster: Cluster, ready: queue.SimpleQueue[Any]) -> _Loop:
    settings = settings_of({"bootstrap.servers": "x:1"})
    assert settings is not None
    return _Loop(settings, cast(ClusterClient, cluster), ready)


def test_partitions_that_cannot_be_read_keep_no_others_waiting() -> None:
    async def read() -> None:
        cluster, ready = Cluster({"led": 1, "known": 2, "leaderless": NO_LEADER}), queue.SimpleQueue[Any]()
        loop = loop_of(cluster, ready)
        loop.add({("led", 0): None, ("known", 0): 7, ("leaderless", 0): None, ("gone", 0): 5}, 1)
        assert await loop._by_leader() == {1: [("led", 0)], 2: [("known", 0)]}
        assert loop._positions[("led", 0)] == BEGIN
        missing = ready.get_nowait()
        assert isinstance(missing, TopicMissing)
        assert "gone-0 does not exist" in str(missing)
        cluster.leaders["leaderless"] = 1
        assert (await loop._by_leader())[1] == [("leaderless", 0), ("led", 0)]

    asyncio.run(read())


def test_whatever_goes_wrong_is_told_to_who_takes() -> None:
    async def read() -> None:
        cluster, ready = Cluster({"led": 1}), queue.SimpleQueue[Any]()
        cluster.failure = KeyError("nobody has thought of")
        loop = loop_of(cluster, ready)
        loop.add({("led", 0): 7}, 1)
        loop.start()
        found = await asyncio.to_thread(ready.get, timeout=10)
        assert found is cluster.failure
        await loop.end()

    asyncio.run(read())
