"""Compaction of one large topic: its rate, its memory, and what producers to other topics notice of it.

    python -m bench.compaction --gb 10 --keys 1000000 [--broker kafka]

The topic is written first, with compaction held off; then it is let loose and timed until the broker has
written down that it is done, while one connection goes on producing to another topic at a steady rate.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from bench import kafka_peer
from bench.admin import create_topic
from bench.brokers import BrokerFailed, BrokerKind, RunningBroker, ottla, started
from bench.connection import Connection
from bench.encoding import produce_frame, record_batch
from bench.kafka_peer import ApacheKafka
from bench.latency import percentile
from bench.maven import PeerUnavailable
from bench.process import memory_alone

MB = 1024 * 1024
TABLE = "table"
OTHER = "other"
SEGMENT_BYTES = 64 * MB
RATE = 200
IDLE_SECONDS = 10.0
DONE_TIMEOUT_S = 3600.0
CHECKPOINT = "cleaner-offset-checkpoint"


def fill(port: int, total_bytes: int, keys: int, value_bytes: int) -> int:
    """Records written: random keys, values that do not compress to nothing."""
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "1.0",
        "segment.bytes": str(SEGMENT_BYTES),
    }
    admin.create_topics([NewTopic(TABLE, 1, 1, config=config)])[TABLE].result(60)
    chance = random.Random(1)
    values = [chance.randbytes(value_bytes) for _ in range(1000)]
    count = total_bytes // (value_bytes + 20)
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "linger.ms": 50,
            "batch.size": 128 * 1024,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    for number in range(count):
        while True:
            try:
                producer.produce(TABLE, values[number % 1000], b"key-%08d" % chance.randrange(keys))
                break
            except BufferError:
                producer.poll(0.1)
        if not number % 1000:
            producer.poll(0)
    left = producer.flush(600)
    if left:
        raise BrokerFailed(f"{left} records could not be written")
    return count


def configure(port: int, resource: ConfigResource, name: str, value: str) -> None:
    resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)


class Waits:
    """How long single records at a steady rate wait for their acknowledgement."""

    def __init__(self, port: int) -> None:
        self._connection = Connection(port)
        now_ms = int(time.time() * 1000)
        self._frame = produce_frame(OTHER, 0, record_batch([bytes(100)], now_ms), 1)
        self._ns: list[int] = []

    def for_seconds(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        due = time.monotonic()
        while due < end:
            time.sleep(max(due - time.monotonic(), 0))
            begin = time.perf_counter_ns()
            self._connection.send(self._frame)
            self._connection.receive()
            self._ns.append(time.perf_counter_ns() - begin)
            due += 1 / RATE

    def take_ms(self) -> tuple[float, ...]:
        """(median, 99th percentile, 99.9th) since the last time."""
        ordered, self._ns = sorted(self._ns), []
        return tuple(percentile(ordered, share) / 1e6 for share in (0.5, 0.99, 0.999))


def log_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.log"))


def measure(broker: RunningBroker, data_dir: Path, options: argparse.Namespace) -> None:
    create_topic(broker.port, OTHER, 1)
    configure(broker.port, ConfigResource(ConfigResource.Type.BROKER, "1"), "log.cleaner.backoff.ms", "100")
    records = fill(broker.port, int(options.gb * 1024 * MB), options.keys, options.value_bytes)
    before = log_bytes(data_dir / f"{TABLE}-0")
    print(f"  {records:,} records, {options.keys:,} keys, {before / MB:,.0f} MB")
    waits = Waits(broker.port)
    waits.for_seconds(IDLE_SECONDS)
    idle = waits.take_ms()
    resident = memory_alone(broker.process.pid).resident
    peak = peak_others = 0
    begin, cpu = time.monotonic(), broker.cpu_seconds()
    topic = ConfigResource(ConfigResource.Type.TOPIC, TABLE)
    configure(broker.port, topic, "min.cleanable.dirty.ratio", "0.01")
    checkpoint = data_dir / CHECKPOINT
    while not checkpoint.exists() or f"{TABLE} 0 " not in checkpoint.read_text():
        waits.for_seconds(0.25)
        own = memory_alone(broker.process.pid).resident
        peak, peak_others = max(peak, own), max(peak_others, broker.memory().resident - own)
        if time.monotonic() - begin > DONE_TIMEOUT_S:
            raise BrokerFailed(f"{broker.name} has not compacted {TABLE} in {DONE_TIMEOUT_S:.0f} s")
    elapsed, used = time.monotonic() - begin, broker.cpu_seconds() - cpu
    busy = waits.take_ms()
    after = log_bytes(data_dir / f"{TABLE}-0")
    print(f"  compacted to {after / MB:,.0f} MB in {elapsed:.1f} s: {before / MB / elapsed:.0f} MB/s")
    print(
        f"  CPU {used:.1f} s; memory (RSS) {resident / MB:.0f} MB before, at most {peak / MB:.0f} MB ", end=""
    )
    print(f"and {peak_others / MB:.0f} MB in processes that compact")
    print("  produce elsewhere, median, p99 and p99.9 in ms: ", end="")
    print(" ".join(f"{each:.2f}" for each in idle), "idle,", end=" ")
    print(" ".join(f"{each:.2f}" for each in busy), "during compaction,", end=" ")
    print(f"p99 × {busy[1] / idle[1]:.2f}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.compaction", description=__doc__.split("\n")[0])
    parser.add_argument("--broker", choices=("ottla", "kafka", "both"), default="both")
    parser.add_argument("--gb", type=float, default=0.2)
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--value-bytes", type=int, default=1000)
    parser.add_argument("--work-dir", help="where data goes; the default is the system's temporary directory")
    options = parser.parse_args()
    kinds: list[BrokerKind] = []
    if options.broker != "kafka":
        kinds.append(ottla())
    try:
        if options.broker != "ottla":
            kinds.append(ApacheKafka(kafka_peer.fetch()))
    except PeerUnavailable as error:
        print(f"skipping Apache Kafka: {error}", file=sys.stderr)
    for kind in kinds:
        home = Path(tempfile.mkdtemp(prefix="ottla-bench-", dir=options.work_dir))
        try:
            with started(kind, str(home / "data"), home / "output") as broker:
                print(f"{kind.name}:")
                measure(broker, home / "data", options)
        except BrokerFailed as error:
            print(error, file=sys.stderr)
            return 1
        finally:
            shutil.rmtree(home, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
