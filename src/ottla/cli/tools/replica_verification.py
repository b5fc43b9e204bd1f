"""`kafka-replica-verification`: reads all replicas side by side, for ever, and tells where they differ."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import show_record
from ottla.cli.framework.tool import Option, Tool

if TYPE_CHECKING:
    from ottla.cli.cluster.admin import Admin
    from ottla.client.admin.topics import Partition

_LATEST, _EARLIEST = -1, -2


def run(given: argparse.Namespace) -> int:
    from ottla.cli.cluster.admin import cluster
    from ottla.client.admin.topics import Partition, list_topics

    try:
        matches = re.compile(given.topics_include).fullmatch
    except re.error:
        raise ToolError(f"--topics-include {given.topics_include}: is an invalid regex") from None
    given.bootstrap_server = given.broker_list
    with cluster(given, {}) as admin:
        replicas = {
            Partition(topic.name, state.number): state.replicas
            for topic in admin.call(list_topics).values()
            if matches(topic.name)
            for state in topic.partitions
        }
        if not replicas:
            raise ToolError("No topics found. --topics-include, if given, leaves out all topics there are.")
        offsets = _first_offsets(given, admin, list(replicas))
        _say(given, "verification process is started", {"event": "started", "partitions": len(replicas)})
        return _verify(given, admin, replicas, offsets)


def _first_offsets(
    given: argparse.Namespace, admin: Admin, partitions: list[Partition]
) -> dict[Partition, int]:
    from ottla.client.admin.topics import offsets_or_fail

    found = admin.call(offsets_or_fail, dict.fromkeys(partitions, given.time))
    late = [partition for partition, at in found.items() if at.offset < 0]
    # No record is that young: what comes from here on is.
    ends = admin.call(offsets_or_fail, dict.fromkeys(late, _LATEST)) if late else {}
    return {partition: (ends.get(partition) or at).offset for partition, at in found.items()}


def _verify(
    given: argparse.Namespace,
    admin: Admin,
    replicas: dict[Partition, tuple[int, ...]],
    offsets: dict[Partition, int],
) -> int:
    """Until it is interrupted, or replicas have gone different ways."""
    from ottla.cli.cluster.replica_comparison import compare
    from ottla.client.admin.replicas import fetch_replicas

    wanted: dict[int, list[Partition]] = defaultdict(list)
    for partition, brokers in replicas.items():
        for broker in brokers:
            wanted[broker].append(partition)
    reported_s = time.monotonic()
    while True:
        round_wanted = {
            broker: {partition: offsets[partition] for partition in partitions}
            for broker, partitions in wanted.items()
        }
        fetched = admin.call(
            fetch_replicas, round_wanted, max_wait_ms=given.max_wait_ms, partition_max_bytes=given.fetch_size
        )
        lag_max, slowest = -1, next(iter(replicas))
        for partition, brokers in replicas.items():
            answers = {
                broker: fetched[broker][partition] for broker in brokers if partition in fetched[broker]
            }
            # Of a broker that is down nothing can be said; it is waited for.
            if len(answers) == len(brokers):
                compared = compare(answers, offsets[partition])
                for fault in compared.faults:
                    difference = {
                        "event": "difference",
                        "partition": str(partition),
                        "text": fault.strip(" :"),
                    }
                    _say(given, f"partition {partition}{fault}", difference)
                if compared.is_hopeless:
                    return 1
                offsets[partition] = compared.next_offset
            high = max((each.high_watermark for each in answers.values()), default=-1)
            if high - offsets[partition] > lag_max:
                lag_max, slowest = high - offsets[partition], partition
        if (time.monotonic() - reported_s) * 1000 > given.report_interval_ms:
            reported_s = time.monotonic()
            text = (
                f"max lag is {lag_max} for partition {slowest} at offset {offsets[slowest]} "
                f"among {len(replicas)} partitions"
            )
            data = {"event": "lag", "lag": lag_max, "partition": str(slowest), "offset": offsets[slowest]}
            _say(given, text, data)


def _say(given: argparse.Namespace, text: str, data: Mapping[str, object]) -> None:
    if given.json:
        show_record(data)
        return
    now = datetime.now()
    print(f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03d}: {text}")
    sys.stdout.flush()


TOOL = Tool(
    name="replica-verification",
    description="Read all replicas of topics side by side, until interrupted, and tell where they differ.",
    run=run,
    options=(
        Option("broker-list", "the broker(s) to connect to", "HOST:PORT", required=True),
        Option("topics-include", "an expression for the names of topics", "REGEX", default=".*"),
        Option(
            "time",
            "a timestamp in milliseconds to begin at, -1 for the end, -2 for the beginning",
            "MS",
            int,
            -1,
        ),
        Option("fetch-size", "bytes of a partition per request", "BYTES", int, 1048576),
        Option("max-wait-ms", "how long brokers wait for records", "MS", int, 1000),
        Option("report-interval-ms", "how often to report the lag", "MS", int, 30000),
    ),
    examples=("--broker-list localhost:9092 --topics-include orders --time -2",),
)
