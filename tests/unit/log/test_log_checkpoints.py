from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.checkpoints import (
    encode_partition_metadata,
    read_offsets,
    read_partition_metadata,
    write_offsets,
)
from ottla.log.epochs import LeaderEpochs
from ottla.log.names import deleted_dir_name, offset_in_name, partition_in_name
from ottla.log.types import TopicPartition
from ottla.sim.disk import SimDisk


def test_offset_checkpoints_have_apache_kafkas_format() -> None:
    disk = SimDisk()
    write_offsets(
        disk, "/points", {TopicPartition("b", 1): 7, TopicPartition("a", 10): 3, TopicPartition("a", 2): 0}
    )
    assert disk.read_file("/points") == b"0\n3\na 2 0\na 10 3\nb 1 7\n"
    assert read_offsets(disk, "/points")[TopicPartition("a", 10)] == 3
    assert read_offsets(disk, "/none") == {}


@pytest.mark.parametrize(
    "content", [b"", b"0", b"1\n0\n", b"0\n2\na 1 1\n", b"0\n1\na 1\n", b"0\n1\na x 1\n", b"\xff\n\xfe"]
)
def test_damaged_offset_checkpoints_count_as_empty(content: bytes) -> None:
    disk = SimDisk()
    disk.replace_file("/points", content)
    assert read_offsets(disk, "/points") == {}


def test_partition_metadata_has_apache_kafkas_format() -> None:
    disk = SimDisk()
    topic_id = UUID(bytes=bytes(range(240, 256)))
    data = encode_partition_metadata(topic_id)
    assert data == b"version: 0\ntopic_id: 8PHy8_T19vf4-fr7_P3-_w"
    disk.replace_file("/m", data)
    assert read_partition_metadata(disk, "/m") == topic_id
    for damaged in (b"", b"version: 0\n", data[:-3]):
        disk.replace_file("/m", damaged)
        assert read_partition_metadata(disk, "/m") is None


def test_names() -> None:
    assert offset_in_name("00000000000000000012.log", ".log") == 12
    for other in (
        "12.log",
        "00000000000000000012.index",
        "00000000000000000012.log.deleted",
        "leader-epoch-checkpoint",
    ):
        assert offset_in_name(other, ".log") is None
    assert partition_in_name("my-topic-7") == ("my-topic", 7)
    for other in ("meta.properties", "topic", "-1", "topic-1.abc-delete", "topic-x"):
        assert partition_in_name(other) is None
    name = deleted_dir_name(TopicPartition("t", 3), 10)
    assert name == "t-3.0000000000000000000000000000000a-delete"
    assert len(deleted_dir_name(TopicPartition("x" * 249, 3), 10)) == 255


@given(
    steps=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=20), epoch=st.integers(-1, 30)
)
def test_end_offsets_agree_with_the_epoch_of_each_record(steps: list[tuple[int, int]], epoch: int) -> None:
    epochs, written, current = LeaderEpochs(), [], 0
    for raised, count in steps:
        current += raised
        epochs.assign(current, len(written))
        written += [current] * count
    for offset, at in enumerate(written):
        assert epochs.epoch_at(offset) == at
    found, end = epochs.end_offset_for(epoch, len(written))
    if not written or epoch < 0 or epoch > max(written):
        assert (found, end) == (-1, -1)
    else:
        below = [at for at in written if at <= epoch]
        assert end == len(below)
        assert found == (below[-1] if below else epoch)


def test_conflicting_epochs_are_replaced() -> None:
    epochs = LeaderEpochs()
    for epoch, start in ((1, 0), (3, 10), (5, 20)):
        epochs.assign(epoch, start)
    epochs.assign(5, 25)
    assert epochs.entries == [(1, 0), (3, 10), (5, 20)]
    epochs.assign(6, 15)
    assert epochs.entries == [(1, 0), (3, 10), (6, 15)]
    epochs.assign(2, 12)
    assert epochs.entries == [(1, 0), (2, 12)]
    epochs.truncate_from_end(12)
    assert (epochs.entries, epochs.latest) == ([(1, 0)], 1)
    epochs.assign(-1, 30)
    assert epochs.latest == 1
