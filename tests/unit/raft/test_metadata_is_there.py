"""A node with partitions and without metadata: a disk may be missing, or it never had to keep its copy."""

from __future__ import annotations

import pytest

from ottla.config import BrokerConfig
from ottla.raft.metadata_log import QuorumError, check_metadata_is_there
from ottla.sim.disk import SimDisk


def _check(roles: str) -> None:
    disk = SimDisk()
    disk.make_dirs("/data/orders-0")
    properties = {
        "node.id": "2",
        "process.roles": roles,
        "listeners": "PLAINTEXT://:9092" + (",CONTROLLER://:9093" if "controller" in roles else ""),
        "controller.quorum.voters": "1@c1:9093,2@c2:9093,3@c3:9093" if "controller" in roles else "1@c1:9093",
        "log.dirs": "/data",
        "metadata.log.dir": "/meta",
    }
    check_metadata_is_there(disk, BrokerConfig.from_properties(properties))


def test_a_controller_does_not_start_without_what_it_voted_on() -> None:
    with pytest.raises(QuorumError, match="holds no metadata"):
        _check("broker,controller")


def test_a_broker_that_lost_its_copy_with_a_power_cut_is_told_it_again() -> None:
    _check("broker")
