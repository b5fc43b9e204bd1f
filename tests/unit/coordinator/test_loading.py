"""Loading a shard of which something is lost, of which something is not understood, or which is not there."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from group_driver import EPOCH_MS, Driver, stabilise, topics
from test_hosted_groups import CountingLog, Service, commit, fetch, host, image, loaded, simulate

from ottla.coordinator.groups.settings import GroupSettings
from ottla.coordinator.host.shard_log import read_batches
from ottla.metadata.internal_topics import OFFSETS_TOPIC as TOPIC
from ottla.records.records import Record, encode_batch
from ottla.runtime.tasks import TaskScope
from ottla.wire.errors import (
    CoordinatorLoadInProgress,
    ErrorCode,
    KafkaError,
    NotCoordinator,
    StorageError,
    UnknownTopicOrPartition,
)


@pytest.mark.parametrize("byte", [9, 16, 21, 61, 70])
def test_a_damaged_batch_costs_itself(byte: int, caplog: pytest.LogCaptureFixture) -> None:
    async def test(scope: TaskScope) -> None:
        offsets_log = CountingLog()
        first = host(scope, offsets_log)
        await loaded(first)
        for offset in (5, 6):
            await commit(first, offset)
        await commit(first, 7, "other")
        damaged = bytearray(offsets_log.batches[0][1])
        damaged[byte] ^= 0x10
        offsets_log.batches[0][1] = bytes(damaged)
        again = host(scope, offsets_log)
        await loaded(again)
        assert await fetch(again) == 5
        assert await fetch(again, "other") == 7

    simulate(test)
    assert f"{TOPIC}-0: offsets 1 to 1 are damaged and skipped" in caplog.text


@pytest.mark.parametrize("byte", range(8))
def test_a_base_offset_that_has_rotted_costs_nothing(byte: int) -> None:
    batches = [bytearray(encode_batch([Record(b"k", b"%d" % number)])) for number in range(5)]
    for number, data in enumerate(batches):
        data[:8] = (100 + number).to_bytes(8, "big")
    batches[2][byte] ^= 0x20
    stored = list(read_batches(b"".join(batches), 100, 105))
    assert [batch.records[0].value for batch in stored] == [b"0", b"1", b"2", b"3", b"4"]
    assert [batch.next_offset for batch in stored] == [101, 102, 103, 104, 105]


def test_records_that_cannot_be_read_or_replayed_cost_themselves(caplog: pytest.LogCaptureFixture) -> None:
    async def test(scope: TaskScope) -> None:
        offsets_log = CountingLog()
        first = host(scope, offsets_log)
        await loaded(first)
        await commit(first, 5)
        rotten = [Record(b"\x00\x02\x00\x01g", b"\x00\x03garbage", EPOCH_MS)]
        rotten += [Record(b"\x00\x63future", b"\x00\x00", EPOCH_MS)] * 500
        offsets_log.append(0, encode_batch(rotten))
        await commit(first, 6, "other")
        again = host(scope, offsets_log)
        await loaded(again)
        assert (await fetch(again), await fetch(again, "other")) == (5, 6)

    simulate(test)
    assert len([line for line in caplog.messages if "is skipped" in line]) == 10
    assert "501 records" in caplog.text


class UnreadableLog(CountingLog):
    """Not created yet, offline, or on a disk that answers with errors."""

    def __init__(self, reason: Exception) -> None:
        super().__init__()
        self.reason: Exception | None = reason

    async def wait_made(self) -> None: ...

    def start_offset(self, partition: int) -> int:
        if self.reason is not None:
            raise self.reason
        return super().start_offset(partition)


@pytest.mark.parametrize(
    "reason",
    [UnknownTopicOrPartition("not yet"), StorageError("offline"), OSError("I/O"), ValueError("closed")],
    ids=lambda reason: type(reason).__name__,
)
def test_a_log_that_cannot_be_read_is_tried_until_it_can(
    reason: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(scope: TaskScope) -> None:
        offsets_log = UnreadableLog(reason)
        hosted = host(scope, offsets_log)
        await asyncio.sleep(0.1)
        with pytest.raises(CoordinatorLoadInProgress):
            await fetch(hosted)
        await asyncio.sleep(30)
        with pytest.raises(NotCoordinator):
            await fetch(hosted)
        offsets_log.reason = None
        await asyncio.sleep(2)
        await commit(hosted, 5)
        assert await fetch(hosted) == 5

    simulate(test)
    (line,) = [line for line in caplog.messages if "cannot be loaded" in line]
    assert f"{TOPIC}-0" in line


def test_a_log_that_is_created_a_moment_later_is_nothing_to_speak_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(scope: TaskScope) -> None:
        offsets_log = UnreadableLog(UnknownTopicOrPartition("not yet"))
        hosted = host(scope, offsets_log)
        await asyncio.sleep(0.2)
        offsets_log.reason = None
        await asyncio.sleep(0.5)
        assert await fetch(hosted) is None

    simulate(test)
    assert not caplog.messages


class FullDisk(CountingLog):
    is_full = False

    def append(self, partition: int, batches: bytes) -> Any:
        if self.is_full:
            raise StorageError("no space left on device")
        return super().append(partition, batches)


def test_a_full_disk_fails_commands_until_there_is_room(caplog: pytest.LogCaptureFixture) -> None:
    async def test(scope: TaskScope) -> None:
        offsets_log = FullDisk()
        hosted = host(scope, offsets_log)
        await loaded(hosted)
        await commit(hosted, 5)
        offsets_log.is_full = True
        for _ in range(200):
            with pytest.raises(KafkaError) as told:
                await commit(hosted, 6)
            assert told.value.code in (ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress)
            await asyncio.sleep(0.05)
        offsets_log.is_full = False
        await asyncio.sleep(2)
        assert await fetch(hosted) == 5
        await commit(hosted, 7)
        assert await fetch(hosted) == 7

    simulate(test)
    assert len([line for line in caplog.messages if "cannot be stored" in line]) == 1


def test_a_flush_that_fails_fails_what_waits_for_it() -> None:
    async def test(scope: TaskScope) -> None:
        offsets_log = CountingLog()
        hosted = host(scope, offsets_log)
        await loaded(hosted)

        async def fail() -> None:
            raise OSError("I/O error")

        offsets_log.commit = fail
        with pytest.raises(NotCoordinator):
            await commit(hosted, 5)
        offsets_log.commit = lambda: None
        await loaded(hosted)
        await commit(hosted, 6)
        assert await fetch(hosted) == 6

    simulate(test)


def test_the_other_shards_do_not_notice() -> None:
    async def test(scope: TaskScope) -> None:
        service = Service(scope)
        start_offset = service.log.start_offset

        def only_the_others(partition: int) -> int:
            if partition == 0:
                raise StorageError("offline")
            return start_offset(partition)

        service.log.start_offset = only_the_others  # type: ignore[method-assign]
        service.apply(image(**{TOPIC: 3, "orders": 1}))
        await asyncio.sleep(10)
        outcomes = [await outcome(service, f"g{number}") for number in range(30)]
        assert set(outcomes) == {"committed", "not_coordinator"}
        service.log.start_offset = start_offset  # type: ignore[method-assign]
        await asyncio.sleep(2)
        assert await outcome(service, f"g{outcomes.index('not_coordinator')}") == "committed"

    simulate(test)


async def outcome(service: Service, group: str) -> str:
    try:
        await service.commit(group, 5)
    except KafkaError as error:
        return error.code.name
    return "committed"


# --- groups of which records are missing


def populated() -> Driver:
    """A log with all kinds of records: both protocols, assignments, a regular expression, offsets."""
    driver = Driver(GroupSettings(group_initial_rebalance_delay_ms=0), topics(orders=4, payments=2))
    epochs = {"a": 0, "b": 0}
    for _ in range(6):
        for member, epoch in epochs.items():
            reply = driver.consumer("modern", member, epoch, topics=("orders", "payments"), owned={})
            epochs[member] = reply.member_epoch
    driver.consumer("patterns", "c", 0, regex="pay.*")
    driver.advance(1_000)
    ids = [driver.get_id("classic") for _ in range(2)]
    stabilise(driver, *ids, group="classic")
    driver.commit("alone", 5)
    driver.commit("alone", 6)
    return driver


def test_whichever_record_is_lost_the_rest_is_served() -> None:
    driver = populated()
    stored = list(driver.log)
    assert len({key[:2] for key, _ in stored}) >= 7, "kinds of records"
    for lost in range(len(stored)):
        driver.log = stored[:lost] + stored[lost + 1 :]
        driver.restart()
        for group in ("modern", "patterns", "classic"):
            for use in (
                lambda: driver.call("describe_group", group),  # noqa: B023 - called at once
                lambda: driver.call("describe_consumer_group", group),  # noqa: B023
                lambda: driver.consumer(group, "a", 0),  # noqa: B023
                lambda: driver.consumer(group, "new", 0),  # noqa: B023
                lambda: driver.commit(group, 9),  # noqa: B023
            ):
                with contextlib.suppress(KafkaError):
                    use()
        driver.join("classic", requires_known_member_id=False)
        driver.advance(200_000)
        assert driver.fetch("alone") in (5, 6)
