"""Settings of several brokers on one machine, and the files they are kept in."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies

from ottla.config import ConfigError, parse_properties
from ottla.config.local_cluster import local_nodes, local_properties, properties_text


def test_three_nodes_know_each_other_and_keep_apart() -> None:
    nodes = local_nodes("/data", [9092, 9093, 9094], [9095, 9096, 9097])
    settings = [local_properties(node, nodes, "cellar", {"num.partitions": "6"}) for node in nodes]
    voters = "1@127.0.0.1:9095,2@127.0.0.1:9096,3@127.0.0.1:9097"
    assert {each["controller.quorum.voters"] for each in settings} == {voters}
    assert {each["broker.rack"] for each in settings} == {"cellar"}
    assert [each["node.id"] for each in settings] == ["1", "2", "3"]
    assert len({each["log.dirs"] for each in settings}) == 3
    assert settings[1]["listeners"] == "PLAINTEXT://127.0.0.1:9093,CONTROLLER://127.0.0.1:9096"
    assert all(each["num.partitions"] == "6" for each in settings)


def test_what_only_one_process_can_have_is_kept_apart() -> None:
    nodes = local_nodes("/data", [1, 2], [3, 4])
    given = {"ottla.metrics.listener": "[::1]:9404", "ottla.audit.log": "/var/log/ottla.d/audit.log"}
    first, second = (local_properties(node, nodes, "r", given) for node in nodes)
    assert first["ottla.metrics.listener"] == "[::1]:9404"
    assert second["ottla.metrics.listener"] == "[::1]:9405"
    assert first["ottla.audit.log"] == "/var/log/ottla.d/audit-1.log"
    assert second["ottla.audit.log"] == "/var/log/ottla.d/audit-2.log"
    free = {"ottla.metrics.listener": "127.0.0.1:0", "ottla.audit.log": ""}
    assert local_properties(nodes[1], nodes, "r", free).items() >= free.items()


@pytest.mark.parametrize(("brokers", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (5, "3", "2")])
def test_replicas_follow_from_the_number_of_brokers(brokers: int, replicas: str, in_sync: str) -> None:
    nodes = local_nodes("/data", range(1, brokers + 1), range(100, 100 + brokers))
    settings = local_properties(nodes[0], nodes, "r", {})
    assert settings["offsets.topic.replication.factor"] == settings["default.replication.factor"] == replicas
    assert settings["min.insync.replicas"] == settings["transaction.state.log.min.isr"] == in_sync
    assert local_properties(nodes[0], nodes, "r", {"min.insync.replicas": "1"})["min.insync.replicas"] == "1"


@pytest.mark.parametrize(
    "name", ["node.id", "listeners", "log.dirs", "controller.quorum.voters", "broker.rack"]
)
def test_what_each_broker_is_given_cannot_be_given_to_all(name: str) -> None:
    nodes = local_nodes("/data", [1], [2])
    with pytest.raises(ConfigError, match=name):
        local_properties(nodes[0], nodes, "r", {name: "5"})


@given(
    strategies.dictionaries(
        strategies.text("abc.= :\\#!", min_size=1).filter(lambda name: name[0] not in "#!"),
        strategies.text("xyz /\\=:#!\t\n", max_size=12),
        max_size=5,
    )
)
def test_properties_come_back_as_they_were(properties: dict[str, str]) -> None:
    assert parse_properties(properties_text(properties, "a comment")) == properties
