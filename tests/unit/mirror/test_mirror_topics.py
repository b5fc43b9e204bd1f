"""Topics of the source in the target, where not everything may be seen and not all brokers know the same."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from ottla.client.admin import configs
from ottla.client.cluster import ClusterClient
from ottla.client.metadata import PartitionInfo, TopicInfo
from ottla.mirror import topics as module
from ottla.mirror.settings import read_settings
from ottla.mirror.topics import Topics
from ottla.wire.errors import ErrorCode, TopicAuthorizationFailed, UnknownTopicOrPartition

PROPERTIES = {
    "clusters": "a, b",
    "a.bootstrap.servers": "a:1",
    "b.bootstrap.servers": "b:1",
    "a->b.enabled": "true",
    "replication.factor": "1",
}


def topic(name: str) -> TopicInfo:
    return TopicInfo(name, None, False, {0: PartitionInfo(0, 1, 0, (1,), (1,), ErrorCode.none)})


class Cluster:
    """Tells of topics so many looks after they are made."""

    def __init__(self, *names: str, late: int = 0) -> None:
        self.names = list(names)
        self._late = dict.fromkeys(names, 0)
        self._looks_late = late

    def make(self, name: str) -> None:
        self.names.append(name)
        self._late[name] = self._looks_late

    async def topics_matching(self, _: str) -> dict[str, TopicInfo]:
        seen = {name: topic(name) for name in self.names if self._late[name] <= 0}
        self._late = {name: left - 1 for name, left in self._late.items()}
        return seen


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Whose settings were asked for."""
    found: list[list[str]] = []

    async def create(cluster: Any, name: str, **_: Any) -> None:
        cluster.make(name)

    async def describe(_: Any, __: int, names: list[str]) -> dict[str, list[configs.Setting]]:
        found.append(names)
        if "secret" in names:
            raise TopicAuthorizationFailed("", about="secret")
        return {name: [] for name in names}

    monkeypatch.setattr(module, "create_topic", create)
    monkeypatch.setattr(configs, "describe_configs", describe)
    return found


def mirrored(source: Cluster, target: Cluster) -> set[str]:
    (settings, *_) = read_settings(PROPERTIES)
    topics = Topics(cast(ClusterClient, source), cast(ClusterClient, target), settings)
    asyncio.run(topics.refresh())
    return set(topics.known)


def test_topics_whose_settings_may_not_be_seen_keep_no_others_from_theirs(asked: list[list[str]]) -> None:
    assert mirrored(Cluster("first", "secret", "third"), Cluster()) == {"first", "secret", "third"}
    assert asked == [["first", "secret", "third"], ["first"], ["secret"], ["third"]]


def test_what_was_made_is_mirrored_as_soon_as_brokers_know_of_it(asked: list[list[str]]) -> None:
    assert mirrored(Cluster("new"), Cluster(late=2)) == {"new"}


def test_a_topic_that_went_meanwhile_is_looked_for_anew(
    monkeypatch: pytest.MonkeyPatch, asked: list[list[str]]
) -> None:
    async def gone(*_: Any) -> Any:
        raise UnknownTopicOrPartition(about="first")

    monkeypatch.setattr(configs, "describe_configs", gone)
    with pytest.raises(UnknownTopicOrPartition):
        mirrored(Cluster("first"), Cluster())
