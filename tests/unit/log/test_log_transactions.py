"""Transactions as a log sees them: what is aborted, what is stable, which markers and records are refused."""

from __future__ import annotations

import asyncio
import errno
import struct

import pytest
from log_kit import DIR, NOW_MS, LogKit, batch, fill, refused
from transaction_kit import end, read_all_committed, read_committed, send, stable_offset

from ottla.config import BrokerConfig
from ottla.log.log import PartitionLog
from ottla.log.pending_verification import EXEMPT, ONGOING
from ottla.log.scrubber import Scrubber
from ottla.sim.disk import SimDisk
from ottla.wire.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    StorageError,
    TransactionalIdAuthorizationFailed,
    TransactionCoordinatorFenced,
)

ENTRY = struct.Struct(">hqqqq")
EPOCH_MAX = 2**15 - 1
FIRST = "00000000000000000000.txnindex"


def transact(log: PartitionLog, producer_id: int, *, committed: bool, batches: int = 1) -> None:
    known = log.producers.active.get(producer_id)
    for sequence in range(batches):
        following = known.next_sequence if known is not None else sequence
        send(log, following, producer_id=producer_id, transactional=True)
        known = log.producers.active[producer_id]
    end(log, producer_id=producer_id, committed=committed)


def interleaved(log: PartitionLog) -> None:
    """Producer 1 aborts 0 and 2 at 4, 2 commits 1 and 3 at 6; 5 is in no transaction; 3 aborts 7 at 8."""
    send(log, 0, producer_id=1, transactional=True)
    send(log, 0, producer_id=2, transactional=True)
    send(log, 1, producer_id=1, transactional=True)
    send(log, 1, producer_id=2, transactional=True)
    end(log, producer_id=1, committed=False)
    send(log, 0, producer_id=9)
    end(log, producer_id=2)
    transact(log, 3, committed=False)


# The index of aborted transactions.


def test_the_index_has_apache_kafkas_layout() -> None:
    kit = LogKit()
    log = kit.open()
    interleaved(log)
    # Producer 2 was still in its transaction when that of 1 was aborted, so nothing above 1 was stable.
    assert kit.content(FIRST) == ENTRY.pack(0, 1, 0, 4, 1) + ENTRY.pack(0, 3, 7, 8, 9)
    assert ENTRY.size == 34


def test_without_an_aborted_transaction_there_is_no_index_file() -> None:
    kit = LogKit()
    log = kit.open()
    transact(log, 1, committed=True)
    # Nor for a marker that ends nothing.
    end(log, producer_id=2, committed=False)
    log.close()
    assert not [name for name in kit.files() if name.endswith(".txnindex")]


def test_aborted_transactions_are_found_where_they_overlap() -> None:
    log = LogKit().open()
    interleaved(log)
    assert log.aborted_transactions(0, 9) == [(1, 0), (3, 7)]
    assert log.aborted_transactions(4, 5) == [(1, 0)]
    assert log.aborted_transactions(5, 7) == []
    assert log.aborted_transactions(5, 8) == [(3, 7)]
    # Data below the last stable offset of an entry cannot be of any later one.
    assert log.aborted_transactions(0, 1) == [(1, 0)]


def test_a_transaction_that_ended_later_is_not_missed() -> None:
    log = LogKit().open()
    send(log, 0, producer_id=1, transactional=True)
    transact(log, 2, committed=False)
    end(log, producer_id=1, committed=False)
    assert log.aborted_transactions(0, 1) == [(1, 0)]
    assert log.aborted_transactions(0, 2) == [(2, 1), (1, 0)]


def test_aborted_transactions_are_found_from_segments_before_their_marker() -> None:
    kit = LogKit()
    log = kit.open()
    send(log, 0, producer_id=1, transactional=True)
    for _ in range(3):
        log.roll()
        fill(log, 2)
    end(log, producer_id=1, committed=False)
    assert kit.content("00000000000000000005.txnindex") == ENTRY.pack(0, 1, 0, 7, 8)
    assert [log.aborted_transactions(offset, offset + 1) for offset in (0, 4, 7)] == [[(1, 0)]] * 3
    assert [offset for offset, _ in read_all_committed(log)] == [1, 2, 3, 4, 5, 6]


