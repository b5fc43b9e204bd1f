from __future__ import annotations

import struct

import pytest
from log_kit import NOW_MS, LogKit, batch, read_all
from transaction_kit import end, send

from ottla.log.log import PartitionLog
from ottla.log.producers import ProducerStates
from ottla.log.snapshots import CorruptSnapshot, decode_producers, encode_producers
from ottla.wire.errors import InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequence

SEQUENCE_MAX = 2**31 - 1


def test_each_of_the_last_five_batches_is_known_when_it_comes_again() -> None:
    log = LogKit().open()
    for index in range(6):
        send(log, index * 2, 2)
    size = log.size_bytes
    for index in range(1, 6):
        assert send(log, index * 2, 2) == (index * 2, index * 2 + 1, -1, 0, True)
    assert log.size_bytes == size
    with pytest.raises(OutOfOrderSequence, match="sent sequence 0 for offset 12, expected 12"):
        send(log, 0, 2)
    assert not send(log, 12).duplicate


def test_gaps_and_overlaps_are_refused() -> None:
    log = LogKit().open()
    send(log, 0, 3)
    for sequence in (1, 2, 4):
        with pytest.raises(OutOfOrderSequence):
            send(log, sequence)
    send(log, 3)
    assert log.next_offset == 4


def test_an_unknown_producer_may_begin_anywhere() -> None:
    log = LogKit().open()
    send(log, 41)
    send(log, 42)


def test_sequences_start_again_after_the_largest() -> None:
    log = LogKit().open()
    send(log, SEQUENCE_MAX - 1, 3)
    assert send(log, SEQUENCE_MAX - 1, 3).duplicate
    send(log, 1)
    with pytest.raises(OutOfOrderSequence):
        send(log, 3)


def test_an_old_epoch_is_fenced_and_a_new_one_begins_at_zero() -> None:
    log = LogKit().open()
    send(log, 0, epoch=1)
    with pytest.raises(InvalidProducerEpoch, match="epoch 0, which was replaced by 1"):
        send(log, 1, epoch=0)
    with pytest.raises(OutOfOrderSequence, match="expected 0"):
        send(log, 1, epoch=2)
    send(log, 0, epoch=2)
    # The same numbers under another epoch are no repetition.
    assert log.next_offset == 2


def test_producers_do_not_disturb_each_other() -> None:
    log = LogKit().open()
    send(log, 0, producer_id=1)
    send(log, 0, producer_id=2)
    send(log, 1, producer_id=1)
    assert send(log, 0, producer_id=2).base_offset == 1
    assert log.next_offset == 3


def test_batches_of_one_request_follow_each_other() -> None:
    log = LogKit().open()
    first = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    second = batch(b"b", producer_id=7, producer_epoch=0, base_sequence=1)
    third = batch(b"c", producer_id=7, producer_epoch=0, base_sequence=3)
    with pytest.raises(OutOfOrderSequence):
        log.append(memoryview(first + second + third), leader_epoch=0)
    assert (log.next_offset, log.producers.active) == (0, {})
    log.append(memoryview(first + second), leader_epoch=0)
    assert log.next_offset == 2


def test_duplicates_carry_the_time_they_were_first_appended_at() -> None:
    kit = LogKit(message_timestamp_type="LogAppendTime")
    log = kit.open()
    send(log, 0)
    kit.clock.ms += 1000
    again = send(log, 0)
    assert (again.duplicate, again.log_append_time_ms) == (True, NOW_MS)


def test_open_transactions_hold_back_the_stable_offset() -> None:
    log = LogKit().open()
    send(log, 0, producer_id=1)
    assert log.producers.first_unstable_offset is None
    send(log, 0, transactional=True)
    send(log, 1, transactional=True)
    assert log.producers.first_unstable_offset == 1
    with pytest.raises(InvalidTxnState, match="producer 7"):
        send(log, 2)
    end(log)
    assert log.producers.first_unstable_offset is None
    assert log.producers.active[7].coordinator_epoch == 3
    # Sequence numbers go on across transactions.
    send(log, 2, transactional=True)
    assert log.producers.first_unstable_offset == 4


def test_a_marker_with_a_new_epoch_fences_the_old_one() -> None:
    log = LogKit().open()
    send(log, 0, transactional=True)
    end(log, epoch=1, committed=False)
    with pytest.raises(InvalidProducerEpoch):
        send(log, 1, transactional=True)
    with pytest.raises(OutOfOrderSequence, match="expected 0"):
        send(log, 1, epoch=1, transactional=True)
    send(log, 0, epoch=1, transactional=True)


