"""What share groups have read: snapshots and updates, who may write them, what a restart makes of the log."""

from __future__ import annotations

import itertools
import uuid
from random import Random
from typing import Any

import pytest

from ottla.coordinator.host.journal import Instant, Outcome
from ottla.coordinator.host.shard_kind import UnknownRecord
from ottla.coordinator.share.batches import combine
from ottla.coordinator.share.commands import SharePartition, Summary, WriteRequest
from ottla.coordinator.share.records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    StateBatch,
    decode,
    encode,
)
from ottla.coordinator.share.settings import ShareSettings
from ottla.coordinator.share.shard import ShareShard, ShareState
from ottla.wire.errors import (
    FencedLeaderEpoch,
    FencedStateEpoch,
    InvalidRequest,
    KafkaError,
    UnknownTopicOrPartition,
)

TOPIC = uuid.UUID(int=1000)
NAME = SharePartition("readers", TOPIC, 0)
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


class Driver:
    """A shard and its log, as bytes."""

    def __init__(self, updates_per_snapshot: int = 500) -> None:
        self.settings = ShareSettings(updates_per_snapshot=updates_per_snapshot)
        self.partition_counts = {TOPIC: 3}
        self.record_bytes_max = 1 << 20
        self.log: list[tuple[bytes, bytes | None]] = []
        self.now = Instant(1_700_000_000_000, 0)
        self.shard = self.fresh()

    def fresh(self) -> ShareShard:
        return ShareShard(
            self.settings,
            lambda topic_id: self.partition_counts.get(topic_id, 0),
            lambda: self.record_bytes_max,
        )

    def replayed(self, from_record: int = 0) -> dict[SharePartition, ShareState]:
        shard = self.fresh()
        for record in self.log[from_record:]:
            shard.replay(*decode(*record))
        return shard.states

    def take(self, outcome: Outcome) -> Any:
        self.log += [encode(key, value) for key, value in outcome.records]
        ((_, reply),) = outcome.replies
        if isinstance(reply, KafkaError):
            raise reply
        return reply

    def initialize(self, state_epoch: int = 0, start_offset: int = 0, name: SharePartition = NAME) -> None:
        self.take(self.shard.initialize(name, state_epoch, start_offset, 1, self.now))

    def read(self, leader_epoch: int = 0, name: SharePartition = NAME) -> ShareState:
        state: ShareState = self.take(self.shard.read(name, leader_epoch, 1, self.now))
        return state

    def write(
        self,
        *batches: StateBatch,
        start_offset: int = -1,
        state_epoch: int = 0,
        leader_epoch: int = 0,
        complete: int = -1,
        name: SharePartition = NAME,
    ) -> None:
        request = WriteRequest(state_epoch, leader_epoch, start_offset, complete, batches)
        self.take(self.shard.write(name, request, 1, self.now))

    def delete(self, name: SharePartition = NAME) -> None:
        self.take(self.shard.delete(name, 1, self.now))

    def summary(self, name: SharePartition = NAME) -> Summary:
        found: Summary = self.take(self.shard.summarize(name, 1, self.now))
        return found

    def kinds(self) -> list[str]:
        return [type(decode(*record)[0]).__name__ for record in self.log]


def test_records_have_apache_kafkas_layout() -> None:
    key, value = encode(
        ShareSnapshotKey("g", TOPIC, 2),
        ShareSnapshotValue(
            snapshot_epoch=1,
            state_epoch=2,
            leader_epoch=3,
            start_offset=4,
            delivery_complete_count=5,
            create_timestamp=6,
            write_timestamp=7,
            state_batches=(StateBatch(8, 9, ACKNOWLEDGED, 1),),
        ),
    )
    assert key.hex() == "0000" + "000167" + TOPIC.hex + "00000002"
    numbers = [f"{1:08x}", f"{2:08x}", f"{3:08x}", f"{4:016x}", f"{6:016x}", f"{7:016x}"]
    batch = f"{8:016x}{9:016x}" + "02" + "0001" + "00"
    assert value is not None
    assert value.hex() == "0000" + "".join(numbers) + "02" + batch + "01" + "0004" + f"{5:08x}"
    assert encode(ShareUpdateKey("g", TOPIC, 2), None)[0].hex().startswith("0001")


