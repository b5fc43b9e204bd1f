"""Files carry across: Apache Kafka's dump tool reads what Ottla wrote, Ottla what Apache Kafka wrote."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from bench import kafka_peer
from bench.brokers import started
from bench.kafka_peer import ApacheKafka, KafkaDistribution
from bench.maven import PeerUnavailable
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.config import BrokerConfig, resolve_topic
from ottla.log.recovery import open_log
from ottla.log.types import TopicPartition
from ottla.runtime import real_runtime
from ottla.testing.process import BrokerProcess

# Fetching the jars for the first time is part of the first test.
pytestmark = [pytest.mark.maven, pytest.mark.timeout(600)]

TOPIC = "carried"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS_PER_CODEC = 60
RECORDS_PER_BATCH = 20
# Small segments, so that there are several; the timestamps are old, and must not count as expired.
CONFIG = {"segment.bytes": str(1 << 20), "retention.ms": "-1"}
FIRST_TIMESTAMP_MS = 1_700_000_000_000
QUIET = {"log_level": 0}
TOOL_TIMEOUT_S = 60
DUMPED_RECORD = re.compile(
    r"^\| offset: (?P<offset>\d+) CreateTime: (?P<timestamp>\d+) keySize: \d+ valueSize: \d+ "
    r".*headerKeys: \[(?P<headers>.*?)\] key: (?P<key>\S+) payload: (?P<value>.*)$"
)
# The tool misses the offsets below the first one of a file, in files that Apache Kafka wrote just the same.
NEEDLESS_COMPLAINT = re.compile(r"Non-consecutive offsets in \S*/0*(\d+)\.log\n  -1 is followed by \1\n")


@dataclass(frozen=True, slots=True)
class Record:
    offset: int
    timestamp_ms: int
    key: str
    value: str
    header: str


def records_to_write() -> list[tuple[str, Record]]:
    """(codec, record). Values repeat little, so that compressed ones fill segments too."""
    written = []
    for codec in CODECS:
        for _ in range(RECORDS_PER_CODEC):
            offset = len(written)
            value = "".join(f"word-{(offset * 7919 + at * at * 31) % 999_983:x} " for at in range(2000))
            written.append(
                (
                    codec,
                    Record(offset, FIRST_TIMESTAMP_MS + offset, f"key-{offset}", value, f"header-{codec}"),
                )
            )
    return written


EXPECTED = [record for _, record in records_to_write()]


def write_records(bootstrap_servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, **QUIET})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIG)])[TOPIC].result(30)
    asyncio.run(_write_batches(bootstrap_servers))


async def _write_batches(bootstrap_servers: str) -> None:
    """One idempotent producer per codec. aiokafka lets the caller say what goes into a batch."""
    for codec in CODECS:
        mine = [record for of_codec, record in records_to_write() if of_codec == codec]
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap_servers,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=True,
            max_batch_size=1 << 20,
        ) as producer:
            for first in range(0, len(mine), RECORDS_PER_BATCH):
                batch = producer.create_batch()
                for record in mine[first : first + RECORDS_PER_BATCH]:
                    assert batch.append(
                        key=record.key.encode(),
                        value=record.value.encode(),
                        timestamp=record.timestamp_ms,
                        headers=[(record.header, b"")],
                    )
                await (await producer.send_batch(batch, TOPIC, partition=0))


def read_records(bootstrap_servers: str) -> list[Record]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "unused", "enable.auto.commit": False, **QUIET}
    )
    consumer.assign([Position(TOPIC, 0, 0)])
    messages = []
    while len(messages) < len(EXPECTED) and (got := consumer.consume(len(EXPECTED), timeout=10)):
        messages += got
    consumer.close()
    assert [message.error() for message in messages if message.error()] == []
    return [
        Record(
            message.offset(),
            message.timestamp()[1],
            message.key().decode(),
            message.value().decode(),
            message.headers()[0][0],
        )
        for message in messages
    ]


@pytest.fixture(scope="module")
def kafka() -> KafkaDistribution:
    try:
        return kafka_peer.fetch()
    except PeerUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def ottla_data(kafka: KafkaDistribution, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory that Ottla wrote and closed in good order."""
    data = tmp_path_factory.mktemp("ottla") / "data"
    with BrokerProcess(data_dir=str(data)) as broker:
        write_records(broker.bootstrap_servers)
        assert broker.stop() == 0
    return data


