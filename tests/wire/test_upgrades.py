"""Requests of old versions reach handlers whole, whatever the newest version dropped."""

from __future__ import annotations

import datetime
import io
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.serial import entity_writer

from ottla.wire.api import ApiKey
from ottla.wire.messages import codec
from ottla.wire.upgrades.metadata import ClusterOperationsMetadataRequest


def received(api: ApiKey, version: int, request: Any) -> Any:
    buffer = io.BytesIO()
    entity_writer(type(request))(buffer, request)
    return codec(api, version).read(memoryview(buffer.getvalue()), 0)


@pytest.mark.parametrize("version", range(1, 6))
def test_names_of_topics_to_delete_become_topic_states(version: int) -> None:
    old = load_request_schema(ApiKey.DELETE_TOPICS, version)(
        topic_names=("a", "b"), timeout=datetime.timedelta(seconds=3)
    )
    request = received(ApiKey.DELETE_TOPICS, version, old)
    assert [(topic.name, topic.topic_id) for topic in request.topics] == [("a", None), ("b", None)]
    assert request.timeout == datetime.timedelta(seconds=3)


@pytest.mark.parametrize("version", [8, 9, 10])
def test_the_wish_for_cluster_operations_survives(version: int) -> None:
    old = load_request_schema(ApiKey.METADATA, version)(
        topics=None,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    request = received(ApiKey.METADATA, version, old)
    assert isinstance(request, ClusterOperationsMetadataRequest)
    assert request.include_cluster_authorized_operations
    assert request.include_topic_authorized_operations
    assert not request.allow_auto_topic_creation
    assert request.topics is None


def test_an_empty_list_of_topics_means_all_only_in_version_0() -> None:
    oldest = load_request_schema(ApiKey.METADATA, 0)(topics=())
    assert received(ApiKey.METADATA, 0, oldest).topics is None
    next_one = load_request_schema(ApiKey.METADATA, 1)(topics=())
    assert received(ApiKey.METADATA, 1, next_one).topics == ()


@pytest.mark.parametrize("version", range(4))
def test_before_version_4_topics_could_always_be_created(version: int) -> None:
    old = load_request_schema(ApiKey.METADATA, version)(topics=())
    assert received(ApiKey.METADATA, version, old).allow_auto_topic_creation
