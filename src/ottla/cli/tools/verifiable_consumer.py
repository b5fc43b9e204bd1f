"""`kafka-verifiable-consumer`: reads in a group and tells in JSON what it got and committed."""

from __future__ import annotations

import argparse
import signal
from collections import defaultdict
from typing import Any

from ottla.cli.framework import properties
from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.tool import BOOTSTRAP_SERVER, COMMAND_CONFIG, Option, Tool
from ottla.cli.tools.verifiable_producer import event

_BATCH_MAX = 500
_POLL_SECONDS = 0.1


def run(given: argparse.Namespace) -> int:
    from ottla.cli.cluster import clients
    from ottla.cli.cluster.admin import cluster

    settings = _settings(given)
    with cluster(given, settings) as admin:
        clients.ensure_topic(admin, given.topic)
    consumer = clients.consumer(given, settings)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    event("startup_complete")
    requested = False
    try:
        consumer.subscribe([given.topic], on_assign=_assigned, on_revoke=_revoked)
        _consume(given, consumer)
    except KeyboardInterrupt:
        requested = True
        event("shutdown_requested")
    finally:
        consumer.close()
    event("shutdown_complete")
    if not requested:
        # Kafka's tool reports its own end, too, and so what drives it expects this.
        event("shutdown_requested")
    return 0


def _consume(given: argparse.Namespace, consumer: Any) -> None:
    left = given.max_messages
    while left:
        wanted = _BATCH_MAX if left < 0 else min(left, _BATCH_MAX)
        ranges: dict[tuple[str, int], list[int]] = defaultdict(list)
        count = 0
        for message in consumer.consume(wanted, _POLL_SECONDS):
            if (error := message.error()) is not None:
                if not error.retriable():
                    raise ToolError(error.str())
                continue
            count += 1
            ranges[message.topic(), message.partition()].append(message.offset())
            if given.verbose:
                key, value = (
                    part and part.decode("utf-8", "replace") for part in (message.key(), message.value())
                )
                event(
                    "record_data",
                    key=key,
                    value=value,
                    topic=message.topic(),
                    partition=message.partition(),
                    offset=message.offset(),
                )
        if not count:
            continue
        left -= count if left > 0 else 0
        read = [
            {
                "topic": topic,
                "partition": number,
                "count": len(offsets),
                "minOffset": min(offsets),
                "maxOffset": max(offsets),
            }
            for (topic, number), offsets in sorted(ranges.items())
        ]
        event("records_consumed", count=count, partitions=read)
        if not given.enable_autocommit:
            _commit(consumer, {place: max(offsets) + 1 for place, offsets in ranges.items()})


def _commit(consumer: Any, offsets: dict[tuple[str, int], int]) -> None:
    from confluent_kafka import KafkaException, TopicPartition

    shown = [
        {"topic": topic, "partition": number, "offset": offset}
        for (topic, number), offset in sorted(offsets.items())
    ]
    try:
        places = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
        consumer.commit(offsets=places, asynchronous=False)
        event("offsets_committed", offsets=shown, success=True)
    except KafkaException as error:
        event("offsets_committed", offsets=shown, error=error.args[0].str(), success=False)


def _places(partitions: Any) -> list[dict[str, Any]]:
    return [{"topic": place.topic, "partition": place.partition} for place in partitions]


def _assigned(consumer: Any, partitions: Any) -> None:
    event("partitions_assigned", partitions=_places(partitions))


def _revoked(consumer: Any, partitions: Any) -> None:
    event("partitions_revoked", partitions=_places(partitions))


def _settings(given: argparse.Namespace) -> dict[str, str]:
    settings = properties.merged("", given.command_config or given.consumer_config)
    settings["bootstrap.servers"] = given.bootstrap_server
    settings["group.id"] = given.group_id
    settings["group.protocol"] = given.group_protocol
    settings["enable.auto.commit"] = "true" if given.enable_autocommit else "false"
    settings["auto.offset.reset"] = given.reset_policy
    if given.group_instance_id:
        settings["group.instance.id"] = given.group_instance_id
    if given.group_protocol == "consumer":
        if given.group_remote_assignor:
            settings["group.remote.assignor"] = given.group_remote_assignor
    else:
        settings["partition.assignment.strategy"] = given.assignment_strategy
        settings["session.timeout.ms"] = str(given.session_timeout)
    return settings


TOOL = Tool(
    name="verifiable-consumer",
    description="Read in a consumer group and report in JSON what was assigned, read and committed.",
    run=run,
    options=(
        BOOTSTRAP_SERVER,
        Option("topic", "the topic to read", "TOPIC", required=True),
        Option("group-id", "the consumer group to read in", "GROUP", required=True),
        Option("group-instance-id", "the id of a static member", "ID"),
        Option(
            "group-protocol",
            "classic or consumer",
            "PROTOCOL",
            default="classic",
            choices=("classic", "consumer"),
        ),
        Option("group-remote-assignor", "the broker's assignor, with the consumer protocol", "NAME"),
        Option("max-messages", "end after so many; -1 for never", "COUNT", int, default=-1),
        Option("session-timeout", "when a silent member counts as gone", "MS", int, default=30_000),
        Option("verbose", "report every record"),
        Option("enable-autocommit", "commit in the background instead of after each batch"),
        Option(
            "reset-policy",
            "where to begin without offsets",
            "POLICY",
            default="earliest",
            choices=("earliest", "latest", "none"),
        ),
        Option("assignment-strategy", "assignors of the classic protocol", "CLASS", default="range"),
        COMMAND_CONFIG,
        Option("consumer.config", "the old name of --command-config", "FILE"),
    ),
    examples=("--bootstrap-server localhost:9092 --topic orders --group-id checkers --max-messages 1000",),
)
