"""Share groups of three brokers: they go on when the broker that coordinated them is gone."""

from __future__ import annotations

import time

import pytest
from group_calls import GroupCalls
from kio.schema.errors import ErrorCode
from share_member import create_topic

from ottla.testing import BrokerCluster

NONE = ErrorCode.none


@pytest.mark.timeout(120)
def test_a_group_goes_on_with_another_coordinator() -> None:
    with BrokerCluster({"offsets.topic.num.partitions": 1}) as cluster:
        create_topic(cluster.bootstrap_servers, "jobs", partitions=3, replicas=3)
        first = GroupCalls(cluster[1].bootstrap_servers)
        while (found := first.find("workers")).error_code is not NONE:
            time.sleep(0.05)
        coordinator = cluster[found.node_id]
        calls = GroupCalls(coordinator.bootstrap_servers)
        joined = calls.join("workers", "one", "jobs")
        assert sorted(p for t in joined.assignment.topic_partitions for p in t.partitions) == [0, 1, 2]
        for name in ("__consumer_offsets", "__share_group_state"):
            cluster.wait_in_sync(name, 3)
        calls.beat("workers", "one", -1)
        assert calls.alter("workers", "jobs", {0: 0, 1: 0, 2: 0}).error_code is NONE
        epoch = calls.describe("workers").group_epoch
        coordinator.kill9()
        other = next(cluster[each] for each in range(1, 4) if each != found.node_id)
        asking = GroupCalls(other.bootstrap_servers)
        deadline = time.monotonic() + 60
        while (now := asking.find("workers")).error_code is not NONE or now.node_id == found.node_id:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        calls = GroupCalls(cluster[now.node_id].bootstrap_servers)
        while (described := calls.describe("workers")).error_code is not NONE:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert described.group_epoch == epoch
        (topic,) = calls.offsets("workers").topics
        assert [(p.error_code, p.start_offset) for p in topic.partitions] == [(NONE, 0)] * 3
        assert calls.join("workers", "two", "jobs").member_epoch > epoch
        calls.beat("workers", "two", -1)
        assert calls.delete_group("workers") is NONE
