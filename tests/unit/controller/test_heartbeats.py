"""Heartbeats: how a broker is unfenced, fenced and shut down, and what becomes of what it leads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from deciding import decided
from small_cluster import HEARTBEAT_MS, SESSION_MS, Cluster, directory, registration

from ottla.controller.heartbeats import BrokerHeartbeat, BrokerState, fence_broker, process_heartbeat
from ottla.controller.sessions import BrokerEpoch, BrokerSessions
from ottla.metadata.records import NO_LEADER
from ottla.wire.errors import StaleBrokerEpoch


def leaders(cluster: Cluster, topic: str = "t") -> list[int]:
    return [partition.leader for partition in cluster.image.topics[topic].partitions]


def test_a_broker_is_unfenced_once_it_has_read_its_own_registration() -> None:
    cluster = Cluster(1)
    epoch = cluster.register(registration(2))
    reply = cluster.heartbeat(2, offset=epoch - 1)
    assert (reply.is_caught_up, reply.is_fenced) == (False, True)
    assert cluster.heartbeat(2, offset=epoch, fence=True).is_fenced
    reply = cluster.heartbeat(2, offset=epoch)
    assert (reply.is_caught_up, reply.is_fenced, reply.should_shut_down) == (True, False, False)
    assert cluster.image.brokers[2].active


def test_heartbeats_of_a_broker_that_lives_on_write_nothing() -> None:
    cluster = Cluster(1, 2)
    cluster.topic("t", (1, 2))
    before = cluster.image
    assert cluster.heartbeat(1).state is BrokerState.UNFENCED
    assert cluster.image is before


@pytest.mark.parametrize(("broker_id", "epoch"), [(1, -1), (7, 3)])
def test_a_stale_broker_is_told_so(broker_id: int, epoch: int) -> None:
    cluster = Cluster(1)
    with pytest.raises(StaleBrokerEpoch):
        decided(
            process_heartbeat(
                cluster.image, cluster.config, cluster.sessions, BrokerHeartbeat(broker_id, epoch, 100)
            )
        )


def test_what_nobody_leads_is_led_by_who_is_unfenced_and_in_sync() -> None:
    cluster = Cluster(1, 2)
    cluster.topic("t", (1, 2), (1,), (2,))
    cluster.heartbeat(1, fence=True)
    assert leaders(cluster) == [2, NO_LEADER, 2]
    cluster.heartbeat(1)
    assert leaders(cluster) == [2, 1, 2]
    assert [p.leader_epoch for p in cluster.image.topics["t"].partitions] == [1, 2, 0]


def test_a_broker_that_wants_fence_and_shutdown_stops_at_once() -> None:
    cluster = Cluster(1, 2)
    cluster.topic("t", (1, 2))
    reply = cluster.heartbeat(1, fence=True, shutdown=True)
    assert reply.should_shut_down and reply.is_fenced
    assert cluster.image.brokers[1].fenced
    assert (cluster.partition().leader, cluster.partition().isr) == (2, (2,))


def test_a_broker_that_leads_nothing_stops_at_once() -> None:
    cluster = Cluster(1, 2)
    cluster.topic("t", (1, 2))
    assert cluster.heartbeat(2, shutdown=True).should_shut_down
    assert (cluster.partition().leader, cluster.partition().isr) == (1, (1,))


def test_a_fenced_broker_may_stop_and_nothing_is_written() -> None:
    cluster = Cluster(1)
    cluster.register(registration(2))
    before = cluster.image
    assert cluster.heartbeat(2, shutdown=True).should_shut_down
    assert cluster.image is before


def test_a_broker_that_shuts_down_waits_until_all_others_know_the_new_leaders() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.topic("t", (1, 2, 3), (2, 3, 1), (1,))
    reply = cluster.heartbeat(1, shutdown=True)
    assert (reply.state, reply.is_fenced, reply.begins_shutdown) == (BrokerState.SHUTTING_DOWN, False, True)
    moved = cluster.image.offset
    assert cluster.image.brokers[1].in_controlled_shutdown
    assert leaders(cluster) == [2, 2, NO_LEADER]
    assert [p.isr for p in cluster.image.topics["t"].partitions] == [(2, 3), (2, 3), (1,)]
    cluster.heartbeat(2, offset=moved)
    cluster.heartbeat(3, offset=moved - 1)
    reply = cluster.heartbeat(1, shutdown=True)
    assert (reply.state, reply.begins_shutdown) == (BrokerState.SHUTTING_DOWN, False)
    cluster.heartbeat(3, offset=moved)
    assert cluster.heartbeat(1, shutdown=True).should_shut_down
    assert cluster.image.brokers[1].fenced


def test_who_is_fenced_while_shutting_down_does_not_come_back_in_this_life() -> None:
    cluster = Cluster(1, 2)
    cluster.topic("t", (1, 2))
    cluster.heartbeat(1, shutdown=True)
    epoch = cluster.image.brokers[1].epoch
    cluster.run(fence_broker(cluster.image, cluster.config, 1, epoch))
    assert cluster.heartbeat(1).is_fenced
    assert cluster.heartbeat(1, shutdown=True).should_shut_down


def test_fencing_moves_what_the_broker_leads_and_touches_nothing_else() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.topic("t", (1, 2), (2, 3), (1, 3))
    cluster.topic("other", (2, 3))
    before = cluster.image
    epoch = cluster.image.brokers[1].epoch
    cluster.run(fence_broker(cluster.image, cluster.config, 1, epoch))
    assert leaders(cluster) == [2, 2, 3]
    assert cluster.image.brokers[1].fenced
    assert cluster.image.topics["other"] is before.topics["other"]
    assert cluster.partition(index=1) is before.topics["t"].partitions[1]
    again = decided(fence_broker(cluster.image, cluster.config, 1, epoch))
    assert again.records == []


def test_fencing_spares_a_broker_that_has_registered_anew() -> None:
    cluster = Cluster(1)
    assert decided(fence_broker(cluster.image, cluster.config, 1, 0)).records == []
    assert decided(fence_broker(cluster.image, cluster.config, 5, 0)).records == []


def test_a_failed_directory_takes_leadership_of_its_replicas_away() -> None:
    cluster = Cluster(2, 3)
    cluster.start(1, directories=2)
    cluster.topic("t", (1, 2), (1,))
    cluster.topic("unassigned", (2, 1))
    reply = cluster.heartbeat(1, offline=(directory(1),))
    assert not reply.is_fenced
    assert leaders(cluster) == [2, NO_LEADER]
    assert cluster.image.brokers[1].directories == (directory(1, 1),)
    before = cluster.image
    cluster.heartbeat(1, offline=(directory(1),))
    assert cluster.image is before


def test_what_lies_in_a_failed_directory_is_not_led_by_its_broker_again() -> None:
    cluster = Cluster(2)
    cluster.start(1, directories=2)
    cluster.topic("t", (1,))
    cluster.heartbeat(1, offline=(directory(1),))
    cluster.heartbeat(1, fence=True)
    cluster.heartbeat(1)
    assert leaders(cluster) == [NO_LEADER]


def test_sessions_end_when_a_broker_is_not_heard_of() -> None:
    cluster = Cluster(1, 2)
    sessions, image = cluster.sessions, cluster.image
    first, second = (BrokerEpoch(broker.id, broker.epoch) for broker in image.brokers.values())
    for now_ms in range(0, SESSION_MS + 1, 1000):
        assert sessions.expired(image, now_ms) == []
        sessions.heard(second, 0, now_ms)
    assert sessions.is_live(first, SESSION_MS)
    assert sessions.expired(image, SESSION_MS + 1) == [first]
    assert not sessions.is_live(first, SESSION_MS + 1)
    assert not sessions.is_live(BrokerEpoch(2, 0), SESSION_MS + 1)
    cluster.run(fence_broker(image, cluster.config, *first))
    assert sessions.expired(cluster.image, SESSION_MS + 2) == []


def test_time_in_which_the_controller_slept_does_not_count() -> None:
    cluster = Cluster(1)
    sessions, image = cluster.sessions, cluster.image
    assert sessions.expired(image, 1000) == []
    woke_ms = 1_000_000
    assert sessions.expired(image, woke_ms) == []
    assert sessions.expired(image, woke_ms + 4000) == []
    assert sessions.expired(image, woke_ms + 8000) == []
    assert len(sessions.expired(image, woke_ms + SESSION_MS)) == 1


def test_a_broker_whose_connection_is_gone_has_until_its_next_heartbeat() -> None:
    cluster = Cluster(1, 2)
    sessions, image = cluster.sessions, cluster.image
    gone, back = (BrokerEpoch(broker.id, broker.epoch) for broker in image.brokers.values())
    for broker in image.brokers.values():
        # As one of Apache Kafka, which knows features that this version does not.
        sessions.cut_off(replace(broker, features=()), 500)
    assert sessions.expired(image, HEARTBEAT_MS) == []
    sessions.heard(back, 0, HEARTBEAT_MS)
    assert sessions.expired(image, 3001) == [gone]
    assert not sessions.is_live(gone, 3001)
    sessions.cut_off(replace(image.brokers[2], epoch=0), 3001)
    assert sessions.expired(image, 6000) == [gone]


def test_a_broker_of_this_version_comes_back_at_once_or_not_at_all() -> None:
    cluster = Cluster(1, 2)
    sessions, image = cluster.sessions, cluster.image
    gone, back = (BrokerEpoch(broker.id, broker.epoch) for broker in image.brokers.values())
    for broker in image.brokers.values():
        sessions.cut_off(broker, 500)
    sessions.heard(back, 0, 700)
    assert sessions.expired(image, 1500) == []
    assert sessions.expired(image, 1501) == [gone]


def test_whoever_is_unfenced_is_watched_even_without_a_session() -> None:
    cluster = Cluster(1)
    cluster.sessions.forget(1)
    for now_ms in range(0, SESSION_MS + 1, 1000):
        assert cluster.sessions.expired(cluster.image, now_ms) == []
    assert len(cluster.sessions.expired(cluster.image, SESSION_MS + 1)) == 1


def test_the_broker_beside_the_controller_is_never_taken_for_dead() -> None:
    cluster = Cluster(99)
    for now_ms in range(0, 3 * SESSION_MS, 1000):
        assert cluster.sessions.expired(cluster.image, now_ms) == []


def test_the_broker_beside_a_controller_that_starts_may_register_at_once() -> None:
    cluster = Cluster(1, 99)
    sessions = BrokerSessions(99, SESSION_MS, HEARTBEAT_MS)
    sessions.begin(cluster.image, 0)
    beside = BrokerEpoch(99, cluster.image.brokers[99].epoch)
    assert not sessions.is_live(beside, 0)
    sessions.heard(beside, 0, 0)
    assert sessions.is_live(beside, 0)


def test_a_controller_that_takes_over_gives_everybody_a_whole_session() -> None:
    cluster = Cluster(1, 2)
    cluster.heartbeat(2, fence=True)
    sessions = BrokerSessions(99, SESSION_MS, HEARTBEAT_MS)
    sessions.begin(cluster.image, 50_000)
    epochs = {broker.id: broker.epoch for broker in cluster.image.brokers.values()}
    assert sessions.is_live(BrokerEpoch(1, epochs[1]), 50_000 + SESSION_MS)
    assert not sessions.is_live(BrokerEpoch(2, epochs[2]), 50_000)


def test_a_shutdown_that_began_under_another_controller_still_waits_for_the_others() -> None:
    cluster = Cluster(1, 2)
    cluster.topic("t", (1, 2))
    cluster.heartbeat(1, shutdown=True)
    cluster.sessions.begin(cluster.image, 0)
    assert not cluster.heartbeat(1, shutdown=True).should_shut_down
    cluster.heartbeat(2)
    assert cluster.heartbeat(1, shutdown=True).should_shut_down
