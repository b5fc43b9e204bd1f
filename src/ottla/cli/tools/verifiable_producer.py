"""`kafka-verifiable-producer`: numbered records, and a line of JSON for each that was written or was not."""

from __future__ import annotations

import argparse
import signal
import time
from typing import Any

from ottla.cli.framework import properties
from ottla.cli.framework.output import show_record
from ottla.cli.framework.tool import BOOTSTRAP_SERVER, COMMAND_CONFIG, Option, Tool


def run(given: argparse.Namespace) -> int:
    from ottla.cli.cluster import clients
    from ottla.cli.cluster.admin import cluster

    path = given.command_config or given.producer_config
    settings = {
        **properties.merged("", path),
        "bootstrap.servers": given.bootstrap_server,
        "acks": str(given.acks),
    }
    with cluster(given, settings) as admin:
        clients.ensure_topic(admin, given.topic)
    producer = clients.producer(given, settings)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    test = _Test(given, producer)
    event("startup_complete")
    try:
        test.run()
    except KeyboardInterrupt:
        pass
    finally:
        while producer.flush(0.2):
            pass
    event("shutdown_complete")
    test.summarise()
    return 0


class _Test:
    def __init__(self, given: argparse.Namespace, producer: Any) -> None:
        self._given = given
        self._producer = producer
        self._began = time.monotonic()
        self._sent = 0
        self._acked = 0

    def run(self) -> None:
        given = self._given
        timestamp = {} if given.message_create_time < 0 else {"timestamp": given.message_create_time}
        while given.max_messages < 0 or self._sent < given.max_messages:
            number = self._sent
            value = str(number) if given.value_prefix is None else f"{given.value_prefix}.{number}"
            key = None if given.repeating_keys is None else str(number % given.repeating_keys)
            while True:
                try:
                    self._producer.produce(given.topic, value, key, on_delivery=self._delivered, **timestamp)
                    break
                except BufferError:
                    self._producer.poll(0.1)
            self._sent += 1
            self._producer.poll(0)
            if given.throughput > 0:
                ahead_s = self._sent / given.throughput - (time.monotonic() - self._began)
                if ahead_s > 0:
                    self._producer.poll(ahead_s)

    def summarise(self) -> None:
        seconds = max(time.monotonic() - self._began, 1e-9)
        event(
            "tool_data",
            sent=self._sent,
            acked=self._acked,
            target_throughput=self._given.throughput,
            avg_throughput=self._acked / seconds,
        )

    def _delivered(self, error: Any, message: Any) -> None:
        key, value = (None if part is None else part.decode() for part in (message.key(), message.value()))
        if error is not None:
            event(
                "producer_send_error",
                key=key,
                value=value,
                topic=message.topic(),
                message=error.str(),
                exception=error.name(),
            )
            return
        self._acked += 1
        event(
            "producer_send_success",
            key=key,
            value=value,
            offset=message.offset(),
            topic=message.topic(),
            partition=message.partition(),
        )


def event(name: str, **values: Any) -> None:
    """One line of JSON, as harnesses that drive Kafka's tools read it."""
    show_record({"timestamp": time.time_ns() // 1_000_000, "name": name, **values})


TOOL = Tool(
    name="verifiable-producer",
    description="Write numbered records and report each as a line of JSON.",
    run=run,
    options=(
        BOOTSTRAP_SERVER,
        Option("topic", "the topic to write to", "TOPIC", required=True),
        Option("max-messages", "end after so many; -1 for never", "COUNT", int, default=-1),
        Option("throughput", "records per second; -1 for as many as possible", "COUNT", int, default=-1),
        Option("acks", "0, 1 or -1", "ACKS", int, default=-1),
        Option("message-create-time", "the timestamp of all records; -1 for the time", "MS", int, default=-1),
        Option("value-prefix", "what stands before each number", "TEXT"),
        Option("repeating-keys", "keys count from 0 to this and begin again", "COUNT", int),
        COMMAND_CONFIG,
        Option("producer.config", "the old name of --command-config", "FILE"),
    ),
    examples=("--bootstrap-server localhost:9092 --topic orders --max-messages 1000",),
)
