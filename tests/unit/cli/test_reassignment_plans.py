"""Plans of where replicas shall be, without a cluster."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies

from ottla.cli.cluster.reassignment import (
    FOLLOWERS,
    LEADERS,
    check_executable,
    moves,
    plan_json,
    read_brokers,
    read_plan,
    read_topics,
    throttled_replicas,
)
from ottla.cli.framework.errors import ToolError
from ottla.client.admin.placement import TooFewBrokers, propose
from ottla.client.admin.replicas import Reassignment, Replica
from ottla.client.admin.topics import Partition


def written(path: Path, data: Any) -> str:
    (path / "plan.json").write_text(data if isinstance(data, str) else json.dumps(data))
    return str(path / "plan.json")


def test_a_plan_comes_back_as_it_was_written(tmp_path: Path) -> None:
    replicas = {Partition("b", 1): (1, 2), Partition("a", 0): (3, 1)}
    directories = {Replica(3, "a", 0): "/disk/1"}
    data = plan_json(replicas, directories)
    assert [item["topic"] for item in data["partitions"]] == ["a", "b"]
    assert data["partitions"][0]["log_dirs"] == ["/disk/1", "any"]
    plan = read_plan(written(tmp_path, data))
    assert plan.partitions == replicas
    assert plan.directories == directories


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{", "is not JSON"),
        ([], "must be an object"),
        ({"version": 2}, "Not supported version field value 2"),
        ({"partitions": {}}, "must be a list of objects"),
        ({"partitions": [{"topic": 5, "partition": 0, "replicas": [1]}]}, '"topic" must be a text, and is 5'),
        ({"partitions": [{"topic": "a", "replicas": [1]}]}, '"partition" must be a number, and is null'),
        ({"partitions": [{"topic": "a", "partition": 0}]}, '"replicas" must be a list'),
        (
            {"partitions": [{"topic": "a", "partition": 0, "replicas": [1, 2], "log_dirs": ["any"]}]},
            "Size of replicas list [1, 2] is different",
        ),
        ({"partitions": []}, "Partition reassignment list cannot be empty"),
        ({"partitions": [{"topic": "a", "partition": 0, "replicas": []}]}, "replica list cannot be empty"),
        (
            {"partitions": [{"topic": "a", "partition": 0, "replicas": [1]}] * 2},
            "contains duplicate topic partitions: a-0",
        ),
        (
            {"partitions": [{"topic": "a", "partition": 0, "replicas": [1, 2, 1]}]},
            "a-0 contains multiple entries for 1",
        ),
    ],
)
def test_what_is_no_plan_is_refused(tmp_path: Path, data: Any, message: str) -> None:
    path = written(tmp_path, data)
    with pytest.raises(ToolError) as refused:
        check_executable(path, read_plan(path))
    assert message in str(refused.value)
    assert path in str(refused.value)


def test_topics_and_brokers_are_named_once(tmp_path: Path) -> None:
    path = written(tmp_path, {"topics": [{"topic": "a"}, {"topic": "b"}, {"topic": "a"}]})
    with pytest.raises(ToolError, match="duplicate entries: a"):
        read_topics(path)
    with pytest.raises(ToolError, match="duplicate entries: 2"):
        read_brokers("1,2,2")
    with pytest.raises(ToolError, match="must be numbers"):
        read_brokers("1,b")
    with pytest.raises(ToolError, match="No such file"):
        read_topics(f"{tmp_path}/nowhere")


@given(
    racks=strategies.dictionaries(
        strategies.integers(0, 20), strategies.sampled_from("abc"), min_size=1, max_size=9
    ),
    partitions=strategies.integers(1, 30),
    factor=strategies.integers(1, 4),
    start=strategies.integers(0, 9),
)
def test_proposals_spread_leaders_and_racks(
    racks: dict[int, str], partitions: int, factor: int, start: int
) -> None:
    current = {Partition("t", number): tuple(range(100, 100 + factor)) for number in range(partitions)}
    if factor > len(racks):
        with pytest.raises(TooFewBrokers, match=f"has {factor} replicas"):
            propose(current, racks, start)
        return
    proposed = propose(current, racks, start)
    leaders = Counter(replicas[0] for replicas in proposed.values())
    assert max(leaders.values()) - min(leaders[broker] for broker in racks) <= 1
    for replicas in proposed.values():
        assert len(set(replicas)) == factor
        assert set(replicas) <= set(racks)
        assert len({racks[broker] for broker in replicas}) == min(factor, len(set(racks.values())))


def test_throttles_count_who_sends_and_who_receives() -> None:
    underway = {Partition("a", 0): Reassignment((1, 2, 3), (3,), (1,))}
    current = {Partition("a", 1): (1, 2), Partition("b", 0): (2,)}
    planned = {Partition("a", 1): (2, 4), Partition("b", 0): (2,)}
    found = throttled_replicas(moves(underway, current, planned))
    assert found == {
        "a": {LEADERS: "0:1,0:2,1:1,1:2", FOLLOWERS: "0:3,1:4"},
        "b": {LEADERS: "0:2", FOLLOWERS: ""},
    }
