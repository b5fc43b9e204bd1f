"""What a replica that follows does with its log: take the leader's batches, cut off what the leader lacks."""

from __future__ import annotations

import asyncio
import errno
import random
from pathlib import Path
from uuid import UUID

import pytest
from log_kit import DIR, PARTITION, LogKit, batch, fill, offsets_in, read_all
from transaction_kit import end, read_all_committed, send, stable_offset

from ottla.config import BrokerConfig
from ottla.log.log import PartitionLog
from ottla.log.manager import LogManager
from ottla.log.scrub import verify
from ottla.log.types import LogClosed, StartsWithinBatch, UnexpectedOffset
from ottla.runtime.disk import PosixDisk
from ottla.sim.disk import SimDisk
from ottla.wire.errors import CorruptMessage, OffsetOutOfRange, StorageError

FIRST = "00000000000000000000.log"


def copied(leader: PartitionLog, follower: PartitionLog, max_bytes: int = 300) -> None:
    while follower.next_offset < leader.next_offset:
        follower.append_as_follower(leader.read(follower.next_offset, max_bytes, upto=leader.next_offset))


def busy(log: PartitionLog) -> None:
    """Transactions, open and aborted, of several producers under several leaders."""
    send(log, 0, producer_id=1, transactional=True)
    send(log, 0, 3, producer_id=2, transactional=True)
    end(log, producer_id=1, committed=False)
    send(log, 3, producer_id=2, transactional=True)
    end(log, producer_id=2, committed=True)
    send(log, 0, producer_id=3, transactional=True)
    log.append(memoryview(batch(b"a", b"b")), leader_epoch=2)
    log.append(memoryview(batch(b"c")), leader_epoch=5)


# Appending.


@pytest.mark.parametrize("max_bytes", [1, 300, 1 << 20])
def test_a_follower_has_the_leaders_bytes_and_knows_what_the_leader_knows(max_bytes: int) -> None:
    leader_kit, kit = LogKit(), LogKit()
    leader, follower = leader_kit.open(), kit.open()
    busy(leader)
    copied(leader, follower, max_bytes)
    assert kit.content(FIRST) == leader_kit.content(FIRST)
    assert follower.epochs.entries == leader.epochs.entries
    assert follower.aborted_transactions(0, 99) == leader.aborted_transactions(0, 99) == [(1, 0)]
    assert stable_offset(follower) == stable_offset(leader)
    assert read_all_committed(follower) == read_all_committed(leader)
    assert {
        known.producer_id: (known.epoch, known.next_sequence, known.transaction_first_offset)
        for known in follower.producers.active.values()
    } == {
        known.producer_id: (known.epoch, known.next_sequence, known.transaction_first_offset)
        for known in leader.producers.active.values()
    }


def test_what_does_not_continue_the_log_is_refused_whole() -> None:
    kit = LogKit()
    log = kit.open()
    log.append_as_follower(batch(b"a", b"b", base_offset=0, leader_epoch=3))
    before = kit.content(FIRST)
    good = batch(b"c", base_offset=2, leader_epoch=3)
    for wrong, error, text in (
        (batch(b"x", base_offset=1, leader_epoch=3), UnexpectedOffset, "offsets 1 to 1 .* at 2"),
        (good + good, UnexpectedOffset, "offsets 2 to 2 .* at 3"),
        (batch(b"x", base_offset=2, leader_epoch=2), UnexpectedOffset, "epoch 2 .* of epoch 3"),
        (good + good[:20] + b"\7" + good[21:], CorruptMessage, "fetched for offset 3 is damaged"),
        (good[:-1] + b"\7", CorruptMessage, "fetched for offset 2 is damaged"),
    ):
        with pytest.raises(error, match=text):
            log.append_as_follower(wrong)
    assert (log.next_offset, log.latest_epoch, kit.content(FIRST)) == (2, 3, before)
    # Of a batch that is cut off, the rest comes with the next fetch.
    assert log.append_as_follower(good + batch(b"d", base_offset=3)[:-1]).last_offset == 2
    # Compaction leaves gaps.
    log.append_as_follower(batch(b"e", base_offset=9, leader_epoch=4))
    assert (log.next_offset, log.epochs.entries) == (10, [(3, 0), (4, 9)])