def test_only_what_was_read_is_looked_at() -> None:
    kit = LogKit(index_interval_bytes=200)
    log = kit.open()
    for producer_id in range(50):
        transact(log, producer_id, committed=producer_id % 2 == 0)
    data = log.read(10, 400, upto=100)
    expected = [(producer_id, 2 * producer_id) for producer_id in range(5, 50, 2)]
    assert log.aborted_in(10, data) == expected[: len(log.aborted_in(10, data))]
    assert 1 <= len(log.aborted_in(10, data)) <= 3
    assert log.aborted_in(10, b"") == []
    assert [offset for offset, _ in read_all_committed(log, max_bytes=300)] == list(range(0, 100, 4))


@pytest.mark.parametrize("clean", [True, False])
def test_the_index_survives_a_restart(clean: bool) -> None:
    kit = LogKit(segment_bytes=300)
    log = kit.open()
    interleaved(log)
    transact(log, 4, committed=False, batches=5)
    before = {name: kit.content(name) for name in kit.files() if name.endswith(".txnindex")}
    assert len(before) > 1
    found = [log.aborted_transactions(offset, 99) for offset in range(log.next_offset)]
    committed = read_all_committed(log)
    if clean:
        log.close()
    reopened = kit.open(clean=clean)
    assert {name: kit.content(name) for name in kit.files() if name.endswith(".txnindex")} == before
    assert [reopened.aborted_transactions(offset, 99) for offset in range(log.next_offset)] == found
    assert read_all_committed(reopened) == committed
    # And goes on.
    transact(reopened, 5, committed=False)
    assert reopened.aborted_transactions(reopened.next_offset - 2, 99) == [(5, reopened.next_offset - 2)]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-3],
        lambda data: data + b"\0" * 34,
        lambda data: b"\0\1" + data[2:],
        lambda data: data[34:] + data[:34],
    ],
)
def test_a_damaged_index_is_made_again(damage: object) -> None:
    kit = LogKit(segment_bytes=1000)
    log = kit.open()
    send(log, 0, producer_id=8, transactional=True)
    fill(log, 8)
    interleaved(log)
    end(log, producer_id=8, committed=False)
    name = [name for name in kit.files() if name.endswith(".txnindex")][-1]
    before = kit.content(name)
    assert len(before) >= 68
    log.close()
    kit.overwrite(name, damage(before))  # type: ignore[operator]
    reopened = kit.open()
    assert kit.content(name) == before
    assert reopened.aborted_transactions(0, 99) == [(1, 9), (3, 16), (8, 0)]


@pytest.mark.parametrize("position", [*range(0, 68, 3), 9, 16, 25, 33])
def test_an_index_that_the_log_does_not_confirm_is_made_again(position: int) -> None:
    """It has no checksum: what cannot be true is found by what the log has at the offsets it names."""
    kit = LogKit()
    log = kit.open()
    interleaved(log)
    send(log, 0, producer_id=4, transactional=True)
    fill(log, 1)
    committed = read_all_committed(log)
    before = kit.content(FIRST)
    assert len(before) == 68
    log.close()
    for bit in range(8):
        damaged = bytearray(before)
        damaged[position] ^= 1 << bit
        kit.overwrite(FIRST, bytes(damaged))
        reopened = kit.open()
        assert read_all_committed(reopened) == committed
        # A last stable offset that is too low makes readers look at more entries than they need, no more.
        assert kit.content(FIRST) == before or position % ENTRY.size >= 26
        reopened.release()


def test_the_scrubber_makes_an_index_again_that_rotted_while_the_broker_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kit = LogKit()
    log = kit.open()
    send(log, 0, producer_id=8, transactional=True)
    log.roll()
    interleaved(log)
    end(log, producer_id=8, committed=False)
    log.roll()
    fill(log, 1)
    name = f"{1:020d}.txnindex"
    before, committed = kit.content(name), read_all_committed(log)
    config = BrokerConfig.from_properties({"node.id": "1", "log.dirs": "/data"})
    # Producer 1 wrote at 1 and 3: that its transaction began with 3 only the whole segment disproves.
    later = before[:17] + b"\3" + before[18:]
    assert ENTRY.unpack_from(later)[1:3] == (1, 3)
    for damage in (later, before[:40], before[34:], before[:20] + b"\1" + before[21:], b""):
        kit.overwrite(name, damage)
        scrubber = Scrubber(kit.runtime, lambda: config, lambda: {"/data": [log]}, refused)
        asyncio.run(scrubber.scrub("/data"))
        assert kit.content(name) == before
        for segment in log.segments:
            segment.release()
        assert read_all_committed(log) == committed
    assert len([found for found in caplog.messages if f"{name} did not say" in found]) == 5
    caplog.clear()
    asyncio.run(Scrubber(kit.runtime, lambda: config, lambda: {"/data": [log]}, refused).scrub("/data"))
    assert not caplog.messages


