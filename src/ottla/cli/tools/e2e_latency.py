"""`kafka-e2e-latency`: the time from a producer through the broker to a consumer, one record at a time."""

from __future__ import annotations

import argparse
import random
import time
from typing import TYPE_CHECKING, Any

from ottla.cli.framework import properties
from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import show
from ottla.cli.framework.tool import Argument, Option, Tool

if TYPE_CHECKING:
    from ottla.cli.cluster.admin import Admin

_POLL_SECONDS = 60
_POSITIONAL = ("bootstrap_server", "topic", "num_records", "producer_acks", "record_size", "command_config")
_REQUIRED = _POSITIONAL[:5]
_REPORT_EVERY = 1000
# Of a topic that is made for the test.
_PARTITIONS = 1
_FACTOR = 1


def run(given: argparse.Namespace) -> int:
    from confluent_kafka import TopicPartition

    from ottla.cli.cluster import clients
    from ottla.cli.cluster.admin import cluster
    from ottla.cli.cluster.latencies import percentile
    from ottla.client.admin.topics import Partition, find_topics, offsets_or_fail
    from ottla.client.cluster import LATEST

    _take_positional(given)
    base = {**properties.merged("", given.command_config), "bootstrap.servers": given.bootstrap_server}
    lines: list[str] = []
    with cluster(given, base) as admin:
        if not admin.call(find_topics, [given.topic]):
            _create(given, admin)
            lines.append(
                f'Topic "{given.topic}" does not exist. Will create topic with {_PARTITIONS} partition(s) '
                f"and replication factor = {_FACTOR}"
            )
        partitions = [Partition(given.topic, n) for n in range(clients.ensure_topic(admin, given.topic))]
        ends = admin.call(offsets_or_fail, dict.fromkeys(partitions, LATEST))
    group = {"group.id": f"test-group-{time.time_ns()}", "enable.auto.commit": "false"}
    consumer = clients.consumer(given, {**base, **group, "fetch.wait.max.ms": "0"})
    consumer.assign([TopicPartition(p.topic, p.number, end.offset) for p, end in ends.items()])
    producer = clients.producer(given, {**base, "acks": given.producer_acks, "linger.ms": "0"})
    draw = random.Random(0)
    latencies_ms: list[float] = []
    try:
        for number in range(given.num_records):
            value, key = _text(draw, given.record_size), _text(draw, given.record_key_size) or None
            headers = [
                (_text(draw, given.record_header_key_size).decode(), _header_value(given, draw))
                for _ in range(given.num_headers)
            ]
            began = time.perf_counter()
            _send(producer, given.topic, value, key, headers)
            received = consumer.poll(_POLL_SECONDS)
            latencies_ms.append((time.perf_counter() - began) * 1000)
            if received is None:
                raise ToolError(f"no record has come back within {_POLL_SECONDS} s")
            if (error := received.error()) is not None:
                raise ToolError(error.str())
            if received.value() != value or received.key() != key or (received.headers() or []) != headers:
                raise ToolError("the record that was read is not the one that was written")
            if number % _REPORT_EVERY == 0:
                lines.append(f"{number}\t{latencies_ms[-1]}")
    finally:
        consumer.close()
    ordered = sorted(latencies_ms)
    average_ms = sum(ordered) / len(ordered)
    p50, p99, p999 = (int(percentile(ordered, part)) for part in (0.5, 0.99, 0.999))
    lines += [
        f"Avg latency: {average_ms:.4f} ms",
        f"Percentiles: 50th = {p50}, 99th = {p99}, 99.9th = {p999}",
    ]
    show(given, {"averageMs": average_ms, "50th": p50, "99th": p99, "99.9th": p999}, lines)
    return 0


def _create(given: argparse.Namespace, admin: Admin) -> None:
    from ottla.cli.framework.errors import check
    from ottla.wire.api import ApiKey

    topic = {"name": given.topic, "num_partitions": _PARTITIONS, "replication_factor": _FACTOR}
    answer = admin.ask(
        ApiKey.CREATE_TOPICS,
        {"topics": [{**topic, "assignments": [], "configs": []}], "timeout": admin.request_timeout_ms},
    )
    check(answer.topics[0].error_code, answer.topics[0].error_message, given.topic)


def _send(producer: Any, topic: str, value: bytes, key: bytes | None, headers: Any) -> None:
    failed: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(error.str())

    producer.produce(topic, value, key, headers=headers or None, on_delivery=delivered)
    producer.flush()
    if failed:
        raise ToolError(f"the record was not written: {failed[0]}")


def _text(draw: random.Random, size: int) -> bytes:
    return bytes([draw.randrange(26) + 65]) * size


def _header_value(given: argparse.Namespace, draw: random.Random) -> bytes | None:
    return None if given.record_header_size < 0 else _text(draw, given.record_header_size)


def _take_positional(given: argparse.Namespace) -> None:
    """`kafka-e2e-latency BROKERS TOPIC RECORDS ACKS BYTES [FILE]`, as it was before Kafka 4.2."""
    for name, value in zip(_POSITIONAL, given.old_arguments, strict=False):
        try:
            setattr(given, name, int(value) if name in {"num_records", "record_size"} else value)
        except ValueError:
            raise ToolError(f"{name.replace('_', '-')} {value}: must be a whole number") from None
    missing = [f"--{name.replace('_', '-')}" for name in _REQUIRED if getattr(given, name) is None]
    if missing:
        raise ToolError(f"Missing required argument(s) {', '.join(missing)}")
    if given.producer_acks not in {"1", "all"}:
        raise ToolError(
            "Latency testing requires synchronous acknowledgement. Please use '1' or 'all' for acks."
        )
    if given.num_records < 1:
        raise ToolError("--num-records must be greater than zero")


TOOL = Tool(
    name="e2e-latency",
    description="Measure the time from a producer through the broker to a consumer.",
    run=run,
    arguments=(Argument("old_arguments", "BROKERS TOPIC RECORDS ACKS BYTES [FILE]", many=True),),
    options=(
        Option("bootstrap-server", "the broker(s) to connect to", "HOST:PORT"),
        Option("topic", "the topic to use", "TOPIC"),
        Option("num-records", "how many records to send", "COUNT", int),
        Option("producer-acks", "1 or all", "ACKS"),
        Option("record-size", "bytes of each record", "BYTES", int),
        Option("record-key-size", "bytes of each key; 0 for none", "BYTES", int, default=0),
        Option("num-headers", "headers of each record", "COUNT", int, default=0),
        Option("record-header-key-size", "bytes of each header's name", "BYTES", int, default=0),
        Option("record-header-size", "bytes of each header's value; -1 for none", "BYTES", int, default=0),
        Option("command-config", "a properties file with settings of the clients", "FILE"),
    ),
    examples=(
        "--bootstrap-server localhost:9092 --topic probe --num-records 1000 --producer-acks all "
        "--record-size 100",
    ),
)