def test_a_log_that_starts_within_a_batch_begins_anew_where_the_batch_does() -> None:
    log = LogKit().open()
    log.truncate_fully_and_start_at(12)
    data = batch(b"a", b"b", b"c", base_offset=10, leader_epoch=3)
    with pytest.raises(StartsWithinBatch, match="begins with 10") as caught:
        log.append_as_follower(data)
    log.truncate_fully_and_start_at(caught.value.base_offset)
    log.append_as_follower(data)
    log.delete_records_before(12)
    assert (log.start_offset, log.next_offset, log.segments[0].base_offset) == (12, 13, 10)
    # With records of its own, it is an overlap like any other.
    with pytest.raises(UnexpectedOffset, match="does not continue"):
        log.append_as_follower(batch(b"c", b"d", base_offset=12, leader_epoch=3))


def test_a_marker_that_cannot_be_indexed_is_not_taken() -> None:
    """The leader sends it once: else the transaction would stay open here for ever."""
    leader, disk = LogKit().open(), SimDisk()
    kit = LogKit(disk)
    follower = kit.open()
    send(leader, 0, producer_id=1, transactional=True)
    copied(leader, follower)
    end(leader, producer_id=1, committed=False)
    disk.fail("append", errno.ENOSPC, path=f"{DIR}/{FIRST.replace('.log', '.txnindex')}")
    with pytest.raises(StorageError):
        copied(leader, follower)
    assert (follower.next_offset, stable_offset(follower)) == (1, 0)
    disk.heal()
    copied(leader, follower)
    assert (follower.next_offset, stable_offset(follower)) == (2, 2)
    assert follower.aborted_transactions(0, 9) == [(1, 0)]


# Epochs.


def epochs_of(*entries: tuple[int, int], records: int) -> PartitionLog:
    log = LogKit().open()
    for epoch, start in entries:
        while log.next_offset < start:
            log.append_as_follower(batch(b"x", base_offset=log.next_offset, leader_epoch=log.latest_epoch))
        log.begin_leader_epoch(epoch)
    while log.next_offset < records:
        log.append_as_follower(batch(b"x", base_offset=log.next_offset, leader_epoch=log.latest_epoch))
    return log


def test_where_an_epoch_ended_is_told_as_apache_kafka_does() -> None:
    log = epochs_of((2, 0), (4, 10), (5, 25), records=40)
    answers = {0: (0, 0), 2: (2, 10), 3: (2, 10), 4: (4, 25), 5: (5, 40), 6: (-1, -1), -1: (-1, -1)}
    assert {epoch: log.end_offset_for_epoch(epoch) for epoch in answers} == answers


def test_an_epoch_counts_from_when_its_leader_begins() -> None:
    log = epochs_of((2, 0), records=10)
    log.begin_leader_epoch(7)
    assert (log.end_offset_for_epoch(2), log.end_offset_for_epoch(7)) == ((2, 10), (7, 10))
    log.begin_leader_epoch(3)
    assert log.epochs.entries == [(2, 0), (7, 10)]


def test_a_follower_is_told_where_it_diverges() -> None:
    leader = epochs_of((2, 0), (4, 10), (5, 25), records=40)
    assert leader.diverging_epoch(5, 40) is None
    assert leader.diverging_epoch(4, 20) is None
    assert leader.diverging_epoch(4, 25) is None
    # It has records of epoch 4 that the leader never had.
    assert leader.diverging_epoch(4, 30) == (4, 25)
    # Epoch 3 was another's, after 2.
    assert leader.diverging_epoch(3, 12) == (2, 10)
    for epoch, offset in ((6, 40), (-1, 0)):
        with pytest.raises(OffsetOutOfRange):
            leader.diverging_epoch(epoch, offset)
    leader.delete_records_before(12)
    with pytest.raises(OffsetOutOfRange, match="offsets 12 to 40"):
        leader.diverging_epoch(4, 11)