@pytest.mark.parametrize("key", [None, b"", b"\x00\x07abc", b"\x00\x00\x00"])
def test_other_records_are_told_apart(key: bytes | None) -> None:
    with pytest.raises(UnknownRecord):
        decode(key, b"\x00\x00")


def test_batches_as_few_as_can_be() -> None:
    def of(*ranges: tuple[int, int, int, int]) -> list[StateBatch]:
        return [StateBatch(*each) for each in ranges]

    for batches, start, expected in (
        (of(), 5, of()),
        (of((0, 9, 0, 1)), 10, of()),
        (of((0, 9, 0, 1)), 5, of((5, 9, 0, 1))),
        (of((0, 9, 0, 1)), -1, of((0, 9, 0, 1))),
        # Next to each other and alike, they become one; unlike, or apart, they stay.
        (of((0, 4, 2, 1), (5, 9, 2, 1)), 0, of((0, 9, 2, 1))),
        (of((0, 4, 2, 1), (5, 9, 2, 2)), 0, of((0, 4, 2, 1), (5, 9, 2, 2))),
        (of((0, 4, 2, 1), (6, 9, 2, 1)), 0, of((0, 4, 2, 1), (6, 9, 2, 1))),
        # A later delivery counts, then the higher state.
        (of((0, 9, 0, 1), (3, 5, 2, 1)), 0, of((0, 2, 0, 1), (3, 5, 2, 1), (6, 9, 0, 1))),
        (of((0, 9, 4, 1), (3, 12, 0, 2)), 0, of((0, 2, 4, 1), (3, 12, 0, 2))),
        (of((0, 9, 0, 2), (3, 5, 4, 1)), 0, of((0, 9, 0, 2))),
    ):
        assert list(combine(batches, start)) == expected


def test_batches_are_what_each_record_says_alone() -> None:
    random = Random(7)
    for _ in range(300):
        batches = []
        for _ in range(random.randint(1, 12)):
            first = random.randint(0, 30)
            state, count = random.choice((0, 2, 4)), random.randint(1, 3)
            batches.append(StateBatch(first, first + random.randint(0, 12), state, count))
        start = random.randint(-1, 20)
        combined = combine(batches, start)
        for offset in range(45):
            found = [
                (each.delivery_count, each.delivery_state)
                for each in batches
                if each.first_offset <= offset <= each.last_offset
            ]
            expected = [max(found)] if found and offset >= start else []
            said = [
                (each.delivery_count, each.delivery_state)
                for each in combined
                if each.first_offset <= offset <= each.last_offset
            ]
            assert said == expected
        for before, after in itertools.pairwise(combined):
            assert before.last_offset < after.first_offset
            alike = (before.delivery_state, before.delivery_count) == (
                after.delivery_state,
                after.delivery_count,
            )
            assert not alike or before.last_offset + 1 < after.first_offset


def test_a_state_is_begun_read_written_and_ended() -> None:
    driver = Driver()
    assert driver.summary() == Summary(0, 0, -1, -1)
    for act in (driver.read, driver.write):
        with pytest.raises(InvalidRequest, match="not been initialized"):
            act()
    driver.initialize(start_offset=10)
    driver.initialize(start_offset=10)
    assert driver.kinds() == ["ShareSnapshotKey"], "the second time says nothing new"
    assert driver.read(leader_epoch=4).batches == ()
    driver.write(StateBatch(10, 14, ACKNOWLEDGED, 1), leader_epoch=4, complete=5)
    driver.write(StateBatch(20, 20, ARCHIVED, 2), start_offset=15, leader_epoch=4, complete=1)
    state = driver.read(leader_epoch=4)
    assert (state.start_offset, state.delivery_complete_count) == (15, 1)
    assert state.batches == (StateBatch(20, 20, ARCHIVED, 2),)
    assert driver.summary() == Summary(0, 4, 15, 1)
    assert driver.replayed() == driver.shard.states
    driver.delete()
    driver.delete()
    assert driver.summary() == Summary()
    assert driver.replayed() == {}


