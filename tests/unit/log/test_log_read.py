from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_kit import DIR, LogKit, batch, fill, offsets_in, read_all

from ottla.log.segment import ENDS_MAX
from ottla.wire.errors import CorruptMessage, OffsetOutOfRange


def test_offsets_outside_the_log_are_refused() -> None:
    log = LogKit().open(start_offset=5)
    fill(log, 3)
    assert log.read(8, 100, upto=8) == b""
    for offset in (4, 9):
        with pytest.raises(OffsetOutOfRange, match=f"has offsets 5 to 8, not {offset}"):
            log.read(offset, 100, upto=8)


def test_reading_from_inside_a_batch_gives_the_whole_batch() -> None:
    log = LogKit().open()
    fill(log, 3, records=4)
    assert offsets_in(log.read(6, 1 << 20, upto=12)) == [(4, 7), (8, 11)]


def test_the_first_batch_comes_whole_or_not_at_all() -> None:
    log = LogKit().open()
    fill(log, 3, size=500)
    assert offsets_in(log.read(1, 10, upto=3)) == [(1, 1)]
    assert log.read(1, 10, upto=3, min_one=False) == b""
    assert offsets_in(log.read(1, 0, upto=3)) == [(1, 1)]


def test_nothing_at_or_above_the_limit_is_shown() -> None:
    log = LogKit().open()
    fill(log, 10, records=3)
    assert offsets_in(log.read(0, 1 << 20, upto=9)) == [(0, 2), (3, 5), (6, 8)]
    # Inside a batch: it has offsets that may not be seen.
    assert offsets_in(log.read(0, 1 << 20, upto=8)) == [(0, 2), (3, 5)]
    assert log.read(6, 1 << 20, upto=8) == b""
    assert log.read(9, 1 << 20, upto=9) == b""
    assert len(offsets_in(log.read(0, 1 << 20, upto=10**9))) == 10


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 900)), min_size=1, max_size=60),
    segment_bytes=st.sampled_from([4000, 20_000, 1 << 30]),
    interval=st.sampled_from([0, 500, 4096]),
    reads=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 12_000), st.floats(0, 1)), max_size=30),
)
def test_reads_return_what_a_plain_list_would(
    sizes: list[tuple[int, int]],
    segment_bytes: int,
    interval: int,
    reads: list[tuple[float, int, float]],
) -> None:
    """Against a model: the batches as a list, cut by offset, limit and size."""
    kit = LogKit(segment_bytes=segment_bytes, index_interval_bytes=interval)
    log = kit.open()
    model: list[tuple[int, int, int]] = []
    for count, size in sizes:
        base = log.next_offset
        before = log.size_bytes
        fill(log, 1, size=size, records=count)
        model.append((base, log.next_offset - 1, log.size_bytes - before))
    if len(sizes) % 2:
        log.close()
        log = kit.open()
    bases = [segment.base_offset for segment in log.segments]
    end = log.next_offset
    for start, max_bytes, limit in reads:
        offset = min(int(start * end), end - 1)
        upto = min(offset + int(limit * (end - offset)) + 1, end)
        got = offsets_in(log.read(offset, max_bytes, upto=upto))
        readable = [entry for entry in model if entry[1] >= offset and entry[1] < upto]
        # A batch that reaches beyond the limit ends what can be read.
        if not readable or readable[0][0] > offset:
            assert got == []
            continue
        segment_end = min([base for base in bases if base > readable[0][0]], default=end)
        expected = [entry for entry in readable if entry[0] < segment_end]
        assert got == [entry[:2] for entry in expected[: len(got)]]
        total = sum(entry[2] for entry in expected[: len(got)])
        assert len(got) == 1 or total <= max_bytes
        if sum(entry[2] for entry in expected) <= max_bytes:
            assert len(got) == len(expected)
        elif len(got) < len(expected):
            # Cut at an index entry: at most one interval and one batch short.
            following = expected[len(got)][2]
            assert total + following + interval + 4000 > max_bytes
    assert read_all(log, max_bytes=3000) == [entry[:2] for entry in model]


