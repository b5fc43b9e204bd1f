"""Snapshot files: image to file to image, the format around it, and damage."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.metadata import snapshot
from ottla.metadata.cluster_records import RegisterControllerRecord
from ottla.metadata.image import MetadataImage, ResourceType
from ottla.metadata.records import (
    ConfigRecord,
    Endpoint,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    SupportedFeature,
    TopicRecord,
)
from ottla.metadata.snapshot import (
    SnapshotDamaged,
    SnapshotId,
    list_snapshots,
    read_snapshot,
    remove_leftovers,
    write_snapshot,
)
from ottla.records.batch import crc_matches, iter_headers
from ottla.sim.disk import SimDisk

DIRECTORY = "/data/__cluster_metadata-0"


def full_image() -> MetadataImage:
    endpoint = Endpoint(name="PLAINTEXT", host="localhost", port=65_535, security_protocol=0)
    feature = SupportedFeature(name="metadata.version", min_supported_version=23, max_supported_version=27)
    records: list[MetadataRecord] = [
        FeatureLevelRecord(name="group.version", feature_level=1),
        FeatureLevelRecord(name="metadata.version", feature_level=27),
        RegisterBrokerRecord(
            broker_id=1,
            incarnation_id=UUID(int=11),
            broker_epoch=5,
            end_points=(endpoint,),
            features=(feature,),
            rack=None,
            fenced=False,
            log_dirs=(UUID(int=200),),
        ),
        RegisterControllerRecord(
            controller_id=1, incarnation_id=UUID(int=12), end_points=(endpoint,), features=(feature,)
        ),
        ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name="a", value="1"),
        ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=3000),
    ]
    for number in range(5):
        topic_id = UUID(int=300 + number)
        records.append(TopicRecord(name=f"topic-{9 - number}", topic_id=topic_id))
        records.append(
            ConfigRecord(
                resource_type=ResourceType.TOPIC, resource_name=f"topic-{number + 5}", name="x", value="y"
            )
        )
        records += [
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=(1,),
                isr=(1,),
                leader=1,
                leader_epoch=index,
                partition_epoch=number,
                directories=(UUID(int=200),),
                last_known_elr=(7,) if index == 2 else None,
            )
            for index in range(number + 1)
        ]
    return MetadataImage().apply_all(records, 41, 6)


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    disk.make_dirs(DIRECTORY)
    return disk


def write(disk: SimDisk, image: MetadataImage) -> SnapshotId:
    return write_snapshot(disk, DIRECTORY, image, last_timestamp_ms=1234, now_ms=5678)


@pytest.mark.parametrize("batch_bytes_max", [1, 200, 1024 * 1024])
def test_an_image_survives(disk: SimDisk, monkeypatch: pytest.MonkeyPatch, batch_bytes_max: int) -> None:
    monkeypatch.setattr(snapshot, "BATCH_BYTES_MAX", batch_bytes_max)
    image = full_image()
    identity = write(disk, image)
    assert identity == (42, 6)
    assert list_snapshots(disk, DIRECTORY) == [identity]
    assert disk.exists(f"{DIRECTORY}/00000000000000000042-0000000006.checkpoint")
    assert read_snapshot(disk, DIRECTORY, identity) == (image, 1234, ())


def test_an_empty_image_survives(disk: SimDisk) -> None:
    identity = write(disk, MetadataImage())
    assert identity.file_name == "00000000000000000000-0000000000.checkpoint"
    assert read_snapshot(disk, DIRECTORY, identity).image == MetadataImage()


def test_batches_are_numbered_without_gaps_between_two_control_batches(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "BATCH_BYTES_MAX", 100)
    identity = write(disk, full_image())
    data = disk.read_file(f"{DIRECTORY}/{identity.file_name}")
    headers = [header for _, header in iter_headers(data)]
    assert len(headers) > 4
    assert [header.is_control for header in headers] == [True] + [False] * (len(headers) - 2) + [True]
    assert {header.leader_epoch for header in headers} == {6}
    next_offset = 0
    for at, header in iter_headers(data):
        assert header.base_offset == next_offset
        assert crc_matches(data[at : at + header.size], header.crc)
        next_offset = header.last_offset + 1


def test_equal_images_are_equal_bytes(disk: SimDisk) -> None:
    image = full_image()
    name = write(disk, image).file_name
    first = disk.read_file(f"{DIRECTORY}/{name}")
    again = read_snapshot(disk, DIRECTORY, SnapshotId(42, 6)).image
    write(disk, again)
    assert disk.read_file(f"{DIRECTORY}/{name}") == first


def test_a_flipped_bit_anywhere_behind_the_headers_is_found(disk: SimDisk) -> None:
    identity = write(disk, full_image())
    path = f"{DIRECTORY}/{identity.file_name}"
    data = disk.read_file(path)
    for at, header in iter_headers(data):
        damaged = bytearray(data)
        damaged[at + header.size - 1] ^= 1
        disk.replace_file(path, bytes(damaged))
        with pytest.raises(SnapshotDamaged, match=f"{identity.file_name}: the batch at byte {at} "):
            read_snapshot(disk, DIRECTORY, identity)


@pytest.mark.parametrize("keep", [0, 10, 100, -1, -70])
def test_a_file_that_was_cut_off_is_not_taken_for_whole(disk: SimDisk, keep: int) -> None:
    identity = write(disk, full_image())
    path = f"{DIRECTORY}/{identity.file_name}"
    data = disk.read_file(path)
    disk.replace_file(path, data[:keep])
    with pytest.raises(SnapshotDamaged, match="incomplete"):
        read_snapshot(disk, DIRECTORY, identity)


def test_only_finished_snapshots_are_listed_oldest_first(disk: SimDisk) -> None:
    for name in (
        "00000000000000000100-0000000002.checkpoint",
        "00000000000000000009-0000000003.checkpoint",
        "00000000000000000200-0000000003.checkpoint.tmp",
        "00000000000000000100-0000000002.checkpoint.deleted",
        "00000000000000000000.log",
    ):
        disk.replace_file(f"{DIRECTORY}/{name}", b"")
    assert list_snapshots(disk, DIRECTORY) == [SnapshotId(9, 3), SnapshotId(100, 2)]
    remove_leftovers(disk, DIRECTORY)
    assert disk.list_dir(DIRECTORY) == [
        "00000000000000000000.log",
        "00000000000000000009-0000000003.checkpoint",
        "00000000000000000100-0000000002.checkpoint",
    ]