@pytest.fixture(scope="module")
def kafka_partition(kafka: KafkaDistribution, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a partition that Apache Kafka wrote and closed in good order."""
    home = tmp_path_factory.mktemp("kafka")
    with started(ApacheKafka(kafka), str(home / "data"), home / "output") as broker:
        write_records(f"127.0.0.1:{broker.port}")
    partition = home / "data" / f"{TOPIC}-0"
    assert len(list(partition.glob("*.log"))) > 1
    return partition


def dump(kafka: KafkaDistribution, files: Iterator[Path], *flags: str) -> list[str]:
    """The lines Apache Kafka's dump tool prints about the files."""
    names = ",".join(str(file) for file in sorted(files))
    assert names
    tool = "org.apache.kafka.tools.DumpLogSegments"
    done = kafka.run_tool(tool, "--files", names, *flags, timeout_s=TOOL_TIMEOUT_S)
    assert (done.returncode, NEEDLESS_COMPLAINT.sub("", done.stderr)) == (0, "")
    return done.stdout.splitlines()


def test_dump_tool_reads_every_record_of_ottla(kafka: KafkaDistribution, ottla_data: Path) -> None:
    segments = ottla_data / f"{TOPIC}-0"
    assert len(list(segments.glob("*.log"))) > 1
    lines = dump(kafka, segments.glob("*.log"), "--deep-iteration", "--print-data-log")
    batches = [line for line in lines if line.startswith("baseOffset:")]
    assert all("isvalid: true" in batch and "magic: 2" in batch for batch in batches)
    assert {codec for codec in CODECS if any(f"compresscodec: {codec}" in batch for batch in batches)} == set(
        CODECS
    )
    records = [found for line in lines if (found := DUMPED_RECORD.match(line))]
    assert [
        Record(int(found["offset"]), int(found["timestamp"]), found["key"], found["value"], found["headers"])
        for found in records
    ] == EXPECTED


def test_indexes_of_ottla_pass_the_checks(kafka: KafkaDistribution, ottla_data: Path) -> None:
    segments = ottla_data / f"{TOPIC}-0"
    assert all(index.stat().st_size for index in segments.glob("*index"))
    sane = dump(kafka, segments.glob("*index"), "--index-sanity-check")
    assert sum("passed sanity check" in line for line in sane) == len(list(segments.glob("*index")))
    # Prints nothing but file names unless an entry disagrees with the log.
    verified = dump(kafka, segments.glob("*index"), "--verify-index-only")
    assert [line for line in verified if not line.startswith("Dumping ")] == []


def test_producer_snapshots_of_ottla_are_read(kafka: KafkaDistribution, ottla_data: Path) -> None:
    newest = max((ottla_data / f"{TOPIC}-0").glob("*.snapshot"))
    lines = [line for line in dump(kafka, iter([newest])) if line.startswith("producerId:")]
    assert len(lines) == len(CODECS)
    last_offsets = sorted(int(re.findall(r"lastOffset: (\d+)", line)[0]) for line in lines)
    assert last_offsets == [RECORDS_PER_CODEC * count - 1 for count in range(1, len(CODECS) + 1)]


def test_metadata_log_of_ottla_is_read(kafka: KafkaDistribution, ottla_data: Path) -> None:
    log = (ottla_data / "__cluster_metadata-0").glob("*.log")
    lines = dump(kafka, log, "--cluster-metadata-decoder")
    assert not [line for line in lines if "Error" in line or "isvalid: false" in line]
    text = "\n".join(lines)
    assert "LeaderChange:" in text
    for kind in ("FEATURE_LEVEL_RECORD", "REGISTER_BROKER_RECORD", "CONFIG_RECORD", "PARTITION_RECORD"):
        assert f'"type":"{kind}"' in text
    assert f'"type":"TOPIC_RECORD","version":0,"data":{{"name":"{TOPIC}"' in text


@pytest.mark.parametrize("clean", [True, False], ids=["indexes trusted", "recovered"])
def test_ottla_opens_a_partition_of_kafka(kafka_partition: Path, tmp_path: Path, clean: bool) -> None:
    directory = tmp_path / kafka_partition.name
    shutil.copytree(kafka_partition, directory)
    written = b"".join(file.read_bytes() for file in sorted(kafka_partition.glob("*.log")))
    config = resolve_topic(BrokerConfig.from_properties({}), CONFIG)
    log = open_log(real_runtime(), str(directory), TopicPartition(TOPIC, 0), config, clean=clean)
    try:
        assert (log.start_offset, log.next_offset) == (0, len(EXPECTED))
        read = bytearray()
        for first in range(0, len(EXPECTED), RECORDS_PER_BATCH):
            read += log.read(first, 1, upto=log.next_offset)
        assert bytes(read) == written
        middle = EXPECTED[len(EXPECTED) // 2]
        found = asyncio.run(log.offset_for_timestamp(middle.timestamp_ms, upto=log.next_offset))
        assert found is not None
        assert (found.offset, found.timestamp_ms) == (middle.offset, middle.timestamp_ms)
    finally:
        log.close()


def test_ottla_serves_a_partition_of_kafka(kafka_partition: Path, tmp_path: Path) -> None:
    """Logs, indexes, epochs and producer snapshots come from Kafka; the topic's id stays Ottla's."""
    data = tmp_path / "data"
    with BrokerProcess(data_dir=str(data)) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **QUIET})
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIG)])[TOPIC].result(30)
        assert broker.stop() == 0
        partition = data / f"{TOPIC}-0"
        own_id = (partition / "partition.metadata").read_bytes()
        shutil.rmtree(partition)
        shutil.copytree(kafka_partition, partition)
        (partition / "partition.metadata").write_bytes(own_id)
        broker.start()
        assert read_records(broker.bootstrap_servers) == EXPECTED
        assert broker.stop() == 0
