"""What `make quickstart` runs: a broker, records in and out, a live word count on Spark, what to try next.

Uses the stock confluent-kafka client; special to Ottla are only the broker and the pipeline.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import BrokerProcess

TOPIC = "orders"
PARTITIONS = 3
ORDERS = (
    ("alice", "espresso"),
    ("carol", "flat white"),
    ("dave", "filter coffee"),
    ("alice", "croissant"),
    ("carol", "oat biscuit"),
    ("alice", "second espresso"),
)
LOAD_TOPIC = "load"
LOAD_RECORDS = 200_000
LOAD_RECORD_BYTES = 100
LINES, COUNTS = "lines", "word-counts"
STREAMS = Path(__file__).resolve().parent / "streams"
TEXT = "the sea the sky the stars and the long way home over the sea"
WORDS_PER_SECOND = 200
COUNTING_S = 4.0
SPARK_START_TIMEOUT_S = 90.0
# librdkafka would write a line per client about metrics that it offers the broker.
QUIET = {"enable.metrics.push": False}

NEXT = """\
ottla start                          a broker on localhost:9092, data in ./ottla-data
ottla start server.properties        with the settings of an Apache Kafka broker
ottla stop                           stop it
make -C {streams} demo        the pipeline you have just seen, for as long as you like

Any Kafka client works, for example the one that this program uses:

    from confluent_kafka import Producer
    producer = Producer({{"bootstrap.servers": "localhost:9092"}})
    producer.produce("greetings", b"Hello")
    producer.flush()

A broker per test, with pytest: docs/guides/testing.md     Pipelines: docs/guides/streams.md
Settings: docs/reference/configuration.md     How it works: docs/ARCHITECTURE.md
"""


class Screen:
    """Colours and tables on a terminal, plain lines in a pipe."""

    def __init__(self) -> None:
        self._console: Any = None
        if sys.stdout.isatty():
            from rich.console import Console

            self._console = Console(highlight=False)

    def step(self, title: str) -> None:
        if self._console is None:
            print(f"\n== {title}", flush=True)
        else:
            self._console.print(f"\n[bold cyan]▶ {title}[/]")

    def say(self, text: str) -> None:
        if self._console is None:
            print(text, flush=True)
        else:
            self._console.print(text, markup=False, soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        if self._console is None:
            for row in rows:
                print("  ".join(f"{column}={cell}" for column, cell in zip(columns, row, strict=True)))
            return
        from rich.table import Table

        table = Table(*columns, header_style="bold")
        for row in rows:
            table.add_row(*row)
        self._console.print(table)


def create_topics(bootstrap_servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, **QUIET})
    topics = [NewTopic(TOPIC, PARTITIONS, 1), NewTopic(LOAD_TOPIC, 1, 1)]
    topics += [NewTopic(LINES, 2, 1), NewTopic(COUNTS, 2, 1)]
    for created in admin.create_topics(topics).values():
        created.result(10)


def produce_orders(bootstrap_servers: str) -> list[Message]:
    delivered: list[Message] = []

    def on_delivery(error: Any, message: Message) -> None:
        if error is not None:
            raise SystemExit(f"not delivered: {error}")
        delivered.append(message)

    # The partitioner of the Java client, so that keys land where they would from there.
    producer = Producer({"bootstrap.servers": bootstrap_servers, "partitioner": "murmur2_random", **QUIET})
    for customer, order in ORDERS:
        producer.produce(TOPIC, key=customer, value=order, on_delivery=on_delivery)
    producer.flush(10)
    return delivered


def consume(bootstrap_servers: str, topic: str, partitions: int, count: int) -> list[Message]:
    """From the beginning, without a consumer group."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "quickstart",
            "enable.auto.commit": False,
            **QUIET,
        }
    )
    messages: list[Message] = []
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        deadline = time.monotonic() + 30
        while len(messages) < count and time.monotonic() < deadline:
            messages.extend(consumer.consume(min(10_000, count - len(messages)), timeout=1))
    finally:
        consumer.close()
    if len(messages) < count:
        raise SystemExit(f"read {len(messages)} of {count} records of {topic}")
    return messages


