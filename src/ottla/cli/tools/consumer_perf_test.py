"""`kafka-consumer-perf-test`: how fast the records of a topic can be read."""

from __future__ import annotations

import argparse
import random
import re
import time
from typing import Any

from ottla.cli.framework import properties
from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import progress, show, warn
from ottla.cli.framework.tool import BOOTSTRAP_SERVER, COMMAND_CONFIG, Option, Tool

_MIB = 1024 * 1024
_BATCH_MAX = 2000
_POLL_SECONDS = 0.1
_DATE_PARTS = {
    "yyyy": "%Y",
    "yy": "%y",
    "MMM": "%b",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
    "Z": "%z",
    "z": "%Z",
}
_DATE_PART = re.compile(f"S+|{'|'.join(_DATE_PARTS)}")
_LATER = "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"


def run(given: argparse.Namespace) -> int:
    from ottla.cli.cluster import clients
    from ottla.cli.cluster.admin import cluster

    settings = _settings(given)
    with cluster(given, settings) as admin:
        if given.topic is not None:
            clients.ensure_topic(admin, given.topic)
    if not given.hide_header and not given.json:
        first = "time, threadId" if given.show_detailed_stats else "start.time, end.time"
        print(f"{first}, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, {_LATER}", flush=True)
    test = _Test(given, clients.consumer(given, settings))
    with progress(given.num_records, f"reading {given.topic or given.include}") as report:
        test.run(report)
    totals = test.totals()
    line = ", ".join(f"{value:.4f}" if isinstance(value, float) else str(value) for value in totals.values())
    show(given, totals, [] if given.show_detailed_stats else [line])
    return 0


class _Test:
    def __init__(self, given: argparse.Namespace, consumer: Any) -> None:
        self._given = given
        self._consumer = consumer
        self._began = self._joined = time.time()
        self._ended = self._began
        self._bytes = 0
        self._records = 0

    def run(self, report: Any) -> None:
        given = self._given
        topics = [given.topic] if given.topic is not None else [f"^({given.include})$"]
        self._consumer.subscribe(topics, on_assign=self._assigned)
        heard = reported = time.monotonic()
        reported_bytes = reported_records = 0
        while self._records < given.num_records and time.monotonic() - heard <= given.timeout / 1000:
            messages = self._consumer.consume(
                min(_BATCH_MAX, given.num_records - self._records), _POLL_SECONDS
            )
            now = time.monotonic()
            for message in messages:
                if message.error() is None:
                    self._records += 1
                    self._bytes += len(message) + len(message.key() or b"")
                    heard = now
            if messages and now - reported >= given.reporting_interval / 1000:
                report(self._records)
                if given.show_detailed_stats and not given.json:
                    seconds = now - reported
                    mib = (self._bytes - reported_bytes) / _MIB / seconds
                    rate = (self._records - reported_records) / seconds
                    print(
                        f"{self._date(time.time())}, 0, {self._bytes / _MIB:.4f}, {mib:.4f}, "
                        f"{self._records}, {rate:.4f}, 0, {int(seconds * 1000)}, {mib:.4f}, {rate:.4f}",
                        flush=True,
                    )
                reported, reported_bytes, reported_records = now, self._bytes, self._records
        self._ended = time.time()
        self._consumer.close()
        if self._records < given.num_records:
            warn(
                given,
                f"Exiting before consuming the expected number of records: timeout ({given.timeout} ms) "
                "exceeded. You can use the --timeout option to increase the timeout.",
            )

    def totals(self) -> dict[str, Any]:
        seconds = max(self._ended - self._began, 1e-9)
        joining_ms = int((self._joined - self._began) * 1000)
        fetching_ms = int(seconds * 1000) - joining_ms
        fetching_s = max(fetching_ms / 1000, 1e-9)
        return {
            "start.time": self._date(self._began),
            "end.time": self._date(self._ended),
            "data.consumed.in.MB": self._bytes / _MIB,
            "MB.sec": self._bytes / _MIB / seconds,
            "data.consumed.in.nMsg": self._records,
            "nMsg.sec": self._records / seconds,
            "rebalance.time.ms": joining_ms,
            "fetch.time.ms": fetching_ms,
            "fetch.MB.sec": self._bytes / _MIB / fetching_s,
            "fetch.nMsg.sec": self._records / fetching_s,
        }

    def _assigned(self, consumer: Any, partitions: Any) -> None:
        if self._joined == self._began:
            self._joined = time.time()

    def _date(self, seconds: float) -> str:
        return java_date(seconds, self._given.date_format)


def java_date(seconds: float, pattern: str) -> str:
    """With the letters that stand for parts of a date in Java; quotes are not told apart."""
    moment = time.localtime(seconds)

    def part(match: re.Match[str]) -> str:
        if match[0][0] == "S":
            return f"{int(seconds * 1000) % 1000:0{len(match[0])}d}"
        return time.strftime(_DATE_PARTS[match[0]], moment)

    return _DATE_PART.sub(part, pattern)


def _settings(given: argparse.Namespace) -> dict[str, str]:
    if (given.topic is None) == (given.include is None):
        raise ToolError("give exactly one of --topic or --include")
    given.num_records = given.num_records if given.num_records is not None else given.messages
    if given.num_records is None:
        raise ToolError("--num-records is required")
    path = given.command_config or given.consumer_config
    settings = properties.merged("command-property", path, given.command_property)
    settings["bootstrap.servers"] = given.bootstrap_server
    settings["group.id"] = given.group or f"perf-consumer-{random.randrange(100_000)}"
    settings["auto.offset.reset"] = "latest" if given.from_latest else "earliest"
    settings["max.partition.fetch.bytes"] = str(given.fetch_size)
    settings["receive.buffer.bytes"] = str(given.socket_buffer_size)
    settings["check.crcs"] = "false"
    settings.setdefault("client.id", "perf-consumer-client")
    return settings


TOOL = Tool(
    name="consumer-perf-test",
    description="Measure how fast the records of a topic can be read.",
    run=run,
    options=(
        BOOTSTRAP_SERVER,
        Option("topic", "the topic to read", "TOPIC"),
        Option("include", "a regular expression of topics to read", "REGEX"),
        Option("num-records", "how many records to read", "COUNT", int),
        Option("group", "the consumer group to read in", "GROUP"),
        Option("from-latest", "begin at the end where the group has no offsets yet"),
        Option("fetch-size", "bytes of one partition in one request", "BYTES", int, default=1024 * 1024),
        Option("socket-buffer-size", "bytes of the receive buffer", "BYTES", int, default=2 * 1024 * 1024),
        Option("timeout", "end when no record has come for so long", "MS", int, default=10_000),
        Option("reporting-interval", "how often to report", "MS", int, default=5000),
        Option("show-detailed-stats", "report at every interval instead of at the end"),
        Option("date-format", "how moments are written", "FORMAT", default="yyyy-MM-dd HH:mm:ss:SSS"),
        Option("hide-header", "do not print the names of the columns"),
        COMMAND_CONFIG,
        Option("command-property", "a setting of the consumer; may be repeated", "KEY=VALUE", repeats=True),
        Option("consumer.config", "the old name of --command-config", "FILE"),
        Option("messages", "the old name of --num-records", "COUNT", int),
        Option("print-metrics", "accepted for compatibility"),
    ),
    examples=("--bootstrap-server localhost:9092 --topic load --num-records 1000000",),
)