def test_who_was_replaced_is_told_so() -> None:
    driver = Driver()
    driver.initialize(state_epoch=2)
    driver.read(leader_epoch=5)
    with pytest.raises(FencedLeaderEpoch):
        driver.read(leader_epoch=4)
    with pytest.raises(FencedLeaderEpoch):
        driver.write(leader_epoch=4, state_epoch=2)
    with pytest.raises(FencedStateEpoch):
        driver.write(leader_epoch=5, state_epoch=1)
    with pytest.raises(FencedStateEpoch):
        driver.initialize(state_epoch=1)
    driver.initialize(state_epoch=3, start_offset=100)
    assert driver.summary() == Summary(3, 5, 100, 0)
    with pytest.raises(FencedLeaderEpoch):
        driver.read(leader_epoch=4)
    assert driver.replayed() == driver.shard.states


def test_a_start_offset_never_goes_back() -> None:
    driver = Driver()
    driver.initialize(start_offset=10)
    driver.write(start_offset=20, complete=3)
    driver.write(StateBatch(15, 25, AVAILABLE, 1), start_offset=10, complete=9)
    state = driver.read()
    assert (state.start_offset, state.delivery_complete_count) == (20, 3)
    assert state.batches == (StateBatch(20, 25, AVAILABLE, 1),)
    driver.write(start_offset=20, complete=2)
    assert driver.read().delivery_complete_count == 3


@pytest.mark.parametrize(
    ("name", "error"),
    [
        (SharePartition("g", uuid.UUID(int=2000), 0), UnknownTopicOrPartition),
        (SharePartition("g", TOPIC, 3), UnknownTopicOrPartition),
        (SharePartition("g", TOPIC, -1), UnknownTopicOrPartition),
    ],
)
def test_partitions_that_do_not_exist(name: SharePartition, error: type[KafkaError]) -> None:
    driver = Driver()
    for act in (
        lambda: driver.initialize(name=name),
        lambda: driver.delete(name),
        lambda: driver.summary(name),
    ):
        with pytest.raises(error):
            act()


@pytest.mark.parametrize("batch", [StateBatch(5, 4, 0, 1), StateBatch(-1, 4, 0, 1)])
def test_batches_of_nothing_are_refused(batch: StateBatch) -> None:
    driver = Driver()
    driver.initialize()
    with pytest.raises(InvalidRequest, match="holds no records"):
        driver.write(batch)
    assert len(driver.log) == 1


@pytest.mark.parametrize("batch", [StateBatch(0, 4, 1, 1), StateBatch(0, 4, 7, 1)])
def test_states_that_nobody_could_read_are_refused(batch: StateBatch) -> None:
    driver = Driver()
    driver.initialize()
    with pytest.raises(InvalidRequest, match="delivery state"):
        driver.write(batch)
    assert len(driver.log) == 1


@pytest.mark.parametrize("count", [-1, 2**15 - 1])
def test_delivery_counts_that_leave_no_room_for_another_are_refused(count: int) -> None:
    driver = Driver()
    driver.initialize()
    with pytest.raises(InvalidRequest, match="delivery count"):
        driver.write(StateBatch(0, 4, AVAILABLE, count))
    assert len(driver.log) == 1


@pytest.mark.parametrize("offset", [2**63 - 1, -2])
def test_offsets_that_nothing_can_follow_are_refused(offset: int) -> None:
    driver = Driver()
    with pytest.raises(InvalidRequest, match="start offset of"):
        driver.initialize(start_offset=offset)
    driver.initialize()
    with pytest.raises(InvalidRequest, match="start offset of"):
        driver.write(start_offset=offset)
    with pytest.raises(InvalidRequest, match=f"last offset of {2**63 - 1}"):
        driver.write(StateBatch(5, 2**63 - 1, AVAILABLE, 1))
    assert len(driver.log) == 1


def test_a_state_that_no_record_has_room_for_is_refused() -> None:
    driver = Driver()
    driver.record_bytes_max = 11_000
    driver.initialize()
    # Every other one, so that no two become one.
    batches = [StateBatch(2 * at, 2 * at, ACKNOWLEDGED, 1) for at in range(600)]
    driver.write(*batches[:300])
    with pytest.raises(InvalidRequest, match=r"would have 600 batches.*max\.message\.bytes"):
        driver.write(*batches[300:])
    # What fills the gaps makes it shorter.
    driver.write(*(StateBatch(2 * at + 1, 2 * at + 1, ACKNOWLEDGED, 1) for at in range(299)))
    driver.write(*batches[300:])
    assert len(driver.shard.states[NAME].batches) == 301


