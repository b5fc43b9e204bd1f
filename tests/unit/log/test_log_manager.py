from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID

import pytest
from log_kit import NOW_MS, LogKit, batch, fill, read_all

from ottla.config import BrokerConfig, LogConfig
from ottla.log.checkpoints import encode_partition_metadata
from ottla.log.log import PartitionLog
from ottla.log.manager import LogInTwoDirs, LogManager
from ottla.log.types import TopicPartition
from ottla.runtime.disk import DiskLocked
from ottla.runtime.tasks import TaskScope
from ottla.sim.disk import SimDisk
from ottla.sim.world import SimWorld, simulate

TOPIC_ID = UUID(int=77)
ORDERS = TopicPartition("orders", 0)
DIRS = ("/disk1", "/disk2")


def default_config(_: str) -> LogConfig:
    return LogConfig()


class Broker:
    """A log manager that is started again and again on the same disk."""

    def __init__(self, *dirs: str, **properties: str) -> None:
        self.disk = SimDisk()
        self.kit = LogKit(self.disk)
        self.dirs = dirs or DIRS
        self.properties = {"node.id": "1", **properties}

    def start(
        self,
        config_of: Callable[[str], LogConfig] = default_config,
        topic_id: UUID | None = None,
        known_path: str | None = None,
    ) -> LogManager:
        config = BrokerConfig.from_properties(self.properties)
        manager = LogManager(self.kit.runtime, config, self.dirs)
        manager.lock()
        manager.open(config_of, lambda partition: topic_id, path_of=lambda partition: known_path)
        return manager

    def stop(self, manager: LogManager, broker_epoch: int = -1) -> None:
        asyncio.run(manager.close(broker_epoch))
        manager.unlock()


def create(manager: LogManager, topic: str, partition: int = 0, **config: object) -> PartitionLog:
    return manager.create(topic, partition, TOPIC_ID, LogConfig(**config))  # type: ignore[arg-type]


