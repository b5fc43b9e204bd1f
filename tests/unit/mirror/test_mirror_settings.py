"""`mm2.properties`: what goes where, under which names, and what is refused."""

from __future__ import annotations

import pytest

from ottla.mirror.errors import SettingError
from ottla.mirror.membership import divide
from ottla.mirror.policy import ReplicationPolicy
from ottla.mirror.settings import FlowSettings, ignored_settings, read_settings

TWO = {
    "clusters": "a, b",
    "a.bootstrap.servers": "one:9092",
    "b.bootstrap.servers": "two:9092",
    "a->b.enabled": "true",
}
IDENTITY = {"replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"}


def flow(**more: str) -> FlowSettings:
    return read_settings(TWO | more)[0]


def test_what_is_said_of_a_flow_wins() -> None:
    there, back = read_settings(
        TWO | {"topics": "x", "a->b.topics": "orders, logs.*", "a->b.tasks.max": "7", "groups.exclude": ""}
    )
    assert (there.name, there.replicates, there.slots) == ("a->b", True, 7)
    assert [name for name in ("orders", "logs-1", "x", "orders-2") if there.takes_topic(name)] == [
        "orders",
        "logs-1",
    ]
    assert there.groups.takes("console-consumer-1")
    # The other way goes a heartbeat, which the first way brings back.
    assert (back.name, back.replicates, back.emit_heartbeats_s) == ("b->a", False, 1)


def test_clients_have_their_clusters_settings() -> None:
    found = flow(
        **{
            "security.protocol": "SASL_SSL",
            "a.security.protocol": "SSL",
            "a.consumer.client.id": "reader",
            "b.sasl.mechanism": "PLAIN",
        }
    )
    assert found.source.client("consumer")["security.protocol"] == "SSL"
    assert found.source.client("consumer")["client.id"] == "reader"
    assert "client.id" not in found.source.client("admin")
    assert found.target.client("producer")["security.protocol"] == "SASL_SSL"
    assert found.target.client("producer")["sasl.mechanism"] == "PLAIN"


def test_names_are_those_of_mirrormaker() -> None:
    found = flow()
    assert found.remote("orders") == "a.orders"
    assert found.offset_syncs_topic == "mm2-offset-syncs.b.internal"
    assert found.checkpoints_topic == "a.checkpoints.internal"
    assert found.positions_topic == "mm2-offsets.a.internal"
    elsewhere = flow(**{"offset-syncs.topic.location": "target", "replication.policy.separator": "_"})
    assert elsewhere.remote("orders") == "a_orders"
    assert elsewhere.offset_syncs_topic == "mm2-offset-syncs_a_internal"
    same = flow(**IDENTITY)
    assert same.remote("orders") == "orders"
    assert same.remote("heartbeats") == "a.heartbeats"


@pytest.mark.parametrize(
    ("topic", "is_taken"),
    [
        ("orders", True),
        ("heartbeats", True),
        ("c.orders", True),
        ("b.orders", False),
        ("a.orders", False),
        ("c.b.orders", False),
        ("b.heartbeats", False),
        ("__consumer_offsets", False),
        ("mm2-offsets.c.internal", False),
        ("c.checkpoints.internal", False),
        ("orders.replica", False),
    ],
)
def test_nothing_comes_back_to_where_it_was(topic: str, is_taken: bool) -> None:
    assert flow().takes_topic(topic) is is_taken