def test_recovery_drops_entries_of_markers_that_were_lost() -> None:
    kit = LogKit()
    log = kit.open()
    interleaved(log)
    name = "00000000000000000000.log"
    kit.overwrite(name, kit.content(name)[:-10])
    reopened = kit.open(clean=False)
    assert kit.content(FIRST) == ENTRY.pack(0, 1, 0, 4, 1)
    assert stable_offset(reopened) == 7
    assert reopened.producers.active[3].transaction_first_offset == 7


def test_truncation_reopens_transactions() -> None:
    kit = LogKit()
    log = kit.open()
    interleaved(log)
    log.truncate_to(8)
    assert kit.content(FIRST) == ENTRY.pack(0, 1, 0, 4, 1)
    assert (log.aborted_transactions(0, 99), stable_offset(log)) == ([(1, 0)], 7)
    log.truncate_to(3)
    assert (log.aborted_transactions(0, 99), stable_offset(log)) == ([], 0)
    assert kit.content(FIRST) == b""
    end(log, producer_id=1, committed=False)
    assert kit.content(FIRST) == ENTRY.pack(0, 1, 0, 3, 1)


def test_the_index_goes_with_its_segment() -> None:
    kit = LogKit(retention_ms=1000)
    log = kit.open()
    transact(log, 1, committed=False)
    log.roll()
    transact(log, 2, committed=False)
    kit.clock.ms += 10_000
    log.roll()
    fill(log, 1)
    log.delete_records_before(2)
    assert log.enforce_retention(NOW_MS) == 1
    assert FIRST not in kit.files()
    assert FIRST + ".deleted" in kit.files()
    assert log.aborted_transactions(0, 99) == [(2, 2)]


def test_records_stay_hidden_while_their_abort_cannot_be_indexed() -> None:
    disk = SimDisk()
    log = LogKit(disk).open()
    send(log, 0, producer_id=1, transactional=True)
    fill(log, 1)
    disk.fail("append", errno.ENOSPC, path=f"{DIR}/{FIRST}")
    with pytest.raises(StorageError):
        end(log, producer_id=1, committed=False)
    assert (stable_offset(log), read_all_committed(log)) == (0, [])
    end(log, producer_id=1, committed=False)
    assert stable_offset(log) == log.next_offset == 4
    assert [offset for offset, _ in read_all_committed(log)] == [1]


# The last stable offset.


def test_the_earliest_open_transaction_decides_what_is_stable() -> None:
    log = LogKit().open()
    stable = []
    send(log, 0, producer_id=1, transactional=True)
    send(log, 0, producer_id=2, transactional=True)
    send(log, 0, producer_id=3, transactional=True)
    for producer_id in (2, 1, 3):
        stable.append(stable_offset(log))
        end(log, producer_id=producer_id, committed=producer_id != 3)
    assert [*stable, stable_offset(log)] == [0, 0, 2, 6]
    assert [offset for offset, _ in read_all_committed(log)] == [0, 1]


def test_a_consumer_in_the_middle_of_a_transaction_is_told_of_it() -> None:
    log = LogKit().open()
    send(log, 0, 3, producer_id=1, transactional=True)
    send(log, 3, 3, producer_id=1, transactional=True)
    end(log, producer_id=1, committed=False)
    fill(log, 1)
    assert log.aborted_transactions(4, 7) == [(1, 0)]
    assert [offset for offset, _ in read_committed(log, 4)] == [7]


@pytest.mark.parametrize("clean", [True, False])
def test_an_open_transaction_survives_a_restart(clean: bool) -> None:
    kit = LogKit(segment_bytes=300)
    log = kit.open()
    send(log, 0, producer_id=2, transactional=True)
    fill(log, 5)
    send(log, 0, producer_id=1, transactional=True)
    if clean:
        log.close()
    log = kit.open(clean=clean)
    assert stable_offset(log) == 0
    assert send(log, 0, producer_id=1, transactional=True).duplicate
    end(log, producer_id=2)
    assert stable_offset(log) == 6
    end(log, producer_id=1, committed=False)
    assert stable_offset(log) == log.next_offset
    assert log.aborted_transactions(0, 99) == [(1, 6)]


# Markers.


def test_a_marker_of_an_older_epoch_is_refused() -> None:
    log = LogKit().open()
    send(log, 0, epoch=4, transactional=True)
    for version in (0, 1, 2):
        with pytest.raises(InvalidProducerEpoch, match="epoch 3, which was replaced by 4"):
            end(log, epoch=3, version=version)
    assert log.next_offset == 1


