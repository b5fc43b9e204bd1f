"""Every setting of a topic changed while the broker runs: it is told back, and what it is for happens."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from ottla.config import TOPIC_KEYS
from ottla.records.batch import DELETE_HORIZON, BatchHeader, iter_headers
from ottla.testing import BrokerProcess

DAY_MS = 24 * 3_600_000
DEADLINE_SECONDS = 30
TEXT = Path(__file__).read_bytes() * 5
SETTINGS = {
    "log.cleaner.backoff.ms": "20",
    "log.retention.check.interval.ms": "50",
    "log.flush.offset.checkpoint.interval.ms": "50",
    "log.initial.task.delay.ms": "1",
}
# With one broker nobody follows, and time is not long enough for rolls to spread.
# Nor is there remote storage.
ONLY_ACCEPTED = {
    "unclean.leader.election.enable": "true",
    "segment.jitter.ms": "5000",
    "leader.replication.throttled.replicas": "0:0,1:0",
    "follower.replication.throttled.replicas": "*",
    "remote.storage.enable": "false",
    "remote.log.copy.disable": "true",
    "remote.log.delete.on.disable": "true",
    "local.retention.ms": "1000",
    "local.retention.bytes": "-1",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(SETTINGS) as running:
        yield running


class Topic:
    def __init__(self, broker: BrokerProcess, **config: str) -> None:
        self.broker = broker
        self.name = f"t{uuid.uuid4().hex[:8]}"
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        names = {name.replace("_", "."): value for name, value in config.items()}
        self.admin.create_topics([NewTopic(self.name, 1, 1, config=names)])[self.name].result(20)
        self.directory = Path(broker.data_dir) / f"{self.name}-0"
        self.producer = Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "retries": 0, "log_level": 0}
        )

    def set(self, name: str, value: str) -> None:
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.name)
        resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
        for future in self.admin.incremental_alter_configs([resource]).values():
            future.result(20)
        (described,) = self.admin.describe_configs(
            [ConfigResource(ConfigResource.Type.TOPIC, self.name)]
        ).values()
        assert described.result(20)[name].value == value
        assert not described.result(20)[name].is_default

    def put(self, value: bytes | None, key: bytes | None = b"k", timestamp: int = 0) -> int | None:
        """One batch with one record; the code of the error it met, if any."""
        outcomes: list[KafkaError | None] = []
        self.producer.produce(
            self.name, value, key, timestamp=timestamp, on_delivery=lambda error, _: outcomes.append(error)
        )
        assert self.producer.flush(20) == 0
        (error,) = outcomes
        return None if error is None else error.code()

    def put_some(self, count: int, size: int = 1000) -> None:
        for number in range(count):
            assert self.put(bytes(size), b"%d" % (number % 3)) is None

    def names(self, ending: str) -> list[str]:
        return sorted(name for name in os.listdir(self.directory) if name.endswith(ending))

    def size_of(self, ending: str) -> int:
        return sum((self.directory / name).stat().st_size for name in self.names(ending))

    def headers(self) -> list[BatchHeader]:
        while True:
            try:
                data = [(self.directory / name).read_bytes() for name in self.names(".log")]
            except FileNotFoundError:
                # The cleaner has put another file in its place since the directory was listed.
                continue
            return [header for segment in data for _, header in iter_headers(segment)]

    def start_offset(self) -> int:
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap_servers, "group.id": "unused"})
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(self.name, 0), timeout=20)[0])
        finally:
            consumer.close()

    def recovery_point(self) -> int:
        text = (Path(self.broker.data_dir) / "recovery-point-offset-checkpoint").read_text()
        lines = (line.split() for line in text.splitlines() if line.startswith(f"{self.name} 0 "))
        return next((int(offset) for _, _, offset in lines), 0)


def wait(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"in {DEADLINE_SECONDS} s it did not happen: {what}"
        time.sleep(0.02)


def compacted_topic(broker: BrokerProcess, **config: str) -> Topic:
    """Twenty records of three keys, in small segments, that compaction leaves alone for now."""
    topic = Topic(
        broker,
        **{
            "cleanup_policy": "compact",
            "internal_segment_bytes": "3000",
            "min_cleanable_dirty_ratio": "1.0",
            **config,
        },
    )
    topic.put_some(20)
    assert len(topic.headers()) == 20
    return topic


def cleanup_policy(broker: BrokerProcess) -> None:
    topic = Topic(broker)
    assert topic.put(b"x", key=None) is None
    topic.set("cleanup.policy", "compact")
    assert topic.put(b"x", key=None) == KafkaError.INVALID_RECORD


def compression_type(broker: BrokerProcess) -> None:
    topic = Topic(broker)
    topic.put(TEXT)
    topic.set("compression.type", "zstd")
    topic.put(TEXT)
    assert [header.codec for header in topic.headers()] == [0, 4]


def level_of(codec: str) -> Callable[[BrokerProcess], None]:
    def level(broker: BrokerProcess) -> None:
        topic = Topic(broker, compression_type=codec, **{f"compression_{codec}_level": "1"})
        topic.put(TEXT)
        topic.set(f"compression.{codec}.level", "8")
        topic.put(TEXT)
        low, high = topic.headers()
        assert high.size < low.size

    return level


def delete_retention_ms(broker: BrokerProcess) -> None:
    topic = compacted_topic(broker)
    topic.put(None, b"gone")
    topic.put_some(5)
    topic.set("delete.retention.ms", str(100 * DAY_MS))
    topic.set("min.cleanable.dirty.ratio", "0.01")
    horizons: list[int] = []

    def stamped() -> bool:
        horizons[:] = [h.base_timestamp for h in topic.headers() if h.attributes & DELETE_HORIZON]
        return bool(horizons)

    wait(stamped, "a tombstone gets the time when it may go")
    assert abs(horizons[0] - time.time() * 1000 - 100 * DAY_MS) < DAY_MS


def file_delete_delay_ms(broker: BrokerProcess) -> None:
    topic = Topic(broker, internal_segment_bytes="3000", file_delete_delay_ms=str(DAY_MS))
    topic.put_some(10)
    topic.set("retention.bytes", "0")
    wait(lambda: len(topic.names(".log")) == 1, "old segments go")
    kept = topic.names(".log.deleted")
    topic.set("file.delete.delay.ms", "0")
    topic.put_some(10)
    wait(lambda: topic.start_offset() >= 15, "segments written since go")
    wait(lambda: topic.names(".log.deleted") == kept, "and their files at once")


def flush_messages(broker: BrokerProcess) -> None:
    topic = Topic(broker)
    topic.put_some(5)
    assert topic.recovery_point() == 0
    topic.set("flush.messages", "1")
    topic.put_some(5)
    wait(lambda: topic.recovery_point() >= 9, "records are synced")


def flush_ms(broker: BrokerProcess) -> None:
    topic = Topic(broker)
    topic.put_some(5)
    assert topic.recovery_point() == 0
    topic.set("flush.ms", "10")
    wait(lambda: topic.recovery_point() >= 4, "records are synced")


def index_interval_bytes(broker: BrokerProcess) -> None:
    sizes = []
    for value in ("100", "1000000"):
        topic = Topic(broker, internal_segment_bytes="11000")
        topic.set("index.interval.bytes", value)
        topic.put_some(11)
        wait(lambda topic=topic: len(topic.names(".log")) > 1, "a segment is full")  # type: ignore[misc]
        sizes.append((topic.directory / topic.names(".index")[0]).stat().st_size)
    assert sizes[0] > 8 * 5
    assert sizes[1] == 0


def max_compaction_lag_ms(broker: BrokerProcess) -> None:
    topic = compacted_topic(broker)
    topic.set("max.compaction.lag.ms", "1")
    wait(lambda: len(topic.headers()) < 10, "old records are compacted although few are dirty")


def min_cleanable_dirty_ratio(broker: BrokerProcess) -> None:
    topic = compacted_topic(broker)
    topic.set("min.cleanable.dirty.ratio", "0.1")
    wait(lambda: len(topic.headers()) < 10, "records are compacted")


def min_compaction_lag_ms(broker: BrokerProcess) -> None:
    topic = compacted_topic(broker, min_compaction_lag_ms=str(DAY_MS), min_cleanable_dirty_ratio="0.1")
    topic.set("min.compaction.lag.ms", "0")
    wait(lambda: len(topic.headers()) < 10, "young records are compacted")


def max_message_bytes(broker: BrokerProcess) -> None:
    topic = Topic(broker)
    assert topic.put(bytes(5000)) is None
    topic.set("max.message.bytes", "4000")
    assert topic.put(bytes(5000)) == KafkaError.MSG_SIZE_TOO_LARGE


def timestamp_bound(name: str, offset_ms: int) -> Callable[[BrokerProcess], None]:
    def bound(broker: BrokerProcess) -> None:
        topic = Topic(broker)
        topic.set(name, str(10 * DAY_MS))
        timestamp = int(time.time() * 1000) + offset_ms
        assert topic.put(b"x", timestamp=timestamp) is None
        topic.set(name, "1000")
        assert topic.put(b"x", timestamp=timestamp) == KafkaError.INVALID_TIMESTAMP

    return bound


def message_timestamp_type(broker: BrokerProcess) -> None:
    topic = Topic(broker)
    yesterday = int(time.time() * 1000) - DAY_MS
    topic.put(b"x", timestamp=yesterday)
    topic.set("message.timestamp.type", "LogAppendTime")
    topic.put(b"x", timestamp=yesterday)
    given, appended = topic.headers()
    assert given.max_timestamp == yesterday
    assert abs(appended.max_timestamp - time.time() * 1000) < 60_000


def min_insync_replicas(broker: BrokerProcess) -> None:
    topic = Topic(broker)
    assert topic.put(b"x") is None
    topic.set("min.insync.replicas", "2")
    # Where there is but one replica, one is enough. What it does with more: test_following.py.
    assert topic.put(b"x") is None


def retention(name: str, value: str) -> Callable[[BrokerProcess], None]:
    def goes(broker: BrokerProcess) -> None:
        topic = Topic(broker, internal_segment_bytes="3000")
        topic.put_some(10)
        assert topic.start_offset() == 0
        topic.set(name, value)
        wait(lambda: topic.start_offset() >= 5, "old segments go")

    return goes


def rolls(name: str, value: str, size: int, count: int) -> Callable[[BrokerProcess], None]:
    def roll(broker: BrokerProcess) -> None:
        topic = Topic(broker, index_interval_bytes="0")
        topic.put_some(count, size)
        assert len(topic.names(".log")) == 1
        topic.set(name, value)
        time.sleep(0.01)
        topic.put_some(count, size)
        assert len(topic.names(".log")) > 1

    return roll


EFFECTS: dict[str, Callable[[BrokerProcess], None]] = {
    "cleanup.policy": cleanup_policy,
    "compression.type": compression_type,
    "compression.gzip.level": level_of("gzip"),
    "compression.lz4.level": level_of("lz4"),
    "compression.zstd.level": level_of("zstd"),
    "delete.retention.ms": delete_retention_ms,
    "file.delete.delay.ms": file_delete_delay_ms,
    "flush.messages": flush_messages,
    "flush.ms": flush_ms,
    "index.interval.bytes": index_interval_bytes,
    "max.compaction.lag.ms": max_compaction_lag_ms,
    "max.message.bytes": max_message_bytes,
    "message.timestamp.after.max.ms": timestamp_bound("message.timestamp.after.max.ms", DAY_MS),
    "message.timestamp.before.max.ms": timestamp_bound("message.timestamp.before.max.ms", -DAY_MS),
    "message.timestamp.type": message_timestamp_type,
    "min.cleanable.dirty.ratio": min_cleanable_dirty_ratio,
    "min.compaction.lag.ms": min_compaction_lag_ms,
    "min.insync.replicas": min_insync_replicas,
    "retention.bytes": retention("retention.bytes", "3000"),
    "retention.ms": retention("retention.ms", "1"),
    "segment.bytes": rolls("segment.bytes", "1048576", 300_000, 3),
    "segment.index.bytes": rolls("segment.index.bytes", "24", 100, 5),
    "segment.ms": rolls("segment.ms", "1", 100, 2),
}


@pytest.mark.parametrize("name", EFFECTS)
def test_a_setting_takes_effect_while_the_broker_runs(broker: BrokerProcess, name: str) -> None:
    EFFECTS[name](broker)


def test_the_others_are_accepted(broker: BrokerProcess) -> None:
    topic = Topic(broker)
    for name, value in ONLY_ACCEPTED.items():
        topic.set(name, value)
    assert topic.put(b"x") is None


def test_remote_storage_cannot_be_asked_for(broker: BrokerProcess) -> None:
    with pytest.raises(KafkaException) as refused:
        Topic(broker, remote_storage_enable="true")
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
    assert "no remote storage" in refused.value.args[0].str()


def test_no_setting_is_left_out() -> None:
    wanted = {key.name for key in TOPIC_KEYS.values() if key.effective and not key.internal}
    assert wanted <= {*EFFECTS, *ONLY_ACCEPTED}