def measure(bootstrap_servers: str) -> tuple[float, float]:
    """Records per second in and out, with the client as the limit."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "linger.ms": 5,
            "queue.buffering.max.messages": LOAD_RECORDS,
            **QUIET,
        }
    )
    payload = b"x" * LOAD_RECORD_BYTES
    started = time.perf_counter()
    for _ in range(LOAD_RECORDS):
        producer.produce(LOAD_TOPIC, payload)
    if producer.flush(30):
        raise SystemExit("the load was not delivered within 30 s")
    produced = time.perf_counter()
    consume(bootstrap_servers, LOAD_TOPIC, 1, LOAD_RECORDS)
    consumed = time.perf_counter()
    return LOAD_RECORDS / (produced - started), LOAD_RECORDS / (consumed - produced)


@contextmanager
def word_count(bootstrap_servers: str) -> Iterator[subprocess.Popen[str]]:
    """The pipeline, as `ottla run` runs it; Spark takes some seconds to start."""
    with tempfile.TemporaryDirectory(prefix="ottla-quickstart-", ignore_cleanup_errors=True) as state:
        argv = [sys.executable, "-m", "ottla.cli.main", "run", str(STREAMS / "word_count.py")]
        argv += ["--state-dir", state]
        argv += ["--bootstrap-server", bootstrap_servers]
        # All it writes, Spark's log included, goes with the directory.
        pipeline = subprocess.Popen(
            argv,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=state,
            env={**os.environ, "TMPDIR": state},
        )
        try:
            yield pipeline
        finally:
            pipeline.terminate()
            pipeline.wait()


def watch_counts(screen: Screen, bootstrap_servers: str, pipeline: subprocess.Popen[str]) -> None:
    """Words go in all the time; shown are the counts as they come out."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5, **QUIET})
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "watcher",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            **QUIET,
        }
    )
    consumer.assign([TopicPartition(COUNTS, index, 0) for index in range(2)])
    words, counts, updates = TEXT.split(), dict[str, int](), 0
    deadline, first = time.monotonic() + SPARK_START_TIMEOUT_S, 0.0
    shown = 0.0
    while not first or time.monotonic() < first + COUNTING_S:
        if pipeline.poll() is not None:
            complaint = pipeline.stderr.read() if pipeline.stderr else ""
            raise SystemExit(f"the pipeline has ended without counts\n{complaint}")
        if not first and time.monotonic() > deadline:
            raise SystemExit(
                f"Spark has given no counts in {SPARK_START_TIMEOUT_S:.0f} s; on an idle machine it takes "
                "ten to twenty: try again when less else runs"
            )
        line = " ".join(random.choices(words, k=WORDS_PER_SECOND // 10))
        producer.produce(LINES, line)
        producer.poll(0)
        for message in consumer.consume(1_000, timeout=0.1):
            if message.error() is None:
                counts[text(message.key())] = int.from_bytes(message.value(), "big")
                updates += 1
        if counts and not first:
            first = time.monotonic()
        if counts and time.monotonic() >= shown + 1:
            shown = time.monotonic()
            top = sorted(counts.items(), key=lambda item: -item[1])[:5]
            screen.say("   ".join(f"{word} {count}" for word, count in top))
    consumer.close()
    producer.flush(10)
    screen.say(f"{updates} updates of {len(counts)} words, each written exactly once")


def text(data: bytes | str | None) -> str:
    return data.decode() if isinstance(data, bytes) else str(data)


def row(message: Message) -> tuple[str, str, str, str]:
    return str(message.partition()), str(message.offset()), text(message.key()), text(message.value())


def main() -> None:
    screen = Screen()
    screen.step("Starting a broker")
    with BrokerProcess(log_level="warning") as broker:
        address = broker.bootstrap_servers
        screen.say(f"listening on {address}, ready in {broker.seconds_to_ready:.2f} s")

        screen.step(f"Creating the topic {TOPIC} with {PARTITIONS} partitions")
        create_topics(address)

        screen.step("Producing: a key always goes to the same partition")
        columns = ("partition", "offset", "key", "value")
        screen.table(columns, (row(message) for message in produce_orders(address)))

        screen.step("Consuming: the order within a partition is kept")
        screen.table(columns, (row(message) for message in consume(address, TOPIC, PARTITIONS, len(ORDERS))))

        screen.step(f"{LOAD_RECORDS:,} records of {LOAD_RECORD_BYTES} bytes through a Python client")
        produced, consumed = measure(address)
        screen.say(f"in: {produced:,.0f} records/s   out: {consumed:,.0f} records/s")

        screen.step("Counting words on Spark, live: lines in, counts out, exactly once")
        with word_count(address) as pipeline:
            watch_counts(screen, address, pipeline)

        status = broker.stop()
    screen.step("Stopped" if status == 0 else f"Stopped with status {status}")
    screen.say("the temporary data is gone")

    screen.step("What to try next")
    if shutil.which("ottla") is None:
        activate = f". {os.path.relpath(Path(sys.executable).parent)}/activate"
        screen.say(f"{activate:<36} so that ottla is found")
    screen.say(NEXT.format(streams=os.path.relpath(STREAMS)))


if __name__ == "__main__":
    main()
