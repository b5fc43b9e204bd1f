"""A damaged header of a batch that was on disk before costs that batch, and nothing behind it."""

from __future__ import annotations

import logging
import struct

import pytest
from log_kit import LogKit, batch, fill, offsets_in
from transaction_kit import end, send

from ottla.log.log import PartitionLog
from ottla.records.batch import iter_headers
from ottla.wire.errors import CorruptMessage

FIRST = "00000000000000000000.log"
COUNT, DAMAGED, RECORDS = 60, 5, 3
BEHIND = (DAMAGED + 1) * RECORDS
END = COUNT * RECORDS

FLIPS = {
    "base offset, top bit": (0, 0x80),
    "base offset, far": (3, 0x40),
    "base offset, out of reach": (1, 0x40),
    "base offset, later": (7, 0x40),
    "base offset, earlier": (7, 0x08),
    "length, beyond the file": (8, 0x40),
    "length, negative": (8, 0x80),
    "length, into the next batch": (11, 0x40),
    "length, a little less": (11, 0x04),
    "magic": (16, 0x01),
    "magic, high bit": (16, 0x80),
    "last offset delta, negative": (23, 0x80),
    "last offset delta, far": (23, 0x40),
    "last offset delta, larger": (26, 0x10),
    "last offset delta, smaller": (26, 0x02),
}
every_flip = pytest.mark.parametrize(("byte", "bit"), FLIPS.values(), ids=FLIPS.keys())
every_policy = pytest.mark.parametrize("compact", [False, True], ids=["delete", "compact"])


def damage(kit: LogKit, number: int, byte: int, bit: int) -> bytes:
    data = bytearray(kit.content(FIRST))
    positions = [at for at, _ in iter_headers(bytes(data))]
    data[positions[number] + byte] ^= bit
    kit.overwrite(FIRST, bytes(data))
    return bytes(data)


def check_all_is_read_behind(log: PartitionLog) -> None:
    for offset in (BEHIND, BEHIND + 1, BEHIND + RECORDS, END - 1):
        first, *_ = offsets_in(log.read(offset, 400, upto=log.next_offset))
        assert first[0] <= offset <= first[1]
    expected = [(offset, offset + RECORDS - 1) for offset in range(BEHIND, END, RECORDS)]
    assert offsets_in(log.read(BEHIND, 1 << 20, upto=END)) == expected


@every_policy
@every_flip
def test_after_an_unclean_stop(byte: int, bit: int, compact: bool, caplog: pytest.LogCaptureFixture) -> None:
    kit = LogKit(cleanup_compact=compact)
    fill(kit.open(), COUNT, records=RECORDS)
    damaged = damage(kit, DAMAGED, byte, bit)
    with caplog.at_level(logging.INFO):
        log = kit.open(clean=False, recovery_point=END)
    assert kit.content(FIRST) == damaged
    assert log.next_offset == END
    assert "1 damaged batches kept, 0 bytes truncated" in caplog.text
    check_all_is_read_behind(log)
    fill(log, 1, records=RECORDS)
    assert offsets_in(log.read(END, 400, upto=log.next_offset)) == [(END, END + RECORDS - 1)]
    log.close()
    reopened = kit.open()
    assert reopened.next_offset == END + RECORDS
    check_all_is_read_behind(reopened)


@every_policy
@every_flip
def test_after_a_clean_stop(byte: int, bit: int, compact: bool) -> None:
    """Few small batches: all of them are behind the last entry of the index."""
    kit = LogKit(cleanup_compact=compact, index_interval_bytes=1 << 20)
    log = kit.open()
    fill(log, COUNT, records=RECORDS)
    log.close()
    damaged = damage(kit, DAMAGED, byte, bit)
    log = kit.open(recovery_point=END)
    assert kit.content(FIRST) == damaged
    assert log.next_offset == END
    check_all_is_read_behind(log)


@pytest.mark.parametrize(("byte", "bit"), [(8, 0x40), (16, 1), (1, 0x40)])
def test_it_is_said_with_place_and_remedy(byte: int, bit: int, caplog: pytest.LogCaptureFixture) -> None:
    kit = LogKit()
    fill(kit.open(), COUNT, records=RECORDS)
    size = len(kit.content(FIRST)) // COUNT
    damage(kit, DAMAGED, byte, bit)
    kit.open(clean=False, recovery_point=END)
    (said,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert f"{FIRST}: bytes {DAMAGED * size} to {(DAMAGED + 1) * size - 1} are damaged" in said
    assert f"Offsets {DAMAGED * RECORDS} to {BEHIND - 1} of orders-3" in said
    assert f"kafka-delete-records with offset {BEHIND}" in said


def test_a_reader_at_the_damage_is_told() -> None:
    kit = LogKit()
    fill(kit.open(), COUNT, records=RECORDS)
    damage(kit, DAMAGED, 16, 1)
    log = kit.open(clean=False, recovery_point=END)
    with pytest.raises(CorruptMessage):
        log.read(DAMAGED * RECORDS, 400, upto=END)


def test_a_torn_end_behind_the_damage_is_still_cut() -> None:
    kit = LogKit()
    fill(kit.open(), COUNT, records=RECORDS)
    whole = damage(kit, DAMAGED, 8, 0x40)
    kit.overwrite(FIRST, whole + batch(bytes(100))[:-7])
    log = kit.open(clean=False, recovery_point=END)
    assert (log.next_offset, kit.content(FIRST)) == (END, whole)


def test_what_the_damaged_batch_carries_is_not_taken_for_the_next() -> None:
    kit = LogKit()
    log = kit.open()
    fill(log, 2)
    planted = bytearray(batch(b"planted"))
    struct.pack_into(">q", planted, 0, 40)
    log.append(memoryview(batch(b"x" + bytes(planted) + b"y")), leader_epoch=1)
    fill(log, 20)
    damage(kit, 2, 8, 0x40)
    log = kit.open(clean=False, recovery_point=23)
    assert log.next_offset == 23
    assert offsets_in(log.read(3, 1 << 20, upto=23)) == [(offset, offset) for offset in range(3, 23)]


def test_an_index_made_again_leads_past_the_damage() -> None:
    kit = LogKit(segment_bytes=8_000)
    log = kit.open()
    fill(log, COUNT, records=1)
    log.close()
    damage(kit, DAMAGED, 8, 0x40)
    kit.disk.remove(f"{kit.directory}/{FIRST.replace('.log', '.index')}")
    log = kit.open()
    assert offsets_in(log.read(DAMAGED + 1, 400, upto=COUNT))[0] == (DAMAGED + 1, DAMAGED + 1)


def test_transactions_aborted_behind_the_damage_stay_aborted() -> None:
    kit = LogKit()
    log = kit.open()
    fill(log, 10)
    send(log, 0, transactional=True)
    end(log, committed=False)
    send(log, 1, transactional=True)
    damage(kit, DAMAGED, 8, 0x40)
    log = kit.open(clean=False, recovery_point=log.next_offset)
    assert [(found.first_offset, found.last_offset) for found in log.segments[0].transactions.entries] == [
        (10, 11)
    ]
    assert log.producers.first_unstable_offset == 12
