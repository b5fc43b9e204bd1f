"""Plans of where replicas shall be: read and written; and what is throttled meanwhile.

No broker is asked here.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ottla.cli.framework.errors import ToolError
from ottla.client.admin.replicas import Reassignment, Replica
from ottla.client.admin.topics import Partition

ANY_DIRECTORY = "any"
LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"
LEADERS_RATE = "leader.replication.throttled.rate"
FOLLOWERS_RATE = "follower.replication.throttled.rate"
DIRECTORIES_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


class Plan(NamedTuple):
    replicas: list[tuple[Partition, tuple[int, ...]]]
    """In the order of the file; a partition may be there twice."""
    directories: dict[Replica, str]

    @property
    def partitions(self) -> dict[Partition, tuple[int, ...]]:
        return dict(self.replicas)


class Move(NamedTuple):
    sources: frozenset[int]
    destinations: frozenset[int]


def read_plan(path: str) -> Plan:
    """A file for `--reassignment-json-file`."""
    replicas: list[tuple[Partition, tuple[int, ...]]] = []
    directories: dict[Replica, str] = {}
    for item in _items(path, "partitions"):
        partition = Partition(_text(path, item, "topic"), _number(path, item.get("partition"), "partition"))
        brokers = tuple(_number(path, each, "replicas") for each in _list(path, item, "replicas"))
        paths = item.get("log_dirs", [ANY_DIRECTORY] * len(brokers))
        if not isinstance(paths, list) or len(paths) != len(brokers):
            raise ToolError(
                f"{path}: Size of replicas list {list(brokers)} is different from size of log dirs list "
                f"{paths} for partition {partition}"
            )
        replicas.append((partition, brokers))
        for broker, directory in zip(brokers, paths, strict=True):
            if directory != ANY_DIRECTORY:
                directories[Replica(broker, *partition)] = str(directory)
    return Plan(replicas, directories)


def check_executable(path: str, plan: Plan) -> None:
    if not plan.replicas:
        raise ToolError(f"{path}: Partition reassignment list cannot be empty")
    if not all(brokers for _, brokers in plan.replicas):
        raise ToolError(f"{path}: Partition replica list cannot be empty")
    if twice := _duplicates([partition for partition, _ in plan.replicas]):
        names = ",".join(map(str, twice))
        raise ToolError(f"{path}: Partition reassignment contains duplicate topic partitions: {names}")
    faults = [
        f"{partition} contains multiple entries for {','.join(map(str, twice))}"
        for partition, brokers in plan.replicas
        if (twice := _duplicates(brokers))
    ]
    if faults:
        raise ToolError(
            f"{path}: Partition replica lists may not contain duplicate entries: {'. '.join(faults)}"
        )


def read_topics(path: str) -> list[str]:
    """A file for `--topics-to-move-json-file`."""
    topics = [_text(path, item, "topic") for item in _items(path, "topics")]
    if twice := _duplicates(topics):
        raise ToolError(f"{path}: List of topics to reassign contains duplicate entries: {','.join(twice)}")
    return topics


def read_brokers(text: str) -> list[int]:
    try:
        brokers = [int(part) for part in text.split(",")]
    except ValueError:
        raise ToolError(f"--broker-list {text}: must be numbers separated by commas") from None
    if twice := _duplicates(brokers):
        raise ToolError(f"Broker list contains duplicate entries: {','.join(map(str, twice))}")
    return brokers


def plan_json(
    replicas: Mapping[Partition, Sequence[int]], directories: Mapping[Replica, str]
) -> dict[str, Any]:
    return {
        "version": 1,
        "partitions": [
            {
                "topic": partition.topic,
                "partition": partition.number,
                "replicas": list(brokers),
                "log_dirs": [
                    directories.get(Replica(broker, *partition), ANY_DIRECTORY) for broker in brokers
                ],
            }
            for partition, brokers in sorted(replicas.items())
        ],
    }


def plan_text(replicas: Mapping[Partition, Sequence[int]], directories: Mapping[Replica, str]) -> str:
    return json.dumps(plan_json(replicas, directories), separators=(",", ":"))


def moves(
    underway: Mapping[Partition, Reassignment],
    current: Mapping[Partition, Sequence[int]],
    planned: Mapping[Partition, Sequence[int]],
) -> dict[Partition, Move]:
    """Who sends and who receives, of what is under way and of what is planned."""
    found = {
        partition: Move(frozenset(move.replicas) - frozenset(move.adding), frozenset(move.adding))
        for partition, move in underway.items()
    }
    for partition, brokers in planned.items():
        known = found.get(partition)
        sources = known.sources if known is not None else frozenset(current[partition])
        found[partition] = Move(sources, frozenset(brokers) - sources)
    return found


def throttled_replicas(moving: Mapping[Partition, Move]) -> dict[str, dict[str, str]]:
    """Settings of topics: which replicas' traffic counts."""
    settings: dict[str, dict[str, set[str]]] = defaultdict(lambda: {LEADERS: set(), FOLLOWERS: set()})
    for partition, move in moving.items():
        topic = settings[partition.topic]
        topic[LEADERS] |= {f"{partition.number}:{broker}" for broker in move.sources}
        topic[FOLLOWERS] |= {f"{partition.number}:{broker}" for broker in move.destinations}
    return {
        topic: {key: ",".join(sorted(replicas)) for key, replicas in keys.items()}
        for topic, keys in sorted(settings.items())
    }


def _items(path: str, name: str) -> list[dict[str, Any]]:
    try:
        with open(path) as file:
            data = json.load(file)
    except OSError as error:
        raise ToolError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ToolError(f"{path}: is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise ToolError(f'{path}: must be an object with "{name}" in it')
    if data.get("version", 1) != 1:
        raise ToolError(f"{path}: Not supported version field value {data['version']}")
    items = data.get(name, [])
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ToolError(f'{path}: "{name}" must be a list of objects')
    return items


def _text(path: str, item: Mapping[str, Any], name: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise ToolError(f'{path}: "{name}" must be a text, and is {json.dumps(value)}')
    return value


def _number(path: str, value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ToolError(f'{path}: "{name}" must be a number, and is {json.dumps(value)}')
    return value


def _list(path: str, item: Mapping[str, Any], name: str) -> list[Any]:
    value = item.get(name)
    if not isinstance(value, list):
        raise ToolError(f'{path}: "{name}" must be a list, and is {json.dumps(value)}')
    return value


def _duplicates(values: Sequence[Any]) -> list[Any]:
    return sorted({value for value in values if values.count(value) > 1})