def test_logs_are_found_again_after_a_clean_stop(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    manager = broker.start()
    fill(create(manager, "orders"), 10)
    broker.stop(manager, broker_epoch=12)
    assert broker.disk.read_file("/disk1/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":12}'
    assert broker.disk.read_file("/disk1/recovery-point-offset-checkpoint") == b"0\n1\norders 0 10\n"
    with caplog.at_level("INFO"):
        manager = broker.start()
    log = manager.get(ORDERS)
    assert log is not None
    assert (log.next_offset, log.recovery_point, log.topic_id) == (10, 10, TOPIC_ID)
    assert "recovered" not in caplog.text
    assert not broker.disk.exists("/disk1/.kafka_cleanshutdown")


def test_after_a_kill_logs_are_recovered_from_their_recovery_points(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    manager = broker.start()
    log = create(manager, "orders", segment_bytes=1000)
    fill(log, 22)
    asyncio.run(log.flush())
    asyncio.run(manager.write_checkpoints())
    fill(log, 3)
    broker.disk.kill()
    with caplog.at_level("INFO"):
        reopened = broker.start().get(ORDERS)
    assert reopened is not None
    # The last record is left to recovery, lest the indexes of its segment be trusted.
    assert (reopened.next_offset, reopened.recovery_point) == (25, 21)
    # The segment that holds offset 21 and no other.
    assert "recovered orders-0: 5 records scanned" in caplog.text
    assert read_all(reopened) == [(i, i) for i in range(25)]


def test_new_partitions_go_where_the_fewest_are() -> None:
    manager = Broker().start()
    for partition in range(5):
        create(manager, "t", partition)
    assert [len(logs) for logs in manager.logs_by_dir().values()] == [3, 2]
    assert {log.dir for log in manager.all_logs} == {
        "/disk1/t-0",
        "/disk2/t-1",
        "/disk1/t-2",
        "/disk2/t-3",
        "/disk1/t-4",
    }
    with pytest.raises(ValueError, match="t-0 exists in /disk1/t-0"):
        create(manager, "t", 0)


def test_a_directory_in_use_is_refused_and_the_others_are_let_go() -> None:
    broker = Broker()
    held = broker.disk
    held.make_dirs("/disk2")
    lock = held.lock("/disk2/.lock")
    with pytest.raises(DiskLocked):
        broker.start()
    lock.release()
    broker.start()


def test_one_partition_in_two_directories_is_an_error() -> None:
    broker = Broker()
    manager = broker.start()
    create(manager, "orders")
    broker.stop(manager)
    broker.disk.make_dirs("/disk2/orders-0")
    with pytest.raises(LogInTwoDirs, match="orders-0 is both in /disk1/orders-0 and /disk2/orders-0"):
        broker.start()


@pytest.mark.parametrize("kept", DIRS)
def test_of_two_logs_of_a_name_the_one_of_a_deleted_topic_is_set_aside(kept: str) -> None:
    """It was deleted while its disk failed, and another was made under its name elsewhere."""
    broker = Broker()
    manager = broker.start()
    fill(create(manager, "orders"), 10)
    broker.stop(manager)
    broker.disk.rename("/disk1/orders-0", "/disk2/orders-0")
    again = broker.start()
    other_id = UUID(int=78)
    broker.disk.make_dirs("/disk1/orders-0")
    broker.disk.replace_file("/disk1/orders-0/partition.metadata", encode_partition_metadata(other_id))
    broker.stop(again)
    settled = broker.start(topic_id=other_id if kept == "/disk1" else TOPIC_ID)
    found = settled.get(ORDERS)
    assert found is not None and found.dir == f"{kept}/orders-0"
    assert found.next_offset == (0 if kept == "/disk1" else 10)
    aside = [name for path in DIRS for name in broker.disk.list_dir(path) if name.endswith("-stray")]
    assert len(aside) == 1
    broker.stop(settled)
    broker.start(topic_id=found.topic_id)


@pytest.mark.parametrize("kept", DIRS)
@pytest.mark.parametrize(
    "unknown", [None, *DIRS], ids=["both say whose they are", "the first does not", "the second"]
)
def test_of_two_logs_of_a_topic_the_one_in_the_directory_that_is_known_is_used(
    kept: str, unknown: str | None
) -> None:
    """A directory comes back whose replica was fetched anew into another one; or a power cut took what says
    whose log it is."""
    broker = Broker()
    manager = broker.start()
    fill(create(manager, "orders"), 10)
    broker.stop(manager)
    broker.disk.rename("/disk1/orders-0", "/disk2/orders-0")
    again = broker.start()
    broker.disk.make_dirs("/disk1/orders-0")
    broker.disk.replace_file("/disk1/orders-0/partition.metadata", encode_partition_metadata(TOPIC_ID))
    broker.stop(again)
    if unknown is not None:
        broker.disk.replace_file(f"{unknown}/orders-0/partition.metadata", b"")
    settled = broker.start(topic_id=TOPIC_ID, known_path=kept)
    found = settled.get(ORDERS)
    assert found is not None and found.dir == f"{kept}/orders-0"
    assert found.next_offset == (0 if kept == "/disk1" else 10)
    aside = [f"{path}/{name}" for path in DIRS for name in broker.disk.list_dir(path) if "-stray" in name]
    assert len(aside) == 1 and not aside[0].startswith(kept)
    broker.stop(settled)
    broker.start()


def test_a_log_that_could_not_be_opened_gives_way_to_the_right_one() -> None:
    broker = Broker()
    manager = broker.start()
    fill(create(manager, "orders"), 10)
    broker.stop(manager)
    broker.disk.make_dirs("/disk2/orders-0")
    broker.disk.fail("open", 5, path="/disk1/orders-0")
    settled = broker.start(topic_id=TOPIC_ID, known_path="/disk2")
    found = settled.get(ORDERS)
    assert found is not None and found.dir == "/disk2/orders-0"
    assert not settled.has_unopened(ORDERS)


def test_what_is_no_partition_is_left_alone() -> None:
    broker = Broker("/disk1")
    broker.disk.make_dirs("/disk1/__cluster_metadata-0")
    broker.disk.make_dirs("/disk1/lost+found")
    broker.disk.replace_file("/disk1/meta.properties", b"")
    assert list(broker.start().all_logs) == []
    assert broker.disk.list_dir("/disk1/__cluster_metadata-0") == []


def test_a_log_that_cannot_be_closed_leaves_no_marker() -> None:
    broker = Broker()
    manager = broker.start()
    fill(create(manager, "a"), 3)
    fill(create(manager, "b"), 3)
    broker.disk.fail("sync", 5, path="/disk1/a-0")
    broker.stop(manager)
    assert not broker.disk.exists("/disk1/.kafka_cleanshutdown")
    assert broker.disk.exists("/disk2/.kafka_cleanshutdown")


def test_start_offsets_are_kept_where_file_names_do_not_tell_them() -> None:
    broker = Broker("/disk1")
    manager = broker.start()
    log = create(manager, "orders")
    fill(log, 10)
    log.delete_records_before(4)
    create(manager, "other")
    broker.stop(manager)
    assert broker.disk.read_file("/disk1/log-start-offset-checkpoint") == b"0\n1\norders 0 4\n"
    reopened = broker.start().get(ORDERS)
    assert reopened is not None
    assert reopened.start_offset == 4


def test_deleted_topics_are_out_of_sight_at_once_and_may_come_back() -> None:
    broker = Broker("/disk1")
    manager = broker.start()
    old = create(manager, "orders")
    fill(old, 3)
    manager.delete(ORDERS)
    assert manager.get(ORDERS) is None
    (name,) = [name for name in broker.disk.list_dir("/disk1") if name.endswith("-delete")]
    assert name.startswith("orders-0.") and len(name) == len("orders-0.-delete") + 32
    assert create(manager, "orders").next_offset == 0
    broker.stop(manager)
    # What a stopped broker left is removed by the next.
    manager = broker.start()
    asyncio.run(manager._keep_house())
    assert not [name for name in broker.disk.list_dir("/disk1") if name.endswith("-delete")]


def recovery_points(broker: Broker) -> bytes:
    return broker.disk.read_file("/disk1/recovery-point-offset-checkpoint")


def test_the_recovery_point_on_disk_is_lowered_before_records_are_replaced() -> None:
    broker = Broker("/disk1")
    manager = broker.start()
    log = create(manager, "orders")
    fill(log, 10)
    asyncio.run(log.flush())
    asyncio.run(manager.write_checkpoints())
    assert recovery_points(broker) == b"0\n1\norders 0 9\n"
    seen: list[tuple[bytes, int]] = []
    truncate_to = PartitionLog.truncate_to

    def watching(self: PartitionLog, offset: int) -> None:
        seen.append((recovery_points(broker), self.next_offset))
        truncate_to(self, offset)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartitionLog, "truncate_to", watching)
        asyncio.run(manager.truncate(ORDERS, 4))
    assert seen == [(b"0\n1\norders 0 2\n", 10)]
    assert log.next_offset == 4


def test_the_recovery_point_on_disk_follows_when_recovery_finds_less() -> None:
    broker = Broker("/disk1")
    manager = broker.start()
    fill(create(manager, "orders"), 10)
    broker.stop(manager)
    broker.disk.remove("/disk1/.kafka_cleanshutdown")
    path = "/disk1/orders-0/00000000000000000000.log"
    broker.disk.replace_file(path, broker.disk.read_file(path)[:500])
    reopened = broker.start().get(ORDERS)
    assert reopened is not None
    assert reopened.next_offset == 2
    assert recovery_points(broker) == b"0\n1\norders 0 1\n"


# In the background, on virtual time.


def run_for(
    seconds: float,
    properties: dict[str, str],
    script: Callable[[LogManager], None],
    check: Callable[[SimDisk, LogManager], None],
) -> None:
    """Start a manager with its loops, run a script on it, let time pass and look."""

    async def scenario(world: SimWorld) -> None:
        host = world.host("broker")
        failures: list[tuple[str, BaseException]] = []
        scope = TaskScope("test", lambda name, error: failures.append((name, error)))
        config = BrokerConfig.from_properties({"node.id": "1", **properties})
        manager = LogManager(host.runtime, config, ["/disk1"])
        manager.lock()
        manager.open(default_config)
        manager.start(scope, lambda partition: 2**62)
        script(manager)
        await asyncio.sleep(seconds)
        await scope.close()
        assert failures == []
        check(host.disk, manager)

    simulate(scenario, seed=1)


def append(log: PartitionLog, count: int, age_ms: int = 0) -> None:
    for _ in range(count):
        log.append(memoryview(batch(bytes(100), timestamp_ms=NOW_MS - age_ms)), leader_epoch=0)


def test_retention_and_removal_happen_by_themselves() -> None:
    def script(manager: LogManager) -> None:
        log = create(manager, "orders", segment_bytes=1000, retention_ms=60_000, file_delete_delay_ms=1000)
        append(log, 20, age_ms=120_000)

    def check(disk: SimDisk, manager: LogManager) -> None:
        log = manager.get(ORDERS)
        assert log is not None
        assert (log.start_offset, log.size_bytes) == (20, 0)
        left = [name for name in disk.list_dir("/disk1/orders-0") if name[0].isdigit()]
        assert left == [f"{20:020d}.{suffix}" for suffix in ("index", "log", "snapshot", "timeindex")]

    run_for(45, {"log.retention.check.interval.ms": "1000"}, script, check)


def test_full_segments_are_synced_and_checkpointed_by_themselves() -> None:
    def script(manager: LogManager) -> None:
        append(create(manager, "orders", segment_bytes=1000), 12)

    def check(disk: SimDisk, manager: LogManager) -> None:
        assert disk.read_file("/disk1/recovery-point-offset-checkpoint") == b"0\n1\norders 0 10\n"

    run_for(100, {}, script, check)


def test_logs_are_flushed_when_their_topic_asks_for_it() -> None:
    def script(manager: LogManager) -> None:
        append(create(manager, "orders", flush_ms=5000), 3)
        append(create(manager, "lazy"), 3)

    def check(disk: SimDisk, manager: LogManager) -> None:
        assert [log.recovery_point for log in manager.all_logs] == [3, 0]

    run_for(8, {}, script, check)


def test_idle_producers_are_forgotten() -> None:
    def script(manager: LogManager) -> None:
        log = create(manager, "orders")
        for producer_id, age_ms in ((1, 3_600_000), (2, 0)):
            data = batch(
                b"", timestamp_ms=NOW_MS - age_ms, producer_id=producer_id, producer_epoch=0, base_sequence=0
            )
            log.append(memoryview(data), leader_epoch=0)

    def check(disk: SimDisk, manager: LogManager) -> None:
        log = manager.get(ORDERS)
        assert log is not None
        assert set(log.producers.active) == {2}

    properties = {
        "producer.id.expiration.ms": "600000",
        "producer.id.expiration.check.interval.ms": "1000",
    }
    run_for(40, properties, script, check)


@pytest.mark.parametrize(("seconds", "there"), [(4, True), (8, False)])
def test_deleted_topics_leave_the_disk_after_their_delay(seconds: float, there: bool) -> None:
    def script(manager: LogManager) -> None:
        append(create(manager, "orders", file_delete_delay_ms=5000), 3)
        manager.delete(ORDERS)

    def check(disk: SimDisk, manager: LogManager) -> None:
        assert any(name.endswith("-delete") for name in disk.list_dir("/disk1")) == there

    run_for(seconds, {}, script, check)


def test_a_log_that_cannot_be_opened_costs_nobody_else_and_is_tried_again() -> None:
    broker = Broker("/disk1")
    manager = broker.start()
    orders = create(manager, "orders")
    fill(orders, 10)
    orders.delete_records_before(4)
    fill(create(manager, "payments"), 5)
    broker.stop(manager)
    segment = "/disk1/orders-0/00000000000000000000.log"
    hidden = broker.disk.read_file(segment)
    broker.disk.remove(segment)
    broker.disk.make_dirs(segment)
    manager = broker.start()
    assert manager.get(ORDERS) is None
    assert manager.get(TopicPartition("payments", 0)) is not None
    broker.stop(manager)
    # Nobody looked at it, so the next start must.
    assert not broker.disk.exists("/disk1/.kafka_cleanshutdown")
    manager = broker.start()
    broker.disk.remove_tree(segment)
    broker.disk.replace_file(segment, hidden)
    opened = create(manager, "orders")
    assert (opened.start_offset, opened.next_offset) == (4, 10)
    broker.stop(manager)
    assert broker.disk.exists("/disk1/.kafka_cleanshutdown")


def test_a_file_where_a_log_would_be_does_not_keep_the_broker_from_starting() -> None:
    broker = Broker("/disk1")
    broker.disk.make_dirs("/disk1")
    broker.disk.replace_file("/disk1/orders-0", b"notes")
    manager = broker.start()
    with pytest.raises(FileExistsError):
        create(manager, "orders")
    broker.disk.remove("/disk1/orders-0")
    create(manager, "orders")


@pytest.mark.parametrize("content", [None, b"", b"version: 0\ntopic_id: AAAA", b"\x00\xff garbage"])
def test_a_log_that_does_not_say_whose_it_is_belongs_to_the_topic_of_its_name(
    content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker("/disk1")
    manager = broker.start()
    fill(create(manager, "orders"), 10)
    broker.stop(manager)
    path = "/disk1/orders-0/partition.metadata"
    if content is None:
        broker.disk.remove(path)
    else:
        broker.disk.replace_file(path, content)
    manager = LogManager(broker.kit.runtime, BrokerConfig.from_properties(broker.properties), broker.dirs)
    manager.lock()
    manager.open(default_config, {ORDERS: TOPIC_ID}.get)
    assert f"{path} was missing or damaged: it is written anew" in caplog.text
    broker.stop(manager)
    found = broker.start().get(ORDERS)
    assert found is not None
    assert (found.topic_id, found.next_offset) == (TOPIC_ID, 10)
