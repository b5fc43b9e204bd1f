"""The metadata shell and Apache Kafka's on the same files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from bench.maven import PeerUnavailable
from kafka_cluster import Cluster

from ottla.metadata.access_records import AccessControlEntryRecord, ClientQuotaRecord, QuotaEntity
from ottla.metadata.foreign_records import DelegationTokenRecord, UserScramCredentialRecord
from ottla.metadata.records import FeatureLevelRecord, MetadataRecord, ProducerIdsRecord, encode_record
from ottla.records.records import Record, encode_batch

# Kafka's tools were seen to give up, or to answer with half the picture, on a busy machine.
pytestmark = [pytest.mark.maven, pytest.mark.soak, pytest.mark.timeout(300)]

FIRST = "00000000000000000000.log"
PROTECTION: list[MetadataRecord] = [
    FeatureLevelRecord(name="metadata.version", feature_level=27),
    AccessControlEntryRecord(
        id=UUID(int=2**100),
        resource_type=2,
        resource_name="orders",
        pattern_type=4,
        principal="User:ann",
        host="*",
        operation=3,
        permission_type=3,
    ),
    ClientQuotaRecord(
        entity=(
            QuotaEntity(entity_type="user", entity_name="a(b"),
            QuotaEntity(entity_type="client-id", entity_name="c"),
        ),
        key="producer_byte_rate",
        value=123456789.25,
        remove=False,
    ),
    ClientQuotaRecord(
        entity=(QuotaEntity(entity_type="ip", entity_name="10.0.0.1"),),
        key="connection_creation_rate",
        value=1024.5,
        remove=False,
    ),
    UserScramCredentialRecord(
        name="ann", mechanism=1, salt=b"salt", stored_key=b"\0\1", server_key=b"\2\3", iterations=4096
    ),
    DelegationTokenRecord(
        owner="User:ann",
        requester="User:bob",
        renewers=("User:cid", "User:dan"),
        issue_timestamp=1,
        max_timestamp=3,
        expiration_timestamp=2,
        token_id="token",
    ),
    ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=2000),
]


def compare(cluster: Cluster, tool: Any, path: Path, *command: str) -> list[str]:
    ours: list[str] = tool("metadata-shell", "--snapshot", str(path), *command).lines
    try:
        theirs = cluster.their_shell("--snapshot", str(path), *command)
        if theirs != ours:
            # On a busy machine it was seen to answer before it had loaded everything.
            theirs = cluster.their_shell("--snapshot", str(path), *command)
    except PeerUnavailable as error:
        pytest.skip(str(error))
    assert ours == theirs
    return ours


@pytest.fixture
def log(cluster: Cluster, tool: Any, tmp_path: Path) -> Path:
    """A copy: Kafka's shell takes the lock of a directory it reads from."""
    place = ("--bootstrap-server", cluster.bootstrap_servers)
    tool("topics", "--create", "--if-not-exists", "--topic", "walked", "--partitions", "3", *place)
    tool("configs", "--alter", "--topic", "walked", "--add-config", "retention.ms=60000", *place)
    return Path(shutil.copy(cluster.data_dir / "__cluster_metadata-0" / FIRST, tmp_path / FIRST))


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("ls",), "image"),
        (("ls", "/", "/image/*", "/local"), "brokers"),
        (("ls", "/nowhere", "image/{topics,features}"), "ls: /nowhere: no such file or directory."),
        (("find", "/image/topics/byName/walked"), "/image/topics/byName/walked/2"),
        (("cat", "/image", "/image/topics/byName/walked/name", "/missing"), "walked"),
        (("tree", "/image/topics/byName/walked", "/image/cluster", "/image/features"), "name:"),
        (("tree", "/image/configs", "/image/producerIds", "/nowhere"), "    60000"),
        (("pwd",), "invalid choice: 'pwd' (choose from 'cat', 'find', 'ls', 'tree')"),
    ],
    ids=lambda value: "_".join(value).replace("/", ".") if isinstance(value, tuple) else "",
)
def test_same_metadata(
    cluster: Cluster, tool: Any, log: Path, command: tuple[str, ...], expected: str
) -> None:
    assert expected in compare(cluster, tool, log, *command)


def test_same_protection(cluster: Cluster, tool: Any, tmp_path: Path) -> None:
    """What Ottla's brokers do not serve yet is shown all the same."""
    records = [Record(None, encode_record(record), 1000 + at) for at, record in enumerate(PROTECTION)]
    (tmp_path / FIRST).write_bytes(encode_batch(records, leader_epoch=1))
    shown = compare(cluster, tool, tmp_path / FIRST, "tree", "/image")
    assert "    1.2345678925E8" not in shown
    assert "      1.2345678925E8" in shown