def test_a_name_tells_where_a_topic_was() -> None:
    policy = ReplicationPolicy()
    assert policy.source_of("a.b.orders") == "a"
    assert policy.upstream_topic("a.b.orders") == "b.orders"
    assert policy.original_topic("a.b.orders") == "orders"
    assert policy.source_of("orders") is None
    assert policy.source_of("orders.") is None


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"clusters": "a"}, "at least two"),
        ({"clusters": "a, b, a"}, "named twice"),
        ({"b.bootstrap.servers": ""}, "b.bootstrap.servers is missing"),
        ({"b.bootstrap.servers": "two:x"}, "b.bootstrap.servers"),
        ({"a->b.enabled": "yes"}, "enabled=yes: must be true or false"),
        ({"a->b.enabled": "false"}, "set a->b.enabled = true"),
        ({"a->c.enabled": "true"}, "a->c.enabled: not between two of the clusters a, b"),
        ({"topics": "("}, "topics: not regular expressions"),
        ({"tasks.max": "0"}, "tasks.max=0"),
        ({"refresh.topics.interval.seconds": "soon"}, "refresh.topics.interval.seconds=soon"),
        ({"replication.policy.class": "mine"}, "replication.policy.class=mine"),
        ({"replication.policy.separator": "/"}, "replication.policy.separator=/"),
        ({"topic.filter.class": "my.Filter"}, "classes of Java are not run here"),
        ({"offset-syncs.topic.location": "moon"}, "must be source or target"),
        ({"b->a.enabled": "true", **IDENTITY}, "back and forth for ever"),
        ({"tasks.max": "99999999999"}, "tasks.max=99999999999: must be a whole number from 1 to"),
        ({"emit.heartbeats.interval.seconds": "nan"}, "emit.heartbeats.interval.seconds=nan"),
        ({"refresh.topics.interval.seconds": "inf"}, "refresh.topics.interval.seconds=inf"),
        ({"a.consumer.auto.offset.reset": "banana"}, "a.consumer.auto.offset.reset=banana: must be earliest"),
        ({"a->a.enabled": "true"}, "not between two of the clusters"),
        ({"clusters": "a, b, c d"}, "'c d' is no name for a cluster"),
    ],
)
def test_what_cannot_be_is_refused_by_name(more: dict[str, str], says: str) -> None:
    with pytest.raises(SettingError, match=says.replace("(", r"\(")):
        read_settings(TWO | more)


def test_both_ways_with_the_same_names_need_topics_of_their_own() -> None:
    flows = read_settings(TWO | IDENTITY | {"b->a.enabled": "true", "a->b.topics": "x", "b->a.topics": "y"})
    assert [flow.takes_topic("x") for flow in flows] == [True, False]


def test_a_ring_of_clusters_with_the_same_names_is_refused() -> None:
    three = TWO | IDENTITY | {"clusters": "a, b, c", "c.bootstrap.servers": "three:9092"}
    ring = three | {"b->c.enabled": "true", "c->a.enabled": "true"}
    with pytest.raises(SettingError, match="a->b, b->c and c->a are enabled for the same topics"):
        read_settings(ring)
    read_settings(three | {"b->c.enabled": "true", "a->c.enabled": "true"})
    flows = read_settings(ring | {"c->a.topics": "back.*"})
    assert [flow.takes_topic("orders") for flow in flows if flow.name == "a->b"] == [True]
    assert [flow.takes_topic("back-orders") for flow in flows if flow.name == "a->b"] == [False]


def test_what_both_ways_take_goes_neither_way() -> None:
    flows = read_settings(
        TWO | IDENTITY | {"b->a.enabled": "true", "a->b.topics": "x.*", "b->a.topics": ".*2"}
    )
    assert [flow.takes_topic("x1") for flow in flows] == [True, False]
    assert [flow.takes_topic("x2") for flow in flows] == [False, False]
    assert [flow.takes_topic("heartbeats") for flow in flows] == [True, True]


def test_a_transaction_ends_before_its_broker_ends_it() -> None:
    assert flow(**{"transaction.boundary.interval.ms": "600000"}).commit_interval_s == 20


def test_slips_of_the_pen_are_told_of() -> None:
    told = ignored_settings(TWO | {"a->b.topcis": "x", "a->b.shape": "round", "offset.storage.topic": "mine"})
    assert told == [
        "a->b.topcis is ignored: there is no such setting; is it topics?",
        "a->b.shape is ignored: there is no such setting",
    ]
    # As in the file that comes with Apache Kafka.
    kafkas = "checkpoints.topic heartbeats.topic offset-syncs.topic offset.storage status.storage"
    kafkas += " config.storage"
    assert ignored_settings(TWO | {f"{name}.replication.factor": "1" for name in kafkas.split()}) == []
    rest = "key.converter listeners dedicated.mode.enable.internal.rest exactly.once.source.support name"
    rest += " group.id security.protocol a.security.protocol connector.class producer.override.acks"
    assert ignored_settings(TWO | dict.fromkeys(rest.split(), "x")) == []


def test_slots_are_divided_evenly_and_stay_where_they_are() -> None:
    assert divide(4, {"p": set()}) == {"p": [0, 1, 2, 3]}
    assert divide(5, {"p": {0, 1, 2, 3, 4}, "q": set()}) == {"p": [0, 1, 2], "q": [3, 4]}
    assert divide(4, {"q": {2, 3}, "r": set()}) == {"q": [2, 3], "r": [0, 1]}
    assert divide(1, {"p": set(), "q": {0}}) == {"p": [], "q": [0]}
