"""`kafka-topics`: topics come, grow, are described and go."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import Table, show, warn
from ottla.cli.framework.properties import pairs
from ottla.cli.framework.tool import BOOTSTRAP_SERVER, COMMAND_CONFIG, Option, Tool

if TYPE_CHECKING:
    from ottla.cli.cluster.admin import Admin
    from ottla.client.admin.configs import Setting
    from ottla.client.admin.replicas import Reassignment
    from ottla.client.admin.topics import PartitionState, TopicState

Moves: TypeAlias = "Mapping[tuple[str, int], Reassignment]"
"""Reassignments under way."""

_ACTIONS = ("list", "describe", "create", "alter", "delete")
_REPORTS = (
    "under_replicated_partitions",
    "unavailable_partitions",
    "under_min_isr_partitions",
    "at_min_isr_partitions",
)
_COLLISION = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could "
    "collide. To avoid issues it is best to use either, but not both."
)
_FACTOR_MAX = 32767


class TopicError(ToolError):
    def __init__(self, text: str) -> None:
        super().__init__(f"Error while executing topic command : {text}")


def run(given: argparse.Namespace) -> int:
    from ottla.cli.cluster.admin import cluster
    from ottla.cli.framework.errors import Refused

    action = _check(given)
    with cluster(given) as admin:
        try:
            _RUN[action](given, admin)
        except Refused as error:
            raise TopicError(error.reason) from None
    return 0


def _check(given: argparse.Namespace) -> str:
    actions = [action for action in _ACTIONS if getattr(given, action)]
    if len(actions) != 1:
        raise ToolError("give exactly one action: --list, --describe, --create, --alter or --delete")
    (action,) = actions
    if action in {"create", "alter", "delete"} and not given.topic:
        raise ToolError(f"--{action} needs --topic")
    if action == "alter" and given.config:
        raise ToolError("--config cannot be used with --alter: settings are changed with kafka-configs")
    if action == "alter" and given.partitions is None:
        raise ToolError("--alter needs --partitions")
    if action == "create" and given.replica_assignment and (given.partitions or given.replication_factor):
        raise ToolError("--replica-assignment cannot be used with --partitions or --replication-factor")
    only_with = (
        ("config", ("create",)),
        ("partitions", ("create", "alter")),
        ("replication_factor", ("create",)),
        ("replica_assignment", ("create", "alter")),
        ("if_exists", ("alter", "delete", "describe")),
        ("if_not_exists", ("create",)),
        ("exclude_internal", ("list", "describe")),
        ("topics_with_overrides", ("describe",)),
        *((report, ("describe",)) for report in _REPORTS),
    )
    for attribute, allowed in only_with:
        if getattr(given, attribute) and action not in allowed:
            name = attribute.replace("_", "-")
            raise ToolError(f"--{name} cannot be used with --{action}, only with --{' or --'.join(allowed)}")
    if given.topics_with_overrides and any(getattr(given, report) for report in _REPORTS):
        raise ToolError("--topics-with-overrides cannot be used with a filter of partitions")
    if given.delete_config:
        warn(given, "--delete-config is no longer supported; use kafka-configs --alter --delete-config")
    return action


def _create(given: argparse.Namespace, admin: Admin) -> None:
    from ottla.cli.framework.errors import Refused
    from ottla.client.admin.topics import create_topic
    from ottla.wire.errors import ErrorCode

    configs = _configs(given.config)
    if "." in given.topic or "_" in given.topic:
        print(_COLLISION)
    factor = given.replication_factor
    if factor is not None and not 1 <= factor <= _FACTOR_MAX:
        raise TopicError(f"The replication factor must be between 1 and {_FACTOR_MAX} inclusive")
    if given.partitions is not None and given.partitions < 1:
        raise TopicError("The partitions must be greater than 0")
    assignment = _assignment(given.replica_assignment)
    try:
        result = admin.call(
            create_topic,
            given.topic,
            partitions=given.partitions,
            replication_factor=factor,
            configs=configs,
            assignment=assignment,
        )
    except Refused as error:
        if error.code == ErrorCode.topic_already_exists and given.if_not_exists:
            return
        raise
    data = {"topic": result.name, "topicId": result.topic_id, "partitions": result.num_partitions}
    show(given, data, [f"Created topic {given.topic}."])


def _list(given: argparse.Namespace, admin: Admin) -> None:
    names = _chosen(given, admin)
    show(given, names, ["\n".join(names)])


def _alter(given: argparse.Namespace, admin: Admin) -> None:
    from ottla.client.admin.topics import add_partitions, describe_topics

    names = _chosen(given, admin, must_exist=not given.if_exists)
    assignment = _assignment(given.replica_assignment)
    present = {topic.name: len(topic.partitions) for topic in admin.call(describe_topics, names)}
    if not names:
        return
    added = {name: assignment[present[name] :] for name in names} if assignment else None
    admin.call(add_partitions, names, given.partitions, added)
    show(given, [{"topic": name, "partitions": given.partitions} for name in names], [])


def _delete(given: argparse.Namespace, admin: Admin) -> None:
    from ottla.client.admin.topics import delete_topics

    names = _chosen(given, admin, must_exist=not given.if_exists)
    if names:
        admin.call(delete_topics, names)
    show(given, {"deleted": names}, [])


def _describe(given: argparse.Namespace, admin: Admin) -> None:
    from ottla.cli.framework.errors import Refused
    from ottla.client.admin.configs import TOPIC, describe_configs
    from ottla.client.admin.replicas import list_reassignments
    from ottla.client.admin.topics import describe_topics

    names = _chosen(given, admin, must_exist=not given.if_exists)
    topics = admin.call(describe_topics, names, given.partition_size_limit_per_response or 2000)
    moves: Moves = {}
    with suppress(Refused):
        # Who may not ask, or asks a cluster that does not know, is shown the rest.
        found = admin.call(list_reassignments)
        moves = {(partition.topic, partition.number): move for partition, move in found.items()}
    settings = admin.call(describe_configs, TOPIC, [topic.name for topic in topics])
    live = set(admin.nodes())
    filtered = any(getattr(given, report) for report in _REPORTS)
    shown: list[tuple[TopicState | None, list[Setting], list[tuple[str, PartitionState]]]] = []
    for topic in topics:
        overrides = [setting for setting in settings[topic.name] if not setting.is_default]
        has_head = not filtered and (not given.topics_with_overrides or bool(overrides))
        min_isr = next(
            (int(s.value or 1) for s in settings[topic.name] if s.name == "min.insync.replicas"), 1
        )
        partitions = [
            (topic.name, partition)
            for partition in topic.partitions
            if not given.topics_with_overrides
            and (not filtered or _is_reported(given, topic.name, partition, moves, min_isr, live))
        ]
        shown.append((topic if has_head else None, overrides, partitions))
    show(
        given, _described_data(shown, moves), _described_lines(shown, moves), _described_tables(shown, moves)
    )


def _is_reported(
    given: argparse.Namespace,
    topic: str,
    partition: PartitionState,
    moves: Moves,
    min_isr: int,
    live: set[int],
) -> bool:
    has_leader = partition.leader >= 0
    factor = _factor_of(topic, partition, moves)
    return bool(
        (given.under_replicated_partitions and len(partition.isr) < factor)
        or (given.unavailable_partitions and (not has_leader or partition.leader not in live))
        or (given.under_min_isr_partitions and (not has_leader or len(partition.isr) < min_isr))
        or (given.at_min_isr_partitions and len(partition.isr) == min_isr)
    )


def _described_lines(shown: Any, moves: Moves) -> Iterator[str]:
    for topic, overrides, partitions in shown:
        if topic is not None:
            yield (
                f"Topic: {topic.name}\tTopicId: {_id(topic)}\tPartitionCount: {len(topic.partitions)}"
                f"\tReplicationFactor: {_factor(topic, moves)}\tConfigs: {_overrides(overrides)}"
            )
        for name, partition in partitions:
            leader = partition.leader if partition.leader >= 0 else "none"
            yield (
                f"\tTopic: {name}\tPartition: {partition.number}\tLeader: {leader}"
                f"\tReplicas: {_ids(partition.replicas)}\tIsr: {_ids(partition.isr)}"
                f"{_moved(moves.get((name, partition.number)))}"
                f"\tElr: {_ids(partition.elr)}\tLastKnownElr: {_ids(partition.last_known_elr)}"
            )


def _described_tables(shown: Any, moves: Moves) -> Iterator[Table]:
    for topic, overrides, partitions in shown:
        title = ""
        if topic is not None:
            factor = _factor(topic, moves)
            title = f"{topic.name}  id {_id(topic)}  replication {factor}  {_overrides(overrides)}"
        rows = [
            (
                name,
                partition.number,
                partition.leader if partition.leader >= 0 else "none",
                _ids(partition.replicas),
                _ids(partition.isr),
                _ids(partition.elr),
            )
            for name, partition in partitions
        ]
        if rows or title:
            yield Table(("Topic", "Partition", "Leader", "Replicas", "Isr", "Elr"), rows, title)


def _described_data(shown: Any, moves: Moves) -> list[dict[str, Any]]:
    described = []
    for topic, overrides, partitions in shown:
        head = {}
        if topic:
            factor = _factor(topic, moves)
            head = {"topic": topic.name, "topicId": _id(topic), "replicationFactor": factor}
        described.append(
            {
                **head,
                "configs": {setting.name: setting.value for setting in overrides},
                "partitions": [
                    {
                        "topic": name,
                        "partition": partition.number,
                        "leader": partition.leader,
                        "replicas": partition.replicas,
                        "isr": partition.isr,
                        "elr": partition.elr,
                        "lastKnownElr": partition.last_known_elr,
                    }
                    for name, partition in partitions
                ],
            }
        )
    return described


def _chosen(given: argparse.Namespace, admin: Admin, *, must_exist: bool = False) -> list[str]:
    """The topics that --topic or --topic-id name; all without them."""
    from ottla.cli.cluster.name_patterns import matching
    from ottla.client.admin.topics import list_topics

    topics = admin.call(list_topics)
    names = [name for name, topic in topics.items() if not (given.exclude_internal and topic.internal)]
    if given.topic_id:
        found = [name for name in names if _id(topics[name]) == given.topic_id]
        if not found and must_exist:
            raise TopicError(f"TopicId '{given.topic_id}' does not exist as expected")
        return found
    if given.topic:
        found = matching(names, given.topic)
        if not found and must_exist:
            raise TopicError(f"Topic '{given.topic}' does not exist as expected")
        return found
    return names


def _configs(given: list[str]) -> dict[str, str]:
    return {name: value.strip() for name, value in pairs("config", given).items()}


def _assignment(text: str | None) -> list[list[int]]:
    """`1:2,2:3` is partition 0 on brokers 1 and 2, partition 1 on 2 and 3."""
    if not text:
        return []
    try:
        assignment = [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise ToolError(f"--replica-assignment {text}: must be broker ids as 1:2,2:3") from None
    for index, brokers in enumerate(assignment):
        if len(set(brokers)) != len(brokers):
            raise ToolError(f"--replica-assignment {text}: partition {index} names a broker twice")
        if len(brokers) != len(assignment[0]):
            raise ToolError(f"--replica-assignment {text}: partition {index} has another number of replicas")
    return assignment


def _ids(ids: tuple[int, ...] | None) -> str:
    return "N/A" if ids is None else ",".join(map(str, ids))


def _id(topic: TopicState) -> str:
    from ottla.metadata.uuids import uuid_text

    return uuid_text(topic.id) if topic.id else ""


def _factor(topic: TopicState, moves: Moves) -> int:
    return _factor_of(topic.name, topic.partitions[0], moves) if topic.partitions else 0


def _factor_of(topic: str, partition: PartitionState, moves: Moves) -> int:
    """Replicas that are only being added do not count yet."""
    move = moves.get((topic, partition.number))
    return len(partition.replicas) if move is None else len(move.replicas) - len(move.adding)


def _moved(move: Reassignment | None) -> str:
    if move is None:
        return ""
    return f"\tAdding Replicas: {_ids(move.adding)}\tRemoving Replicas: {_ids(move.removing)}"


def _overrides(settings: list[Setting]) -> str:
    return ",".join(f"{setting.name}={setting.value}" for setting in settings)


_RUN = {"list": _list, "describe": _describe, "create": _create, "alter": _alter, "delete": _delete}

TOOL = Tool(
    name="topics",
    description="Create, list, describe, grow and delete topics.",
    run=run,
    options=(
        BOOTSTRAP_SERVER,
        COMMAND_CONFIG,
        Option("list", "list topics"),
        Option("create", "create a topic"),
        Option("delete", "delete topics"),
        Option("alter", "add partitions to topics"),
        Option("describe", "show the partitions of topics and where their replicas are"),
        Option("topic", "the topic; a regular expression except with --create", "TOPIC"),
        Option("topic-id", "the id of a topic to describe", "ID"),
        Option("config", "a setting of the topic being created; may be repeated", "NAME=VALUE", repeats=True),
        Option("delete-config", "no longer supported; use kafka-configs", "NAME", repeats=True),
        Option("partitions", "how many partitions the topic has, or shall have", "COUNT", int),
        Option("replication-factor", "how many replicas each partition has", "COUNT", int),
        Option("replica-assignment", "brokers of each partition, as 1:2,2:3", "BROKERS"),
        Option("under-replicated-partitions", "describe only partitions that lack replicas in sync"),
        Option("unavailable-partitions", "describe only partitions whose leader is not available"),
        Option("under-min-isr-partitions", "describe only partitions below min.insync.replicas"),
        Option("at-min-isr-partitions", "describe only partitions at min.insync.replicas"),
        Option("topics-with-overrides", "describe only topics with settings of their own"),
        Option("if-exists", "do nothing where the topic does not exist"),
        Option("if-not-exists", "do nothing where the topic exists already"),
        Option("exclude-internal", "leave out internal topics"),
        Option("partition-size-limit-per-response", "partitions per answer of a broker", "COUNT", int),
    ),
    examples=(
        "--bootstrap-server localhost:9092 --create --topic orders --partitions 6",
        "--bootstrap-server localhost:9092 --describe --topic orders",
    ),
)
