"""`kafka-producer-perf-test`: how fast records can be written, and how long each takes."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from typing import Any

from ottla.cli.framework import properties
from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import progress, show, warn
from ottla.cli.framework.tool import COMMAND_CONFIG, EITHER_SERVER, Option, Tool

# Records are handed to the client in such groups: few enough that they share one clock reading.
_GROUP = 200
_PAYLOADS = 1000
_TRANSACTION_MS = 3000
_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def run(given: argparse.Namespace) -> int:
    from ottla.cli.cluster import clients
    from ottla.cli.cluster.admin import cluster

    settings = _settings(given)
    payload = _payload(given)
    given.bootstrap_server = settings["bootstrap.servers"]
    with cluster(given, settings) as admin:
        clients.ensure_topic(admin, given.topic)
    producer = clients.producer(given, settings)
    test = _Test(given, producer, payload)
    with progress(given.num_records, f"writing to {given.topic}") as report, clients.refusals():
        test.run(report)
    statistics = [test.everything, *([test.steady] if test.steady is not None else [])]
    show(given, [item.totals() for item in statistics], [item.total_line() for item in statistics])
    if test.failures:
        raise ToolError(f"{test.failures} records were not written: {test.failure}")
    return 0


class _Test:
    def __init__(self, given: argparse.Namespace, producer: Any, payload: Callable[[int], bytes]) -> None:
        from ottla.cli.cluster.latencies import Statistics

        self._given = given
        self._producer = producer
        self._payload = payload
        self._key_of = _keys(given)
        self.everything = Statistics()
        self.steady: Statistics | None = None
        self.failures = 0
        self.failure = ""

    def run(self, report: Callable[[int], None]) -> None:
        from ottla.cli.cluster.latencies import Statistics

        given = self._given
        if given.warmup_records:
            self._say(
                f"Warmup first {given.warmup_records} records. Steady state results will print "
                "after the complete test summary."
            )
        transaction = _Transactions(self._producer, given.transaction_duration_ms)
        interval_s = given.reporting_interval / 1000
        began = time.perf_counter()
        sent = 0
        while sent < given.num_records:
            count = min(_GROUP, given.num_records - sent)
            if given.throughput > 0:
                count = min(count, max(given.throughput // 10, 1))
            if given.warmup_records and self.steady is None:
                if sent < given.warmup_records:
                    count = min(count, given.warmup_records - sent)
                else:
                    self.steady = Statistics(steady=True)
            transaction.before_records()
            self._send(sent, count)
            sent += count
            transaction.after_records()
            self._producer.poll(0)
            if self.everything.window_seconds() >= interval_s:
                self._say(self.everything.take_window())
                report(self.everything.count)
            if given.throughput > 0:
                ahead_s = sent / given.throughput - (time.perf_counter() - began)
                if ahead_s > 0:
                    self._producer.poll(ahead_s)
        transaction.end()
        while self._producer.flush(0.2):
            report(self.everything.count)

    def _send(self, first: int, count: int) -> None:
        """The loop that is measured: nothing in it is looked up twice."""
        topic, payload, key_of = self._given.topic, self._payload, self._key_of
        produce, clock = self._producer.produce, time.perf_counter
        record = self.everything.record
        record_steady = None if self.steady is None else self.steady.record
        began = clock()

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self.failures += 1
                self.failure = error.str()
                return
            latency_s = clock() - began
            record(latency_s, len(message))
            if record_steady is not None:
                record_steady(latency_s, len(message))

        for number in range(first, first + count):
            key = None if key_of is None else key_of(number)
            while True:
                try:
                    produce(topic, payload(number), key, on_delivery=delivered)
                    break
                except BufferError:
                    self._producer.poll(0.1)

    def _say(self, line: str) -> None:
        if not self._given.json:
            print(line, flush=True)


def _keys(given: argparse.Namespace) -> Callable[[int], bytes] | None:
    draw = random.Random(given.random_seed)
    match given.key_distribution:
        case "range":
            return lambda number: b"%d" % (number % given.record_key_range)
        case "random":
            return lambda number: b"%d" % draw.randrange(given.record_key_range)
        case _:
            return None


class _Transactions:
    """One after another, each as long as was asked for; nothing happens without."""

    def __init__(self, producer: Any, duration_ms: int | None) -> None:
        self._producer = producer
        self._duration_s = None if duration_ms is None else duration_ms / 1000
        self._began: float | None = None
        if duration_ms is not None:
            self._producer.init_transactions()

    def before_records(self) -> None:
        if self._duration_s is not None and self._began is None:
            self._producer.begin_transaction()
            self._began = time.perf_counter()

    def after_records(self) -> None:
        if self._began is not None and time.perf_counter() - self._began >= (self._duration_s or 0):
            self.end()

    def end(self) -> None:
        if self._began is not None:
            self._producer.commit_transaction()
            self._began = None


def _payload(given: argparse.Namespace) -> Callable[[int], bytes]:
    chosen = [given.record_size is not None, given.payload_file is not None, given.payload_monotonic]
    if sum(chosen) != 1:
        raise ToolError("give exactly one of --record-size, --payload-file or --payload-monotonic")
    if given.key_distribution != "none" and not given.record_key_range:
        raise ToolError(f"--key-distribution {given.key_distribution} needs --record-key-range")
    if given.payload_monotonic:
        return lambda number: b"%d" % number
    draw = random.Random(given.random_seed)
    if given.record_size is not None:
        if given.record_size < 1:
            raise ToolError("--record-size must be greater than zero")
        size = given.record_size
        payloads = [bytes(draw.choices(_LETTERS, k=size)) for _ in range(_PAYLOADS if size < 10_000 else 10)]
    else:
        try:
            with open(given.payload_file, "rb") as file:
                delimiter = given.payload_delimiter.encode().decode("unicode_escape").encode()
                payloads = [part for part in file.read().split(delimiter) if part]
        except OSError as error:
            raise ToolError(f"{given.payload_file}: {error.strerror}") from None
        if not payloads:
            raise ToolError(f"{given.payload_file}: no payloads in it")
        draw.shuffle(payloads)
    return lambda number: payloads[number % len(payloads)]


def _settings(given: argparse.Namespace) -> dict[str, str]:
    for old, new in (("producer_props", "command_property"), ("producer_config", "command_config")):
        if getattr(given, old):
            warn(given, f"--{old.replace('_', '-')} is deprecated. Use --{new.replace('_', '-')} instead.")
    given.command_config = given.command_config or given.producer_config
    words = [*given.command_property, *(given.producer_props or [])]
    settings = properties.merged("command-property", given.command_config, words)
    if given.bootstrap_server:
        settings["bootstrap.servers"] = given.bootstrap_server
    if "bootstrap.servers" not in settings:
        raise ToolError("give --bootstrap-server, or bootstrap.servers among the producer's settings")
    _settle_transactions(given, settings)
    settings.setdefault("client.id", "perf-producer-client")
    settings.setdefault("linger.ms", "5")
    settings.setdefault("batch.size", "16384")
    return settings


def _settle_transactions(given: argparse.Namespace, settings: dict[str, str]) -> None:
    """An id or a duration is enough to ask for transactions; the other has a default."""
    if given.transaction_duration_ms is not None and given.transaction_duration_ms <= 0:
        raise ToolError("--transaction-duration-ms should be > 0")
    if given.transactional_id:
        settings["transactional.id"] = given.transactional_id
    if given.transaction_duration_ms is not None:
        settings.setdefault("transactional.id", f"performance-producer-{random.randrange(2**63):x}")
    elif "transactional.id" in settings:
        given.transaction_duration_ms = _TRANSACTION_MS


TOOL = Tool(
    name="producer-perf-test",
    description="Measure how fast records can be written, and how long each takes.",
    run=run,
    options=(
        EITHER_SERVER,
        Option("topic", "the topic to write to", "TOPIC", required=True),
        Option("num-records", "how many records to write", "COUNT", int, required=True),
        Option("throughput", "records per second; -1 for as many as possible", "COUNT", int, required=True),
        Option("record-size", "bytes of each record", "BYTES", int),
        Option("payload-file", "a file with records to choose from", "FILE"),
        Option("payload-delimiter", "what stands between the records of the file", "TEXT", default="\\n"),
        Option("payload-monotonic", "records are numbers that count up"),
        Option("warmup-records", "records that the steady state does not count", "COUNT", int, default=0),
        Option("reporting-interval", "how often to report", "MS", int, default=5000),
        Option(
            "key-distribution",
            "keys: none, range (in turn) or random, of --record-key-range",
            "KIND",
            default="none",
            choices=("none", "range", "random"),
        ),
        Option("record-key-range", "how many different keys", "COUNT", int),
        Option("random-seed", "what random payloads and keys begin from", "SEED", int, default=0),
        COMMAND_CONFIG,
        Option("command-property", "settings of the producer; may be repeated", "KEY=VALUE", repeats=True),
        Option("producer-props", "the old name of --command-property", "KEY=VALUE", many=True),
        Option("producer.config", "the old name of --command-config", "FILE"),
        Option("print-metrics", "accepted for compatibility"),
        Option("transactional-id", "write in transactions, with this id", "ID"),
        Option(
            "transaction-duration-ms",
            f"write in transactions, each of this length ({_TRANSACTION_MS} with only an id)",
            "MS",
            int,
        ),
    ),
    examples=(
        "--bootstrap-server localhost:9092 --topic load --num-records 1000000 --record-size 100 "
        "--throughput -1",
    ),
)
