"""Whose directory is it: new ones are claimed, foreign and copied ones refused."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from ottla.metadata.meta_properties import MetaProperties, MetaPropertiesError, load, prepare
from ottla.metadata.uuids import parse_uuid, random_uuid, uuid_text
from ottla.sim.disk import SimDisk


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


def write(disk: SimDisk, log_dir: str, text: str) -> None:
    disk.make_dirs(log_dir)
    disk.replace_file(f"{log_dir}/meta.properties", text.encode())


def test_new_directories_get_one_cluster_and_an_id_each(disk: SimDisk) -> None:
    found = prepare(disk, Random(1), ["/a", "/b"], node_id=3)
    assert found["/a"].cluster_id == found["/b"].cluster_id
    assert len(found["/a"].cluster_id) == 22
    assert found["/a"].directory_id != found["/b"].directory_id
    assert {properties.node_id for properties in found.values()} == {3}
    assert prepare(disk, Random(2), ["/a", "/b"], node_id=3) == found
    text = disk.read_file("/a/meta.properties").decode()
    assert text.splitlines() == [
        f"cluster.id={found['/a'].cluster_id}",
        f"directory.id={uuid_text(found['/a'].directory_id)}",
        "node.id=3",
        "version=1",
    ]


def test_new_directories_survive_a_power_cut(disk: SimDisk) -> None:
    found = prepare(disk, Random(1), ["/var/lib/a", "/b"], node_id=3)
    disk.crash()
    assert {log_dir: load(disk, log_dir) for log_dir in found} == found


def test_a_cluster_id_can_be_given(disk: SimDisk) -> None:
    assert prepare(disk, Random(1), ["/a"], node_id=1, cluster_id="mine")["/a"].cluster_id == "mine"
    with pytest.raises(MetaPropertiesError, match=r"/a/meta.properties: cluster.id=mine, expected other"):
        prepare(disk, Random(1), ["/a"], node_id=1, cluster_id="other")


def test_a_directory_added_later_joins_the_cluster(disk: SimDisk) -> None:
    first = prepare(disk, Random(1), ["/a"], node_id=1)
    both = prepare(disk, Random(2), ["/b", "/a"], node_id=1)
    assert both["/a"] == first["/a"]
    assert both["/b"].cluster_id == first["/a"].cluster_id


def test_apache_kafkas_file_is_read(disk: SimDisk) -> None:
    write(
        disk,
        "/a",
        "#\n#Sun Nov 16 00:00:00 UTC 2025\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"
        "directory.id=J8aAPcfLQt2bqs1JT_rMgQ\nnode.id=1\nversion=1\n",
    )
    assert load(disk, "/a") == MetaProperties(
        "MkU3OEVBNTcwNTJENDM2Qg", 1, parse_uuid("J8aAPcfLQt2bqs1JT_rMgQ")
    )


def test_another_node_is_refused(disk: SimDisk) -> None:
    prepare(disk, Random(1), ["/a"], node_id=1)
    with pytest.raises(
        MetaPropertiesError, match=r"node\.id=1, but this node is configured as 2; set node.id"
    ):
        prepare(disk, Random(1), ["/a"], node_id=2)


def test_directories_of_two_clusters_are_refused_and_nothing_is_written(disk: SimDisk) -> None:
    prepare(disk, Random(1), ["/a"], node_id=1)
    prepare(disk, Random(2), ["/b"], node_id=1)
    with pytest.raises(MetaPropertiesError, match="belongs to another cluster"):
        prepare(disk, Random(3), ["/a", "/b", "/c"], node_id=1)
    assert not disk.exists("/c/meta.properties")


def test_a_copied_directory_is_refused(disk: SimDisk) -> None:
    prepare(disk, Random(1), ["/a"], node_id=1)
    write(disk, "/b", disk.read_file("/a/meta.properties").decode())
    with pytest.raises(MetaPropertiesError, match="is also that of /a"):
        prepare(disk, Random(1), ["/a", "/b"], node_id=1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("broker.id=1\ncluster.id=x\n", "version=0 is not supported"),
        ("version=1\nnode.id=1\ndirectory.id=J8aAPcfLQt2bqs1JT_rMgQ\n", "cluster.id is missing"),
        ("version=1\nnode.id=one\ncluster.id=x\ndirectory.id=J8aAPcfLQt2bqs1JT_rMgQ\n", "one"),
        ("version=1\nnode.id=1\ncluster.id=x\ndirectory.id=short\n", "short"),
        ("version=1\nnode.id=1\ncluster.id=x\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n", "reserved"),
    ],
)
def test_a_damaged_file_is_named(disk: SimDisk, text: str, words: str) -> None:
    write(disk, "/a", text)
    with pytest.raises(MetaPropertiesError, match=words) as caught:
        prepare(disk, Random(1), ["/a"], node_id=1)
    assert "/a/meta.properties" in str(caught.value)


def test_uuids_are_shown_as_kafka_shows_them() -> None:
    value = UUID("27c6803d-c7cb-42dd-9baa-cd494ffacc81")
    assert uuid_text(value) == "J8aAPcfLQt2bqs1JT_rMgQ"
    assert parse_uuid("J8aAPcfLQt2bqs1JT_rMgQ") == value
    for text in ("", "J8aAPcfLQt2bqs1JT_rMg", "J8aAPcfLQt2bqs1JT+rMgQ", "J8aAPcfLQt2bqs1JT_rMgQAA"):
        with pytest.raises(ValueError, match=r"base64|16"):
            parse_uuid(text)


def test_random_uuids_are_version_4_and_have_no_dash() -> None:
    random = Random(0)
    for _ in range(300):
        value = random_uuid(random)
        assert value.version == 4
        assert "-" not in uuid_text(value)


@pytest.mark.parametrize("text", ["", "\x00\x00\x00", "cluster.id=c\nnode.id=1\n", "version=1\nnode.id=1\n"])
def test_a_damaged_file_is_called_that(disk: SimDisk, text: str) -> None:
    write(disk, "/a", text)
    with pytest.raises(MetaPropertiesError, match="may be damaged; restore the file") as refused:
        load(disk, "/a")
    assert "ZooKeeper" not in str(refused.value)