def test_idle_producers_are_forgotten_but_not_inside_a_transaction() -> None:
    log = LogKit().open()
    send(log, 0, producer_id=1)
    send(log, 0, producer_id=2, transactional=True)
    log.producers.expire(NOW_MS - 1)
    assert set(log.producers.active) == {1, 2}
    log.producers.expire(NOW_MS)
    assert set(log.producers.active) == {2}


def state(producers: ProducerStates) -> dict[int, tuple[int, ...]]:
    return {
        producer.producer_id: (
            producer.epoch,
            producer.next_sequence,
            producer.last_sequence,
            producer.last_offset,
            producer.last_timestamp,
            producer.coordinator_epoch,
            producer.transaction_first_offset,
        )
        for producer in producers.active.values()
    }


def scenario(log: PartitionLog) -> None:
    send(log, 0, 3, producer_id=1)
    send(log, 5, epoch=2, transactional=True)
    end(log, epoch=2)
    send(log, SEQUENCE_MAX, 2, producer_id=9)
    send(log, 6, epoch=2, transactional=True)


def test_snapshots_survive_encoding() -> None:
    log = LogKit().open()
    scenario(log)
    data = encode_producers(log.producers.active.values())
    decoded = ProducerStates(log.topic_partition)
    decoded.active = {producer.producer_id: producer for producer in decode_producers(data)}
    assert state(decoded) == state(log.producers)


def test_the_snapshot_file_has_apache_kafkas_layout() -> None:
    kit = LogKit()
    log = kit.open()
    send(log, 4, 3, epoch=2)
    log.close()
    data = kit.content("00000000000000000003.snapshot")
    assert data[:2] == struct.pack(">h", 1)
    assert data[6:] == struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 7, 2, 6, 2, 2, NOW_MS + 2, -1, -1)
    from crc32c import crc32c

    assert struct.unpack(">I", data[2:6])[0] == crc32c(data[6:])


@pytest.mark.parametrize(
    "damage", [lambda d: d[:-1], lambda d: b"\0\2" + d[2:], lambda d: d[:8] + b"\1" + d[9:], lambda d: b""]
)
def test_damaged_snapshots_are_noticed(damage: object) -> None:
    log = LogKit().open()
    scenario(log)
    data = encode_producers(log.producers.active.values())
    with pytest.raises(CorruptSnapshot):
        decode_producers(damage(data))  # type: ignore[operator]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("lost", [(), ("00000000000000000008.snapshot",), ("all",)])
def test_state_after_a_restart_is_what_the_log_says(clean: bool, lost: tuple[str, ...]) -> None:
    kit = LogKit()
    log = kit.open()
    scenario(log)
    before = state(log.producers)
    assert log.next_offset == 8
    log.roll()
    send(log, 3, producer_id=1)
    before[1] = state(log.producers)[1]
    if clean:
        log.close()
    for name in kit.files():
        if name.endswith(".snapshot") and (name in lost or lost == ("all",)) and not clean:
            kit.disk.remove(f"{kit.directory}/{name}")
    reopened = kit.open(clean=clean)
    assert state(reopened.producers) == before
    assert send(reopened, 3, producer_id=1).duplicate
    send(reopened, 4, producer_id=1)


def test_a_damaged_snapshot_is_passed_over() -> None:
    kit = LogKit()
    log = kit.open()
    scenario(log)
    before = state(log.producers)
    log.close()
    kit.flip("00000000000000000008.snapshot", 20)
    reopened = kit.open()
    assert state(reopened.producers) == before
    assert "00000000000000000008.snapshot" not in kit.files()


def test_old_snapshots_do_not_pile_up() -> None:
    kit = LogKit(segment_bytes=400)
    for _ in range(5):
        log = kit.open()
        for _ in range(3):
            send(log, log.producers.active[7].next_sequence if 7 in log.producers.active else 0)
        log.close()
    bases = {name.removesuffix(".log") for name in kit.files() if name.endswith(".log")}
    snapshots = {name.removesuffix(".snapshot") for name in kit.files() if name.endswith(".snapshot")}
    assert len(snapshots - bases) <= 2
    assert len(read_all(kit.open())) == 15