@pytest.mark.parametrize("seed", range(30))
def test_replicas_that_diverged_come_to_the_same_by_epochs_alone(seed: int) -> None:
    """Whoever leads, the follower ends with the leader's bytes, and loses nothing that both had."""
    chance = random.Random(seed)
    kits = [LogKit(segment_bytes=chance.choice([200, 1 << 20])) for _ in range(2)]
    logs = [kit.open() for kit in kits]
    epoch = 0
    for _ in range(chance.randint(2, 6)):
        epoch += 1
        leader, follower = chance.sample(logs, 2)
        leader.begin_leader_epoch(epoch)
        for number in range(chance.randint(0, 6)):
            leader.append(memoryview(batch(b"%d/%d" % (epoch, number))), leader_epoch=epoch)
        if chance.random() < 0.4:
            continue
        same = 0
        while same < min(leader.next_offset, follower.next_offset) and values(leader, same) == values(
            follower, same
        ):
            same += 1
        for _ in range(100):
            if follower.next_offset:
                diverging = leader.diverging_epoch(follower.latest_epoch, follower.next_offset)
                if diverging is not None:
                    offset = follower.truncation_offset(*diverging)
                    assert offset >= same
                    follower.truncate_to(offset)
                    continue
            if follower.next_offset == leader.next_offset:
                break
            upto = chance.randint(follower.next_offset + 1, leader.next_offset)
            follower.append_as_follower(leader.read(follower.next_offset, 100, upto=upto))
        assert contents(leader) == contents(follower)
        assert [entry for entry in leader.epochs.entries if entry[1] < leader.next_offset] == [
            entry for entry in follower.epochs.entries if entry[1] < leader.next_offset
        ]


def values(log: PartitionLog, offset: int) -> bytes:
    return bytes(log.read(offset, 1, upto=offset + 1))


def contents(log: PartitionLog) -> bytes:
    return b"".join(segment.file.read(0, segment.size) for segment in log.segments)


# Beginning anew.


@pytest.mark.parametrize("offset", [0, 3, 7, 12, 20, 5000])
@pytest.mark.parametrize("clean", [True, False])
def test_a_follower_that_is_too_far_behind_begins_anew(offset: int, clean: bool) -> None:
    kit = LogKit(segment_bytes=600)
    log = kit.open()
    log.append_as_follower(batch(b"a", base_offset=3, leader_epoch=1))
    log.truncate_fully_and_start_at(3)
    send(log, 0, producer_id=1, transactional=True)
    fill(log, 20)
    end(log, producer_id=1, committed=False)
    assert len(log.segments) > 3
    log.truncate_fully_and_start_at(offset)
    assert (log.start_offset, log.next_offset, log.epochs.entries) == (offset, offset, [])
    assert (log.producers.active, log.has_aborted, len(log.segments)) == ({}, False, 1)
    assert not [name for name in kit.files() if name.endswith(".snapshot")]
    for number in range(5):
        log.append_as_follower(batch(bytes(100), base_offset=offset + number, leader_epoch=9))
    if clean:
        log.close()
    log = kit.open(clean=clean, recovery_point=log.recovery_point)
    assert (log.start_offset, log.next_offset, log.epochs.entries) == (offset, offset + 5, [(9, offset)])
    assert read_all(log) == [(offset + number, offset + number) for number in range(5)]
    assert list(verify(log)) == []


# In a log manager.


class Managed:
    def __init__(self, disk: SimDisk | None = None) -> None:
        self.kit = LogKit(disk)
        config = BrokerConfig.from_properties({"node.id": "1", "log.dirs": "/data"})
        self.logs = LogManager(self.kit.runtime, config, ["/data"])
        self.logs.lock()
        self.logs.open(lambda topic: self.kit.config)

    def log(self) -> PartitionLog:
        found = self.logs.get(PARTITION)
        return found or self.logs.create(*PARTITION, UUID(int=1), self.kit.config)