def test_every_so_many_updates_there_is_a_snapshot() -> None:
    driver = Driver(updates_per_snapshot=2)
    driver.initialize()
    for offset in range(7):
        driver.write(StateBatch(offset, offset, ACKNOWLEDGED, 1 + offset % 2))
        assert driver.replayed() == driver.shard.states
    snapshot, update = "ShareSnapshotKey", "ShareUpdateKey"
    assert driver.kinds() == [snapshot, update, update] + [snapshot, update, update] * 1 + [snapshot, update]
    assert driver.replayed(from_record=6) == driver.shard.states, "a snapshot needs nothing before it"


def test_states_of_deleted_topics_go() -> None:
    driver = Driver()
    other = uuid.UUID(int=2000)
    driver.partition_counts[other] = 1
    kept = SharePartition("readers", other, 0)
    driver.initialize()
    driver.initialize(name=kept)
    outcome = driver.shard.topics_deleted({TOPIC}, driver.now)
    driver.log += [encode(key, value) for key, value in outcome.records]
    assert driver.shard.states.keys() == driver.replayed().keys() == {kept}


def test_the_log_can_be_cut_before_a_round_of_snapshots() -> None:
    driver = Driver()
    names = [SharePartition("readers", TOPIC, index) for index in range(3)]
    for name in names:
        driver.initialize(name=name)
    assert not driver.take(driver.shard.snapshot_all(1, driver.now)), "it would make nothing shorter"
    for offset in range(5):
        driver.write(StateBatch(offset, offset, ARCHIVED, 5), name=names[offset % 3])
    end = len(driver.log)
    assert driver.take(driver.shard.snapshot_all(1, driver.now))
    assert driver.replayed(from_record=end) == driver.shard.states
    assert len(driver.log) == end + 3
    assert not driver.take(driver.shard.snapshot_all(1, driver.now)), "nothing was written since"


def test_replaying_what_was_written_gives_what_was_there() -> None:
    random = Random(11)
    driver = Driver(updates_per_snapshot=5)
    names = [SharePartition(group, TOPIC, index) for group in ("a", "b") for index in range(3)]
    epochs = dict.fromkeys(names, 0)
    for _ in range(600):
        name = random.choice(names)
        try:
            match random.randrange(12):
                case 0:
                    epochs[name] += random.randrange(2)
                    driver.initialize(epochs[name], random.randrange(-1, 50), name)
                case 1:
                    driver.read(random.randrange(8), name)
                case 2 if random.random() < 0.2:
                    driver.delete(name)
                    epochs[name] = 0
                case _:
                    first = random.randrange(60)
                    driver.write(
                        StateBatch(first, first + random.randrange(9), random.choice((0, 2, 4)), 1),
                        start_offset=random.randrange(-1, 50),
                        state_epoch=epochs[name],
                        leader_epoch=random.randrange(8),
                        complete=random.randrange(-1, 5),
                        name=name,
                    )
        except KafkaError:
            pass
        assert driver.replayed() == driver.shard.states


def test_names_of_share_partitions() -> None:
    name = SharePartition("a:b", TOPIC, 12)
    assert str(name) == "a:b:AAAAAAAAAAAAAAAAAAAD6A:12"
    assert SharePartition.parse(str(name)) == name
    for text in ("", "g", "g:x", "g:AAAAAAAAAAAAAAAAAAAD6A", "g:AAAAAAAAAAAAAAAAAAAD6A:", "g:nonsense:0"):
        with pytest.raises(InvalidRequest, match="GROUP:TOPIC-ID:PARTITION"):
            SharePartition.parse(text)
    for text in (":AAAAAAAAAAAAAAAAAAAD6A:0", "g:AAAAAAAAAAAAAAAAAAAD6A:-1", f"{str(name)[:-2]}99999999999"):
        with pytest.raises(InvalidRequest):
            SharePartition.parse(text)
