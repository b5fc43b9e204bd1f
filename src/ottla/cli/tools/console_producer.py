"""`kafka-console-producer`: lines from standard input become records."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from ottla.cli.framework import properties
from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import show
from ottla.cli.framework.renamed_options import take_renamed
from ottla.cli.framework.tool import BOOTSTRAP_SERVER, COMMAND_CONFIG, Option, Tool

_POLL_EVERY = 1000
_FLUSH_SECONDS = 0.2
_RENAMED = (
    ("producer-property", "command-property"),
    ("producer.config", "command-config"),
    ("property", "reader-property"),
    ("max-partition-memory-bytes", "batch-size"),
)


def run(given: argparse.Namespace) -> int:
    from ottla.cli.cluster import clients
    from ottla.cli.cluster.admin import cluster
    from ottla.cli.cluster.lines import LineReader

    take_renamed(given, _RENAMED)
    if given.line_reader.rpartition(".")[2] != "LineMessageReader":
        raise ToolError(f"--line-reader {given.line_reader} is unknown; there is only LineMessageReader")
    reader = LineReader(properties.merged("reader-property", given.reader_config, given.reader_property))
    settings = _settings(given)
    with cluster(given, settings) as admin:
        clients.ensure_topic(admin, given.topic)
    producer = clients.producer(given, settings)
    failures: list[str] = []
    sent = 0

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(error.str())
            print(f"{given.prog}: a record was not written to {given.topic}: {error.str()}", file=sys.stderr)

    from confluent_kafka import KafkaException

    try:
        for record in reader.records(_lines()):
            _produce(producer, given.topic, record, delivered)
            sent += 1
            if given.sync:
                producer.flush()
            elif sent % _POLL_EVERY == 0:
                producer.poll(0)
    except KafkaException as error:
        # Nothing that follows could be written either.
        delivered(error.args[0], None)
    finally:
        while producer.flush(_FLUSH_SECONDS):
            pass
    if given.json:
        show(given, {"topic": given.topic, "sent": sent - len(failures), "failed": len(failures)}, [])
    return 1 if failures else 0


def _produce(producer: Any, topic: str, record: Any, delivered: Any) -> None:
    while True:
        try:
            producer.produce(
                topic, record.value, record.key, headers=record.headers or None, on_delivery=delivered
            )
            return
        except BufferError:
            # The queue is full: wait until the broker has taken some of it.
            producer.poll(_FLUSH_SECONDS)


def _lines() -> Iterator[str]:
    if not sys.stdin.isatty():
        with open(sys.stdin.fileno(), encoding="utf-8", errors="surrogateescape", closefd=False) as lines:
            yield from lines
        return
    while True:
        try:
            yield input(">")
        except EOFError:
            print()
            return


def _settings(given: argparse.Namespace) -> dict[str, str]:
    settings = properties.merged("command-property", given.command_config, given.command_property)
    settings["bootstrap.servers"] = given.bootstrap_server
    settings.setdefault("client.id", "console-producer")
    if given.compression_codec:
        settings["compression.type"] = given.compression_codec
    for name, value in (
        ("linger.ms", given.timeout),
        ("acks", given.request_required_acks),
        ("request.timeout.ms", given.request_timeout_ms),
        ("retries", given.message_send_max_retries),
        ("retry.backoff.ms", given.retry_backoff_ms),
        ("send.buffer.bytes", given.socket_buffer_size),
        ("buffer.memory", given.max_memory_bytes),
        ("batch.size", given.batch_size),
        ("metadata.max.age.ms", given.metadata_expiry_ms),
    ):
        if value is not None:
            settings[name] = str(value)
    return settings


TOOL = Tool(
    name="console-producer",
    description="Write lines from standard input to a topic, one record each.",
    run=run,
    options=(
        BOOTSTRAP_SERVER,
        Option("topic", "the topic to write to", "TOPIC", required=True),
        COMMAND_CONFIG,
        Option("command-property", "a setting of the producer; may be repeated", "KEY=VALUE", repeats=True),
        Option(
            "reader-property",
            "how lines are read: parse.key, key.separator (tab), parse.headers, headers.delimiter (tab), "
            "headers.separator (,), headers.key.separator (:), null.marker, ignore.error; may be repeated",
            "KEY=VALUE",
            repeats=True,
        ),
        Option("reader-config", "a properties file with how lines are read", "FILE"),
        Option("sync", "wait for each record to be acknowledged before the next"),
        Option(
            "compression-codec",
            "none, gzip, snappy, lz4 or zstd; gzip without a value",
            "CODEC",
            value_if_bare="gzip",
        ),
        Option("batch-size", "bytes of records sent together", "BYTES", int),
        Option("message-send-max-retries", "how often a record is sent again", "COUNT", int),
        Option("retry-backoff-ms", "how long to wait before a retry", "MS", int),
        Option("timeout", "how long a record may wait for others to be sent with it", "MS", int),
        Option("request-required-acks", "0, 1 or all", "ACKS"),
        Option("request-timeout-ms", "how long the broker may take for a request", "MS", int),
        Option("metadata-expiry-ms", "how old what is known of the cluster may become", "MS", int),
        Option("max-block-ms", "accepted for compatibility", "MS", int),
        Option("max-memory-bytes", "bytes of records that may wait to be sent", "BYTES", int),
        Option("socket-buffer-size", "bytes of the socket's send buffer", "BYTES", int),
        Option("line-reader", "the class that reads lines", "CLASS", default="LineMessageReader"),
        Option("property", "the old name of --reader-property", "KEY=VALUE", repeats=True),
        Option("producer-property", "the old name of --command-property", "KEY=VALUE", repeats=True),
        Option("producer.config", "the old name of --command-config", "FILE"),
        Option("max-partition-memory-bytes", "the old name of --batch-size", "BYTES", int),
    ),
    examples=(
        "--bootstrap-server localhost:9092 --topic orders",
        "--bootstrap-server localhost:9092 --topic orders --reader-property parse.key=true < orders.tsv",
    ),
)