def test_high_watermarks_are_there_after_a_restart() -> None:
    disk = SimDisk()
    before = Managed(disk)
    fill(before.log(), 10)
    before.logs._high_watermark = lambda partition: 7
    asyncio.run(before.log().flush())
    asyncio.run(before.logs.write_checkpoints())
    before.logs.unlock()
    after = Managed(disk)
    assert after.logs.checkpointed_high_watermark(PARTITION) == 7
    asyncio.run(after.logs.truncate(PARTITION, 5))
    assert after.logs.checkpointed_high_watermark(PARTITION) == 5
    after.log().delete_records_before(5)
    assert after.logs.checkpointed_high_watermark(PARTITION) == 5
    asyncio.run(after.logs.truncate_fully_and_start_at(PARTITION, 100))
    assert after.logs.checkpointed_high_watermark(PARTITION) == 100
    assert after.log().recovery_point == 100


def test_a_log_that_is_deleted_while_it_waits_to_be_cut_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    managed = Managed()
    log = managed.log()
    fill(log, 10)
    asyncio.run(log.flush())
    write = managed.logs.write_checkpoints

    async def deleted_meanwhile() -> None:
        await write()
        if not log.is_closed:
            managed.logs.delete(PARTITION)

    monkeypatch.setattr(managed.logs, "write_checkpoints", deleted_meanwhile)
    with pytest.raises(LogClosed):
        asyncio.run(managed.logs.truncate(PARTITION, 5))
    assert log.next_offset == 10


def test_a_batch_is_cut_off_whole() -> None:
    """Or what comes next would leave a gap, which recovery takes for a loss."""
    kit = LogKit()
    log = kit.open()
    fill(log, 3, records=10)
    log.truncate_to(25)
    assert (log.next_offset, offsets_in(log.read(0, 1 << 20, upto=99))) == (20, [(0, 9), (10, 19)])
    log.append_as_follower(batch(b"x", base_offset=20, leader_epoch=1))
    reopened = kit.open(clean=False)
    assert reopened.next_offset == 21


def test_records_of_an_epoch_that_cannot_be_are_found() -> None:
    """No CRC covers it."""
    log = epochs_of((2, 0), (4, 10), (181, 25), records=40)
    assert [log.start_of_later_epochs(epoch) for epoch in (1, 3, 4, 200)] == [0, 10, 25, None]


def test_reads_go_on_beside_truncation() -> None:
    log = LogKit(segment_bytes=1000).open()
    fill(log, 30)
    log.read(29, 1, upto=30)
    log.truncate_to(13)
    assert offsets_in(log.read(12, 1 << 20, upto=99)) == [(12, 12)]
    assert log.read(13, 1 << 20, upto=99) == b""
    with pytest.raises(OffsetOutOfRange):
        log.read(14, 1, upto=99)
    log.append(memoryview(batch(b"new")), leader_epoch=5)
    assert offsets_in(log.read(13, 1 << 20, upto=99)) == [(13, 13)]


def test_what_waits_to_be_sent_outlives_truncation(tmp_path: Path) -> None:
    """On a real disk, where large reads are mapped."""
    log = LogKit(PosixDisk(), f"{tmp_path}/orders-3").open()
    fill(log, 30, size=10_000)
    waiting = [log.read(offset, 1 << 20, upto=30) for offset in (0, 15, 20)]
    assert all(isinstance(each, memoryview) for each in waiting)
    before = [bytes(each) for each in waiting]
    log.truncate_to(17)
    fill(log, 30, size=9_000)
    log.truncate_to(3)
    assert [bytes(each) for each in waiting] == before
    assert log.next_offset == 3
    log.truncate_fully_and_start_at(0)
    assert [bytes(each) for each in waiting] == before
    log.release()
