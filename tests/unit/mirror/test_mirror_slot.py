"""Where a part of a mirror begins to read, when not all partitions can be read at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import cast
from uuid import UUID

import pytest

from ottla.client.admin.topics import Partition
from ottla.client.cluster import EARLIEST, LATEST, ClusterClient, OffsetAt
from ottla.client.metadata import NO_LEADER, PartitionInfo, TopicInfo
from ottla.mirror.fetching import Fetcher
from ottla.mirror.formats import SourcePosition
from ottla.mirror.positions import Positions
from ottla.mirror.slot import Slot, Wanted
from ottla.wire.errors import ErrorCode, KafkaError

OLD, NEW = UUID(int=1), UUID(int=2)
FIRST, SECOND = Partition("t", 0), Partition("t", 1)
BEGIN, END = 3, 10


class Source:
    """Two partitions, led as `leaders` says; None for one that the broker that is asked has not heard of."""

    def __init__(self) -> None:
        self.leaders: dict[int, int | None] = {0: 1, 1: 1}
        self.end = END

    async def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        found = {
            number: PartitionInfo(number, leader, 0, (1,), (1,), ErrorCode.none)
            for number, leader in self.leaders.items()
            if leader is not None
        }
        return {name: TopicInfo(name, NEW, False, found) for name in names}

    async def list_offsets(self, wanted: Mapping[Partition, int]) -> dict[Partition, OffsetAt]:
        assert all(self.leaders[place.number] not in {None, NO_LEADER} for place in wanted)
        at = {EARLIEST: BEGIN, LATEST: self.end}
        return {place: OffsetAt(at[when], -1, 0) for place, when in wanted.items()}


class Known:
    def __init__(self) -> None:
        self.found: dict[Partition, SourcePosition] = {}

    async def read(self) -> Mapping[Partition, SourcePosition]:
        return self.found


class Fixture:
    def __init__(self, *, starts_at_end: bool = False) -> None:
        self.source, self.known, self.looks = Source(), Known(), 0
        self.topic_id = NEW
        source = cast(ClusterClient, self.source)

        async def ours() -> bool:
            return True

        def look() -> None:
            self.looks += 1

        self.slot = Slot(
            name="test",
            source=source,
            target=source,
            transactional_id="test",
            positions=cast(Positions, self.known),
            wanted=lambda: {
                place: Wanted(str(self.topic_id), place._replace(topic="a.t")) for place in (FIRST, SECOND)
            },
            committed=lambda runs, syncs: None,
            is_still_ours=ours,
            refresh=look,
            commit_interval_s=1,
            starts_at_end=starts_at_end,
        )
        self.fetcher = Fetcher(source, "test", look)
        self.ids: Mapping[Partition, str | None] = {}

    async def add_new(self) -> dict[Partition, int]:
        self.ids = await self.slot._add_new(self.fetcher, self.ids)
        return dict(self.fetcher._positions)

    def let_time_pass(self, monkeypatch: pytest.MonkeyPatch) -> bool:
        """Until what was set aside is looked at again; whether there is something."""
        now = time.monotonic()
        with monkeypatch.context() as later:
            later.setattr(time, "monotonic", lambda: now + 60)
            return self.slot._are_back()


@pytest.mark.parametrize("leader", [NO_LEADER, None])
def test_a_partition_that_cannot_be_read_yet_is_looked_at_again(
    leader: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def follow() -> None:
        given = Fixture()
        given.source.leaders[1] = leader
        assert await given.add_new() == {FIRST: BEGIN}
        given.source.leaders[1] = 1
        assert given.let_time_pass(monkeypatch)
        assert await given.add_new() == {FIRST: BEGIN, SECOND: BEGIN}

    asyncio.run(follow())


@pytest.mark.parametrize("leader", [NO_LEADER, None])
def test_a_topic_made_anew_is_not_taken_for_the_one_before_it_meanwhile(
    leader: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def follow() -> None:
        given = Fixture()
        given.topic_id = OLD
        given.known.found[SECOND] = SourcePosition(7, str(OLD), None)
        assert await given.add_new() == {FIRST: BEGIN, SECOND: 8}
        given.topic_id = NEW
        given.source.leaders[1] = leader
        assert await given.add_new() == {FIRST: BEGIN}
        given.source.leaders[1] = 1
        assert given.let_time_pass(monkeypatch)
        assert await given.add_new() == {FIRST: BEGIN, SECOND: BEGIN}
        assert given.fetcher._ids == {"t": NEW}

    asyncio.run(follow())


def test_who_begins_at_the_end_begins_at_that_of_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async def follow() -> None:
        given = Fixture(starts_at_end=True)
        given.source.leaders[1] = NO_LEADER
        # Where it ends nobody can tell, and all of it would come if the others began.
        with pytest.raises(KafkaError, match="where t-1 begins: LEADER"):
            await given.add_new()
        given.source.leaders[1] = 1
        assert await given.add_new() == {FIRST: END, SECOND: END}
        # The target refuses the second for a while, and the first goes on alone.
        given.slot._set_aside[SECOND] = time.monotonic() + 30
        given.fetcher, given.ids = Fetcher(given.slot.source, "test", lambda: None), {}
        given.source.end = END + 5
        assert await given.add_new() == {FIRST: END}
        given.slot._has_begun = True
        assert given.let_time_pass(monkeypatch)
        assert await given.add_new() == {FIRST: END, SECOND: END}
        assert given.slot._skipped == {FIRST: END - 1, SECOND: END - 1}

    asyncio.run(follow())