def test_a_marker_may_have_the_epoch_of_its_transaction_only_before_version_two() -> None:
    log = LogKit().open()
    send(log, 0, epoch=4, transactional=True)
    with pytest.raises(InvalidProducerEpoch, match="ends an earlier one"):
        end(log, epoch=4, version=2)
    assert stable_offset(log) == 0
    end(log, epoch=4, version=1)
    send(log, 1, epoch=4, transactional=True)
    end(log, epoch=5, version=2)
    assert stable_offset(log) == log.next_offset == 4


def test_a_marker_may_be_written_again() -> None:
    log = LogKit().open()
    send(log, 0, epoch=4, transactional=True)
    end(log, epoch=5, version=2, committed=False)
    end(log, epoch=5, version=2, committed=False)
    assert log.aborted_transactions(0, 99) == [(7, 0)]
    send(log, 0, epoch=5, transactional=True)
    with pytest.raises(InvalidProducerEpoch):
        end(log, epoch=5, version=2, committed=False)


def test_a_transaction_with_the_largest_epoch_can_be_ended() -> None:
    log = LogKit().open()
    send(log, 0, epoch=EPOCH_MAX, transactional=True)
    end(log, epoch=EPOCH_MAX, version=2)
    assert stable_offset(log) == 2


def test_a_coordinator_that_was_replaced_is_fenced() -> None:
    log = LogKit().open()
    send(log, 0, transactional=True)
    end(log, coordinator_epoch=5)
    send(log, 1, transactional=True)
    with pytest.raises(TransactionCoordinatorFenced, match=r"epoch 4 .* epoch 5"):
        end(log, coordinator_epoch=4)
    assert stable_offset(log) == 2
    end(log, coordinator_epoch=5)
    assert stable_offset(log) == 4


def test_a_marker_makes_an_unknown_producer_known() -> None:
    log = LogKit().open()
    end(log, epoch=3, coordinator_epoch=9)
    producer = log.producers.active[7]
    assert (producer.epoch, producer.coordinator_epoch, producer.last_sequence) == (3, 9, -1)
    with pytest.raises(OutOfOrderSequence, match="expected 0"):
        send(log, 5, epoch=3, transactional=True)


# Records of transactions.


def transactional_batch(sequence: int = 0, epoch: int = 0) -> memoryview:
    return memoryview(
        batch(b"v", producer_id=7, producer_epoch=epoch, base_sequence=sequence, transactional=True)
    )


def test_a_transaction_needs_a_transactional_id() -> None:
    log = LogKit().open()
    send(log, 0, transactional=True)
    with pytest.raises(TransactionalIdAuthorizationFailed, match="names no transactional id"):
        log.append(transactional_batch(1), leader_epoch=0)
    log.append(transactional_batch(1), leader_epoch=0, transaction=ONGOING)


def test_records_that_nobody_verified_begin_no_transaction() -> None:
    log = LogKit().open()
    with pytest.raises(InvalidTxnState, match="abort it and begin anew"):
        log.append(transactional_batch(), leader_epoch=0, transaction=ONGOING)
    log.append(transactional_batch(), leader_epoch=0, transaction=EXEMPT)
    # From then on the transaction is known.
    log.append(transactional_batch(1), leader_epoch=0, transaction=ONGOING)
    # But not as one of another epoch, which may be another transaction.
    with pytest.raises(InvalidTxnState):
        log.append(transactional_batch(0, epoch=1), leader_epoch=0, transaction=ONGOING)


def test_a_marker_makes_an_answer_of_the_coordinator_stale() -> None:
    log = LogKit().open()
    states = log.producers
    asked = states.begin_verification(7, 0, 0, NOW_MS, implicit_add=False)
    assert asked is not None
    assert states.begin_verification(7, 1, 0, NOW_MS, implicit_add=False) is asked
    end(log, committed=False)
    with pytest.raises(InvalidTxnState):
        log.append(transactional_batch(), leader_epoch=0, transaction=asked)
    again = states.begin_verification(7, 0, 0, NOW_MS, implicit_add=False)
    assert again is not asked
    log.append(transactional_batch(), leader_epoch=0, transaction=again)
    assert states.begin_verification(7, 1, 0, NOW_MS, implicit_add=False) is None
    assert not states.verifying


