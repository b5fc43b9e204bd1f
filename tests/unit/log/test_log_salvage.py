"""Behind damage the next whole batch is found, at whatever byte it begins."""

from __future__ import annotations

import random

import pytest
from log_kit import LogKit, batch, fill, offsets_in

from ottla.log.log import PartitionLog
from ottla.log.salvage import find_whole_batch
from ottla.records.batch import iter_headers

FIRST = "00000000000000000000.log"


def first_whole(log: PartitionLog, offset: int) -> int:
    *waits, found = find_whole_batch(log, offset)
    assert set(waits) <= {None}
    assert found is not None
    return found


@pytest.mark.parametrize("byte", [0, 8, 10, 11, 16, 17, 21, 26, 60, 61, 150])
def test_the_batch_after_a_damaged_one_is_found_and_read(byte: int) -> None:
    kit = LogKit()
    log = kit.open()
    fill(log, 200)
    log.close()
    positions = [at for at, _ in iter_headers(kit.content(FIRST))]
    kit.flip(FIRST, positions[20] + byte)
    log = kit.open()
    assert first_whole(log, 20) == 21
    assert offsets_in(log.read(21, 400, upto=log.next_offset))[:2] == [(21, 21), (22, 22)]


def test_the_next_segment_is_looked_at_and_the_end_is_an_answer() -> None:
    kit = LogKit(segment_bytes=2_000)
    log = kit.open()
    fill(log, 40)
    log.close()
    names = sorted(name for name in kit.files() if name.endswith(".log"))
    assert len(names) > 2
    kit.overwrite(FIRST, bytes(len(kit.content(FIRST))))
    log = kit.open()
    assert first_whole(log, 0) == int(names[1].removesuffix(".log"))
    assert first_whole(log, 40) == 40


def test_what_a_good_batch_carries_is_not_taken_for_one() -> None:
    kit = LogKit()
    log = kit.open()
    inner = bytearray(batch(b"planted"))
    inner[:8] = (2).to_bytes(8, "big")
    log.append(memoryview(batch(bytes(inner))), leader_epoch=1)
    fill(log, 200)
    log.close()
    positions = [at for at, _ in iter_headers(kit.content(FIRST))]
    kit.flip(FIRST, positions[1] + 16)
    log = kit.open()
    assert first_whole(log, 1) == 2
    (first, *_) = offsets_in(log.read(2, 400, upto=log.next_offset))
    assert first == (2, 2)
    assert b"planted" not in bytes(log.read(2, 400, upto=log.next_offset))


def test_much_garbage_is_searched_in_steps() -> None:
    kit = LogKit()
    log = kit.open()
    fill(log, 3, size=600_000)
    fill(log, 200)
    log.close()
    content = kit.content(FIRST)
    positions = [at for at, _ in iter_headers(content)]
    noise = random.Random(5).randbytes(positions[3])
    kit.overwrite(FIRST, noise + content[positions[3] :])
    log = kit.open()
    steps = list(find_whole_batch(log, 0))
    assert steps[-1] == 3
    assert len(steps) > 5


def test_a_damaged_first_batch_does_not_keep_a_log_from_opening(caplog: pytest.LogCaptureFixture) -> None:
    kit = LogKit()
    log = kit.open()
    fill(log, 200)
    log.close()
    kit.flip(FIRST, 16)
    log = kit.open()
    assert "its first batch is damaged" in caplog.text
    fill(log, 1)
    assert log.next_offset == 201
    assert first_whole(log, 0) == 1
