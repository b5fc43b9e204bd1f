"""The guide to a cluster on three machines, command by command. Machines are directories and ports here."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.integration.cluster.faults import wait_in_sync
from tests.integration.cluster.machines import WAIT_S, Site, sections
from tests.integration.cluster.workload import read_all

GUIDE = Path(__file__).parents[3] / "docs/guides/cluster.md"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    try:
        yield made
    finally:
        for machine in made.machines.values():
            machine.kill()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_cluster_guide_does_what_it_says(site: Site) -> None:
    parts = sections(GUIDE)
    assert list(parts) == [
        "Settings",
        "Formatting",
        "With systemd",
        "Upgrading, machine by machine",
        "Coming from Apache Kafka, machine by machine",
        "Replacing a dead machine",
        "Adding a broker",
        "Removing a broker",
        "What to watch",
    ]
    said: dict[str, list[str]] = {}
    for title, blocks in parts.items():
        if title == "Replacing a dead machine":
            producer = Producer({"bootstrap.servers": site.servers, "acks": "all"})
            producer.produce("orders", b"espresso", partition=0)
            assert producer.flush(WAIT_S) == 0
            site.machines["kafka3"].kill()
            shutil.rmtree(site.machines["kafka3"].root / "var/lib/ottla")
        for block in blocks:
            if "file" in block.marks:
                site.put(block)
            else:
                said.setdefault(title, []).append(site.run(block))
                if title == "Formatting" and not site.cluster_id:
                    site.cluster_id = said[title][0].strip()
        if site.servers:
            wait_in_sync(site.servers)

    assert "CurrentVoters" in said["With systemd"][-1] and "ReplicationFactor: 3" in said["With systemd"][-1]
    assert said["Replacing a dead machine"][0].strip().endswith(site.cluster_id)
    assert "is completed" in said["Adding a broker"][-1] and "is completed" in said["Removing a broker"][1]
    admin = AdminClient({"bootstrap.servers": site.servers})
    cluster = admin.list_topics(timeout=WAIT_S)
    assert set(cluster.brokers) == {1, 2, 3}
    assert all(set(each.replicas) == {1, 2, 3} for each in cluster.topics["orders"].partitions.values())
    assert read_all(site.servers, TopicPartition("orders").topic, 0) == ["espresso"]