def test_the_marker_of_the_transaction_before_leaves_the_answer_for_the_next() -> None:
    log = LogKit().open()
    send(log, 0, transactional=True)
    asked = log.producers.begin_verification(7, 0, 1, NOW_MS, implicit_add=True)
    end(log, epoch=1, version=2)
    log.append(transactional_batch(0, epoch=1), leader_epoch=0, transaction=asked)
    assert stable_offset(log) == 2


def test_verification_is_refused_to_old_epochs() -> None:
    log = LogKit().open()
    end(log, epoch=2)
    with pytest.raises(InvalidProducerEpoch):
        log.producers.begin_verification(7, 0, 1, NOW_MS, implicit_add=True)
    with pytest.raises(InvalidProducerEpoch):
        log.append(transactional_batch(0, epoch=1), leader_epoch=0, transaction=ONGOING)


def test_later_records_do_not_pass_those_that_wait_for_the_coordinator() -> None:
    log = LogKit().open()
    states = log.producers
    states.begin_verification(7, 5, 0, NOW_MS, implicit_add=False)
    asked = states.begin_verification(7, 6, 0, NOW_MS, implicit_add=False)
    with pytest.raises(OutOfOrderSequence, match="5 has to come first"):
        log.append(transactional_batch(6), leader_epoch=0, transaction=asked)
    log.append(transactional_batch(5), leader_epoch=0, transaction=asked)
    # A new epoch counts anew.
    states.begin_verification(7, 3, 1, NOW_MS, implicit_add=False)
    states.begin_verification(7, 0, 2, NOW_MS, implicit_add=False)
    assert states.verifying[7].lowest_sequence == 0


def test_a_request_that_comes_again_too_late_does_not_hold_back_the_next() -> None:
    kit = LogKit()
    log = kit.open()
    transact(log, 7, committed=True, batches=2)
    # Sent when another led: what it brings is in the log since, and its transaction over.
    assert log.producers.begin_verification(7, 0, 0, NOW_MS, implicit_add=False) is None
    assert not log.producers.verifying
    assert send(log, 2, transactional=True).base_offset == 3
    # Numbers begin anew after the largest.
    last = 2**31 - 1
    log.producers.active[7].next_sequence = 0
    end(log)
    assert log.producers.begin_verification(7, last, 0, NOW_MS, implicit_add=False) is None
    assert log.producers.begin_verification(7, 0, 0, NOW_MS, implicit_add=False) is not None


def test_transactions_with_epochs_of_their_own_begin_at_zero() -> None:
    log = LogKit().open()
    asked = log.producers.begin_verification(7, 4, 0, NOW_MS, implicit_add=True)
    with pytest.raises(OutOfOrderSequence, match="0 has to come first"):
        log.append(transactional_batch(4), leader_epoch=0, transaction=asked)


def test_questions_nobody_came_back_for_expire() -> None:
    states = LogKit().open().producers
    states.begin_verification(7, 0, 0, NOW_MS, implicit_add=False)
    states.expire(NOW_MS - 1)
    assert 7 in states.verifying
    states.expire(NOW_MS)
    assert not states.verifying


def test_records_outside_a_transaction_are_refused_while_it_is_open() -> None:
    log = LogKit().open()
    send(log, 0, transactional=True)
    with pytest.raises(InvalidTxnState, match="must write inside it"):
        send(log, 1)
    # What is out of order, or too old, is told first, as in Apache Kafka.
    with pytest.raises(OutOfOrderSequence):
        send(log, 4)
    end(log)
    send(log, 1)
    assert stable_offset(log) == 3


@pytest.mark.parametrize("clean", [True, False])
def test_duplicates_inside_a_transaction_are_known_after_a_restart(clean: bool) -> None:
    kit = LogKit()
    log = kit.open()
    send(log, 0, 2, transactional=True)
    first = send(log, 2, 2, transactional=True)
    if clean:
        log.close()
    log = kit.open(clean=clean)
    again = send(log, 2, 2, transactional=True)
    assert (again.duplicate, again.base_offset) == (True, first.base_offset)
    end(log)
    # The last batch of a transaction that is over is still known.
    assert send(log, 2, 2, transactional=True).duplicate
    assert log.next_offset == 5


def test_a_follower_follows_markers_without_questions() -> None:
    leader, follower = LogKit().open(), LogKit()
    interleaved(leader)
    log = follower.open()
    log.append_as_follower(leader.read(0, 1 << 20, upto=leader.next_offset))
    assert log.aborted_transactions(0, 99) == leader.aborted_transactions(0, 99)
    assert stable_offset(log) == leader.next_offset
    assert read_all_committed(log) == read_all_committed(leader)
