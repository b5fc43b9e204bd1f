"""Share groups where brokers die: what was acknowledged is not delivered again, all else is."""

from __future__ import annotations

import time

import pytest
from kio.schema.errors import ErrorCode
from share_member import ACCEPT, Member, acquired, create_topic, only_row, produce, values

from ottla.testing import BrokerCluster, BrokerProcess

TOPIC = "work"
NONE = ErrorCode.none


def test_what_was_acknowledged_survives_kill_9() -> None:
    with BrokerProcess({"share.coordinator.state.topic.num.partitions": 2}) as broker:
        topic_id = create_topic(broker.bootstrap_servers, TOPIC)
        member = Member(broker.bootstrap_servers, "group", topic_id)
        member.initialize()
        produce(broker.bootstrap_servers, TOPIC, *(f"r{n}" for n in range(10)))
        assert acquired(member.fetch(wait_ms=5000)) == [(0, 9, 1)]
        assert only_row(member.acknowledge([(0, 2, [ACCEPT]), (5, 6, [ACCEPT])])).error_code == NONE
        broker.kill9()
        broker.start()
        again = Member(broker.bootstrap_servers, "group", topic_id)
        answer = again.fetch(wait_ms=20_000)
        assert acquired(answer) == [(3, 4, 1), (7, 9, 1)]
        assert values(answer) == ["r3", "r4", "r7", "r8", "r9"]


@pytest.mark.timeout(120)
def test_the_next_leader_goes_on_where_the_last_one_was() -> None:
    settings = {
        "broker.session.timeout.ms": 2000,
        "broker.heartbeat.interval.ms": 200,
        "share.coordinator.state.topic.num.partitions": 3,
    }
    with BrokerCluster(settings) as cluster:
        anywhere = cluster.bootstrap_servers
        topic_id = create_topic(anywhere, TOPIC, replicas=3)
        cluster.wait_in_sync(TOPIC, 3)
        leader = cluster.leader(TOPIC)
        starter = Member(leader.bootstrap_servers, "group", topic_id)
        produce(anywhere, TOPIC, *(f"r{n}" for n in range(10)), settings={"acks": "all"})
        starter.initialize_anywhere([cluster[each].bootstrap_servers for each in range(1, 4)])
        cluster.wait_in_sync("__share_group_state", 3)
        assert acquired(starter.fetch(wait_ms=20_000)) == [(0, 9, 1)]
        assert only_row(starter.acknowledge([(0, 4, [ACCEPT])])).error_code == NONE
        follower = next(cluster[each] for each in range(1, 4) if cluster[each] is not leader)
        misled = only_row(Member(follower.bootstrap_servers, "group", topic_id, "misled").fetch())
        assert misled.error_code == ErrorCode.not_leader_or_follower
        leader.kill9()
        while (now := cluster.leader(TOPIC)).port == leader.port:
            time.sleep(0.05)
        successor = Member(now.bootstrap_servers, "group", topic_id, "two")
        deadline = time.monotonic() + 60
        found: list[str] = []
        # How far its predecessor had committed, it learns little by little.
        while found[-1:] != ["r9"]:
            assert time.monotonic() < deadline
            answer = successor.fetch(wait_ms=5000)
            found += values(answer)
            acks = [(first, last, [ACCEPT]) for first, last, _ in acquired(answer)]
            assert not acks or only_row(successor.acknowledge(acks)).error_code == NONE
        assert found == ["r5", "r6", "r7", "r8", "r9"]