def test_sequential_readers_need_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = LogKit(segment_bytes=50_000)
    log = kit.open()
    fill(log, 1000)
    searches: list[int] = []
    from ottla.log.segment import Segment

    locate = Segment.locate

    def counting(self: Segment, offset: int, wait: bool = True) -> int:
        searches.append(offset)
        return locate(self, offset, wait)

    monkeypatch.setattr(Segment, "locate", counting)
    assert len(read_all(log, max_bytes=10_000)) == 1000
    # Once where each segment begins.
    assert len(searches) == len(log.segments)
    searches.clear()
    offset = log.next_offset
    log.read(offset - 1, 1000, upto=offset)
    for _ in range(50):
        fill(log, 1)
        assert offsets_in(log.read(offset, 1000, upto=log.next_offset)) == [(offset, offset)]
        offset += 1
    assert len(searches) <= 2


def test_remembered_places_are_bounded() -> None:
    log = LogKit().open()
    fill(log, 500)
    for offset in range(400):
        log.read(offset, 1, upto=500)
    assert len(log.segments.active._ends) <= ENDS_MAX


def test_gaps_left_by_compaction_are_stepped_over() -> None:
    log = LogKit().open()
    for base in (0, 10, 20):
        log.append_as_follower(batch(b"x", base_offset=base))
    log.roll(40)
    log.append_as_follower(batch(b"y", base_offset=50))
    assert offsets_in(log.read(5, 1 << 20, upto=51)) == [(10, 10), (20, 20)]
    assert offsets_in(log.read(11, 1 << 20, upto=51)) == [(20, 20)]
    assert offsets_in(log.read(21, 1 << 20, upto=51)) == [(50, 50)]
    assert offsets_in(log.read(45, 1 << 20, upto=51)) == [(50, 50)]
    assert log.read(21, 1 << 20, upto=45) == b""


def test_an_insane_header_is_named_and_the_rest_stays_readable() -> None:
    kit = LogKit(index_interval_bytes=200)
    log = kit.open()
    fill(log, 100)
    log.close()
    size = len(batch(bytes(100)))
    kit.flip("00000000000000000000.log", 50 * size + 16)
    log = kit.open()
    with pytest.raises(CorruptMessage) as caught:
        log.read(50, 1, upto=100)
    for part in (
        "orders",
        "partition 3",
        "offset 50",
        f"{DIR}/00000000000000000000.log",
        f"byte {50 * size}",
    ):
        assert part in caught.value.message
    for offset in [*range(50), *range(53, 100)]:
        assert offsets_in(log.read(offset, 1, upto=100))[0] == (offset, offset)


def test_old_segments_are_read_without_keeping_their_files_open() -> None:
    from ottla.log.segment import OpenSegments

    kit = LogKit(segment_bytes=1000)
    log = kit.open()
    fill(log, 100)
    log.files.open_segments = OpenSegments(segments_max=3)
    assert len(read_all(log)) == 100
    open_files = [segment for segment in log.segments if segment._file is not None]
    assert len(open_files) <= 4
    assert log.segments.active in open_files


@pytest.mark.parametrize(
    ("byte", "bit"),
    [(8, 0x40), (8, 0x80), (10, 1), (11, 1), (11, 0x40), (16, 1), (23, 0x80), (3, 0x10)],
)
@pytest.mark.parametrize("max_bytes", [1, 400, 1 << 20])
def test_a_reader_that_comes_to_a_damaged_header_is_told(
    byte: int, bit: int, max_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Sent as it is, it would have consumers ask for ever for the rest of a batch that does not end."""
    kit = LogKit(index_interval_bytes=1000)
    log = kit.open()
    fill(log, 100)
    size = len(batch(bytes(100)))
    name = "00000000000000000000.log"
    # As for a consumer that reads on.
    log.segments.active.remember(50, 50 * size)
    data = bytearray(kit.content(name))
    data[50 * size + byte] ^= bit
    kit.overwrite(name, bytes(data))
    log.segments.active._file = None
    assert not caplog.records
    for _ in range(3):
        with pytest.raises(CorruptMessage, match="offset 50 cannot be reached"):
            log.read(50, max_bytes, upto=100)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert f"byte {50 * size} of {DIR}/{name} is damaged" in said[0]
    assert "restore this file from a replica or seek past the damage" in said[0]
    # Before it and behind it, records are read as before.
    assert offsets_in(log.read(45, size, upto=100)) == [(45, 45)]
    assert offsets_in(log.read(49, size, upto=100)) == [(49, 49)]
    assert offsets_in(log.read(80, size, upto=100)) == [(80, 80)]
