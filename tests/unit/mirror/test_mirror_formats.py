"""Bytes as MirrorMaker 2 writes them, and its rule for offsets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.admin.topics import Partition
from ottla.mirror.formats import (
    Checkpoint,
    Heartbeat,
    OffsetSync,
    SourcePosition,
    Unreadable,
    position_key,
    position_value,
    read_checkpoint,
    read_heartbeat,
    read_offset_sync,
    read_position_key,
    read_position_value,
)
from ottla.mirror.offset_syncs import TOO_OLD, Run, Runs, SyncHistory

PLACE = Partition("orders", 3)


def test_an_offset_sync_has_the_bytes_of_mirrormaker() -> None:
    sync = OffsetSync(PLACE, 258, 7)
    assert sync.key() == b"\x00\x06orders\x00\x00\x00\x03"
    assert sync.value() == bytes.fromhex("00000000000001020000000000000007")
    assert read_offset_sync(sync.key(), sync.value()) == sync


def test_a_checkpoint_has_the_bytes_of_mirrormaker() -> None:
    checkpoint = Checkpoint("team", PLACE, 258, 7, "x")
    assert checkpoint.key() == b"\x00\x04team\x00\x06orders\x00\x00\x00\x03"
    assert checkpoint.value() == bytes.fromhex("000000000000000001020000000000000007000178")
    assert read_checkpoint(checkpoint.key(), checkpoint.value()) == checkpoint


def test_a_heartbeat_has_the_bytes_of_mirrormaker() -> None:
    beat = Heartbeat("a", "b", 258)
    assert (beat.key(), beat.value()) == (b"\x00\x01a\x00\x01b", bytes.fromhex("00000000000000000102"))
    assert read_heartbeat(beat.key(), beat.value()) == beat


def test_a_position_has_the_bytes_that_connect_looks_up() -> None:
    key = position_key("a", PLACE)
    assert key == b'["MirrorSourceConnector",{"cluster":"a","partition":3,"topic":"orders"}]'
    assert read_position_key(key) == ("a", PLACE)
    assert read_position_key(b'["MirrorHeartbeatConnector",{"sourceClusterAlias":"a"}]') is None
    assert position_value(SourcePosition(9)) == b'{"offset":9}'
    assert read_position_value(b'{"offset":9}') == SourcePosition(9)
    assert read_position_value(None) is None
    whole = SourcePosition(9, "an id", 4)
    assert read_position_value(position_value(whole)) == whole


def test_what_is_something_else_is_not_read() -> None:
    for reader in (read_offset_sync, read_checkpoint, read_heartbeat):
        with pytest.raises(Unreadable):
            reader(b"\x00\x09too", b"short")


def sync(upstream: int, downstream: int) -> OffsetSync:
    return OffsetSync(PLACE, upstream, downstream)


def test_an_offset_behind_a_sync_becomes_the_next_one() -> None:
    history = SyncHistory(sync(100, 200))
    assert history.translate(99) == TOO_OLD
    assert history.translate(100) == 200
    assert history.translate(101) == 201
    assert history.translate(5000) == 201


def test_a_source_that_begins_anew_forgets_what_was() -> None:
    history = SyncHistory(sync(100, 200))
    history.add(sync(5, 300))
    assert history.translate(4) == TOO_OLD
    assert history.translate(150) == 301


def test_a_target_that_begins_anew_is_not_gone_into_too_far() -> None:
    history = SyncHistory(sync(0, 0), 1000)
    assert not history.add(sync(100, 100), 2000)
    assert history.add(sync(101, 0), 3000)
    assert history.translate(50) == TOO_OLD
    assert history.translate(101) == 0
    assert not history.add(sync(111, 10), 4000)
    runs = Runs()
    runs.add([Run(0, 0, 101), Run(101, 0, 20)])
    assert runs.translate(50) is None
    assert runs.translate(105) == 4


def test_a_sync_that_comes_late_changes_nothing() -> None:
    """Of a process that has lost its part to another, which has written before it."""
    history = SyncHistory(sync(0, 0), 1000)
    history.add(sync(100, 200), 2000)
    history.add(sync(90, 180), 3000)
    assert history.translate(50) == 1
    assert history.translate(100) == 200
    # Much later, it is a topic that was made anew in both clusters.
    history.add(sync(90, 180), 100_000)
    assert history.translate(50) == TOO_OLD
    assert history.translate(100) == 181


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=200))
def test_old_syncs_grow_sparse_and_never_promise_too_much(steps: list[int]) -> None:
    """Invariants of MirrorMaker's store; a translation never skips a record."""
    upstream, downstream = 0, 0
    history = SyncHistory(sync(0, 0))
    known = {0: 0}
    for step in steps:
        upstream += step
        downstream += step + 1
        history.add(sync(upstream, downstream))
        known[upstream] = downstream
        kept = [each.upstream for each in history._syncs]
        assert kept[0] == upstream
        for i in range(63):
            assert kept[i] <= kept[i + 1] + 2 ** (i + 1) - 2**i
            assert kept[i] == kept[i + 1] or kept[i] >= kept[i + 1] + 2 ** max(i - 2, 0)
    for asked, exact in known.items():
        found = history.translate(asked)
        assert found != TOO_OLD
        assert found <= exact
    assert history.translate(upstream) == downstream


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 50), st.integers(0, 3)), min_size=1, max_size=60))
def test_what_this_process_mirrored_is_translated_exactly(parts: list[tuple[int, int, int]]) -> None:
    runs = Runs()
    upstream = downstream = 10
    exact: dict[int, int] = {}
    for gap, records, markers in parts:
        upstream += gap
        downstream += markers
        runs.add([Run(upstream, downstream, records)])
        exact.update((upstream + number, downstream + number) for number in range(records))
        upstream += records
        downstream += records
    assert {offset: runs.translate(offset) for offset in exact} == exact
    assert runs.translate(upstream) == downstream
    assert runs.translate(upstream + 1000) == downstream
    assert runs.translate(9) is None
