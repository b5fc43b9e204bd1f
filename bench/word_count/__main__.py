"""`python -m bench.word_count`: lines in, counts out, Ottla beside Kafka Streams and the Python libraries.

Every contender runs alone on a fresh broker. It first counts a warm-up load. Then the lines arrive as fast as
the broker takes them, and the clock stops when a `read_committed` reader has seen the final count of every
word. After that, single lines with a new word each give the latency from record in to record out.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from bench import encoding, kafka_peer
from bench.admin import create_topic
from bench.brokers import BrokerFailed, BrokerKind, ottla, running
from bench.latency import percentile
from bench.maven import PeerUnavailable
from bench.replay import send_batches
from bench.report import print_aligned
from bench.word_count.contenders import CONTENDERS, Contender

SOURCE, TARGET = "lines", "counts"
PARTITIONS = 4
VOCABULARY = 10_000
WORDS_PER_LINE = 8
LINES_PER_BATCH = 1_000
BATCHES_DISTINCT = 48
WARM_UP_SHARE = 10
WARM_UP_TIMEOUT_S = 120
LOAD_TIMEOUT_S = 600
PROBES = 100
PROBE_TIMEOUT_S = 30
PROBE_PAUSE_S = 0.05


class NotCounted(Exception):
    """A contender ended, or did not finish in time; the text says how far it came."""


class Counts:
    """The latest count of every word, from the output topic."""

    def __init__(self, port: int) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": f"127.0.0.1:{port}",
                "group.id": "watcher",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
            }
        )
        self._consumer.assign([TopicPartition(TARGET, index, 0) for index in range(PARTITIONS)])
        self.by_word: dict[bytes, int] = {}
        self.total = 0

    def poll(self) -> None:
        for message in self._consumer.consume(10_000, timeout=0.05):
            if message.error():
                raise NotCounted(f"reading {TARGET} failed: {message.error()}")
            word, count = message.key(), _count(message.value())
            self.total += count - self.by_word.get(word, 0)
            self.by_word[word] = count

    def close(self) -> None:
        self._consumer.close()


def _count(value: bytes) -> int:
    """As text, or as the Java client writes a long."""
    return int(value) if value.isdigit() else int.from_bytes(value, "big")


def frames(lines: int) -> list[bytes]:
    """Distinct batches, each for the partition it is sent to; few words are frequent, most are rare."""
    chance = random.Random(1)
    words = [f"w{number:05d}" for number in range(VOCABULARY)]
    weights = [1 / (rank + 10) for rank in range(VOCABULARY)]
    made = []
    for index in range(min(BATCHES_DISTINCT, lines // LINES_PER_BATCH)):
        chosen = chance.choices(words, weights, k=LINES_PER_BATCH * WORDS_PER_LINE)
        values = [
            " ".join(chosen[at : at + WORDS_PER_LINE]).encode()
            for at in range(0, len(chosen), WORDS_PER_LINE)
        ]
        batch = encoding.record_batch(values, int(time.time() * 1000))
        made.append(encoding.produce_frame(SOURCE, index % PARTITIONS, batch, encoding.ACKS_ALL))
    return made


def measure(kind: BrokerKind, contender: Contender, lines: int) -> list[float]:
    """Words per second, and the median and 99th percentile of the latency in milliseconds."""
    command = contender.prepare()
    with (
        running(kind) as broker,
        tempfile.TemporaryDirectory(prefix="ottla-bench-", ignore_cleanup_errors=True) as home,
    ):
        for topic in (SOURCE, TARGET):
            create_topic(broker.port, topic, PARTITIONS)
        argv = command(f"127.0.0.1:{broker.port}", SOURCE, TARGET, f"{home}/state")
        output = Path(home, "output")
        with output.open("wb") as sink:
            program = subprocess.Popen(argv, stdout=sink, stderr=subprocess.STDOUT)
        counts = Counts(broker.port)
        try:
            _feed(broker.port, counts, program, lines // WARM_UP_SHARE, WARM_UP_TIMEOUT_S)
            seconds = _feed(broker.port, counts, program, lines, LOAD_TIMEOUT_S)
            waits = sorted(_probe(broker.port, counts, program, number) for number in range(PROBES))
        except NotCounted as error:
            raise NotCounted(f"{error}\n{output.read_text(errors='replace')[-1500:]}") from None
        finally:
            counts.close()
            _stop(program)
        latencies = [percentile(waits, share) / 1e6 for share in (0.5, 0.99)]
        return [lines * WORDS_PER_LINE / seconds, *latencies]


def _feed(port: int, counts: Counts, program: subprocess.Popen[bytes], lines: int, timeout_s: float) -> float:
    expected = counts.total + lines * WORDS_PER_LINE
    ready = frames(lines)
    begin = time.monotonic()
    send_batches(port, ready, lines // LINES_PER_BATCH)
    while counts.total < expected:
        counts.poll()
        _check(program, begin + timeout_s, f"{counts.total:,} of {expected:,} words")
    if counts.total > expected:
        raise NotCounted(f"{counts.total:,} words where {expected:,} were sent")
    return time.monotonic() - begin


def _probe(port: int, counts: Counts, program: subprocess.Popen[bytes], number: int) -> int:
    word = b"probe%d" % number
    batch = encoding.record_batch([word], int(time.time() * 1000))
    frame = encoding.produce_frame(SOURCE, number % PARTITIONS, batch, encoding.ACKS_ALL)
    time.sleep(PROBE_PAUSE_S)
    begin = time.monotonic_ns()
    send_batches(port, [frame], 1)
    while word not in counts.by_word:
        counts.poll()
        _check(program, begin / 1e9 + PROBE_TIMEOUT_S, f"probe {number} is missing")
    return time.monotonic_ns() - begin


def _check(program: subprocess.Popen[bytes], deadline: float, progress: str) -> None:
    if program.poll() is not None:
        raise NotCounted(f"ended with status {program.returncode}: {progress}")
    if time.monotonic() > deadline:
        raise NotCounted(f"not finished in time: {progress}")


def _stop(program: subprocess.Popen[bytes]) -> None:
    program.terminate()
    try:
        program.wait(20)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()


def main() -> int:
    options = _parse()
    try:
        kind: BrokerKind = kafka_peer.ApacheKafka(kafka_peer.fetch()) if options.kafka else ottla()
    except PeerUnavailable as error:
        print(error, file=sys.stderr)
        return 1
    chosen = [contender for contender in CONTENDERS if not options.only or contender.name in options.only]
    table = [["contender", "words/s", "Ottla is", "latency p50 ms", "p99 ms"]]
    ours: float | None = None
    for contender in chosen:
        lines = options.python_lines if contender.is_python else options.lines
        print(f"{contender.title}: {lines:,} lines …", file=sys.stderr)
        try:
            rate, median, high = measure(kind, contender, lines)
        except (BrokerFailed, NotCounted, PeerUnavailable) as error:
            print(f"{contender.title}: not measured: {error}", file=sys.stderr)
            continue
        ours = rate if contender.name == "ottla" else ours
        ratio = f"{ours / rate:.2f}×" if ours else "–"
        table.append([contender.title, f"{rate:,.0f}", ratio, f"{median:.0f}", f"{high:.0f}"])
    print_aligned(table, 1)
    return 0


def _parse() -> Any:
    parser = argparse.ArgumentParser(prog="python -m bench.word_count", description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000, help="for Ottla and Kafka Streams")
    parser.add_argument(
        "--python-lines", type=int, default=50_000, help="for the Python libraries, which are slower"
    )
    parser.add_argument("--only", action="append", choices=[contender.name for contender in CONTENDERS])
    parser.add_argument("--kafka", action="store_true", help="over Apache Kafka instead of Ottla")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
