"""What it takes when a stateful application gets more tasks: time, and whether each key is counted once.

    python -m bench.streams_growth --keys 1000000                # its topic grows from 4 to 8 partitions
    python -m bench.streams_growth --keys 1000000 --tasks 2 6    # its program asks for 6 tasks instead of 2

The application adds up the values of each key, in as many tasks as its topic, or the repartition in front,
has partitions. Each key comes once, the application stops, the number changes, it starts again and each key
comes once more. The time of the change is that from the second start until a first record is worked on; then
the changelog has been divided anew and the state rebuilt from it. A key whose last sum is not that of both
rounds is wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from bench.admin import create_topic
from bench.brokers import ottla, running
from bench.filling import ANY_PARTITION, fill
from bench.report import print_aligned
from ottla.spark.session import spark_session
from ottla.streams import Consumed, Materialized, Produced, Repartitioned, StreamsBuilder, Topology
from ottla.streams.run import StreamsApplication, StreamsConfig

OUT_PARTITIONS = 4
PARTITIONS = 4, 8
ONE_MORE = b"one more"
NAME = "growth"
READ_TIMEOUT_S = 60


def _add(total: int, value: int) -> int:
    return total + value


def sums(name: str, tasks: int | None) -> Topology:
    builder = StreamsBuilder()
    numbers = builder.stream(f"{name}-in", Consumed.with_(str, int))
    if tasks is not None:
        numbers = numbers.repartition(Repartitioned.as_("spread").with_number_of_partitions(tasks))
    totals = numbers.group_by_key().reduce(_add, Materialized.as_("totals").with_value_serde(int))
    totals.to_stream().to(f"{name}-out", Produced.with_(str, int))
    return builder.build()


def key_of(number: int) -> bytes:
    return b"key-%08d" % number


def send(servers: str, topic: str, keys: list[bytes], value: int) -> None:
    # A producer of its own for each round: it has to see that the topic has grown.
    settings: dict[str, str | int] = {"bootstrap.servers": servers, "partitioner": "murmur2_random"}
    data = value.to_bytes(8, "big")
    fill(settings, ((topic, data, key, ANY_PARTITION) for key in keys))


def last_sums(port: int, topic: str) -> dict[bytes, int]:
    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(OUT_PARTITIONS)])
    found: dict[bytes, int] = {}
    ended: set[int] = set()
    while len(ended) < OUT_PARTITIONS:
        messages = consumer.consume(10_000, READ_TIMEOUT_S)
        if not messages:
            raise TimeoutError(f"the end of {topic} cannot be read")
        for message in messages:
            if message.error():
                ended.add(message.partition())
            else:
                found[message.key()] = int.from_bytes(message.value(), "big")
    consumer.close()
    return found


def measure(spark: Any, port: int, name: str, options: Any) -> list[str]:
    servers = f"127.0.0.1:{port}"
    before, after = options.tasks or (None, None)
    create_topic(port, f"{name}-in", PARTITIONS[0])
    create_topic(port, f"{name}-out", OUT_PARTITIONS)
    config = StreamsConfig(
        name, servers, state_dir=options.work_dir, max_offsets_per_trigger=options.batch, trigger=None
    )
    keys = [key_of(number) for number in range(options.keys)]
    send(servers, f"{name}-in", keys, 1)

    def work(topology: Topology) -> tuple[float, StreamsApplication]:
        begin = time.monotonic()
        application = StreamsApplication(topology, config)
        application.start(spark)
        application.process_all_available()
        return time.monotonic() - begin, application

    first_s, application = work(sums(name, before))
    application.stop()
    if after is None:
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_partitions([NewPartitions(f"{name}-in", PARTITIONS[1])])[f"{name}-in"].result(30)
    send(servers, f"{name}-in", [ONE_MORE], 1)
    change_s, application = work(sums(name, after))
    begin = time.monotonic()
    send(servers, f"{name}-in", keys, 2)
    application.process_all_available()
    second_s = time.monotonic() - begin
    stores = application.snapshot().stores
    application.stop()
    entries = {task: count for store in stores for task, count in store.entries.items()}
    found = last_sums(port, f"{name}-out")
    wrong = sum(found.get(key) != 3 for key in keys) + (found.get(ONE_MORE) != 1)
    wrong += sum(entries.values()) != options.keys + 1
    return [
        f"{len(entries)}",
        f"{first_s:.0f}",
        f"{change_s:.0f}",
        f"{second_s:.0f}",
        f"{wrong}",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.streams_growth", description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000, help="of the state (%(default)s)")
    parser.add_argument("--batch", type=int, default=200_000, help="records of a micro-batch (%(default)s)")
    parser.add_argument(
        "--tasks", type=int, nargs=2, metavar=("BEFORE", "AFTER"), help="asked for by a repartition"
    )
    options = parser.parse_args()
    table = [["tasks after", "first round s", "change s", "second round s", "keys wrong"]]
    with running(ottla()) as broker, tempfile.TemporaryDirectory(prefix="ottla-bench-") as work_dir:
        options.work_dir = str(Path(work_dir, "state"))
        spark = spark_session("bench", log_dir=work_dir)
        table.append(measure(spark, broker.port, NAME, options))
        spark.stop()
    print(f"{options.keys:,} keys, {os.cpu_count()} cores")
    print_aligned(table, 1)
    return any(row[-1] != "0" for row in table[1:])


if __name__ == "__main__":
    sys.exit(main())
