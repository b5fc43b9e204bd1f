"""The metadata log on a disk that forgets: what was answered is there after any restart, as it was."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from metadata_node import HOST, LOG_DIR, MetadataNode, state

from ottla.config import BrokerConfig
from ottla.controller.configs import ConfigChange, ConfigOperation, ResourceChanges
from ottla.controller.topics import NewPartitions, NewTopic, TopicRef
from ottla.metadata.change import MetadataChange
from ottla.metadata.image import MetadataImage, ResourceType
from ottla.metadata.snapshot import list_snapshots
from ottla.raft.metadata_log import QuorumError
from ottla.sim.world import SimWorld
from ottla.wire.errors import ErrorCode, NotController, StorageError

SET = ConfigOperation.SET

Stop = Literal["shutdown", "kill", "power"]
STOPS: tuple[Stop, ...] = ("shutdown", "kill", "power")


async def stop(node: MetadataNode, how: Stop) -> None:
    if how == "shutdown":
        await node.stop()
    else:
        node.world.crash(HOST, power_loss=how == "power")


def retention(topic: str, value: str) -> ResourceChanges:
    return ResourceChanges(ResourceType.TOPIC, topic, (ConfigChange("retention.ms", SET, value),))


async def some_changes(node: MetadataNode) -> None:
    controller = node.controller
    await controller.create_topics([NewTopic("a", 3, configs=(("retention.ms", "7"),)), NewTopic("b", 2)])
    await controller.create_partitions([NewPartitions("b", 4)])
    await controller.incremental_alter_configs([retention("b", "5")])
    await controller.create_topics([NewTopic("c", 1)])
    await controller.delete_topics([TopicRef("a")])
    await controller.allocate_producer_ids(1, node.broker_epoch)


async def wait_appended(node: MetadataNode, end_offset: int) -> None:
    """Until records up to here are in the log, committed or not."""
    while node.quorum.describe().log_end_offset < end_offset:
        await asyncio.sleep(0)


@pytest.mark.parametrize("how", STOPS)
def test_everything_answered_survives_every_kind_of_stop(how: Stop) -> None:
    with SimWorld(how) as world:
        node = MetadataNode(world)

        async def scenario() -> None:
            await node.start()
            assert node.loaded == MetadataImage()
            await some_changes(node)
            before = node.image
            assert sorted(before.topics) == ["b", "c"]
            assert before.config(ResourceType.TOPIC, "b") == {"retention.ms": "5"}
            assert before.next_producer_id == 1000
            for _ in range(3):
                await stop(node, how)
                await node.restart()
                assert state(node.loaded) == state(before)
                assert node.loaded.offset >= before.offset
                assert node.image.epoch > before.epoch
                before = node.image

        world.run(scenario())


def test_a_first_start_needs_few_fsyncs() -> None:
    syncs = 0

    def count(event: str) -> None:
        nonlocal syncs
        syncs += event.startswith("sync ")

    with SimWorld(1) as world:
        world.host(HOST).disk._trace = count
        node = MetadataNode(world)
        world.run(node.start())
        # The election, then one of everything in the log's directory for the first batch.
        assert syncs <= 8
        syncs = 0

        async def many_topics() -> None:
            await asyncio.gather(
                *(node.controller.create_topics([NewTopic(f"topic-{number}")]) for number in range(100))
            )

        world.run(world.spawn(HOST, many_topics()))  # type: ignore[arg-type]
        assert syncs <= 3


def test_the_same_seed_writes_the_same_bytes() -> None:
    def log_of(seed: int) -> bytes:
        with SimWorld(seed) as world:
            node = MetadataNode(world)

            async def scenario() -> bytes:
                await node.start()
                await some_changes(node)
                return world.host(HOST).disk.read_file(f"{LOG_DIR}/00000000000000000000.log")

            return world.run(scenario())

    assert log_of(8) == log_of(8) != log_of(9)


def test_two_requests_for_one_topic_in_flight_conflict() -> None:
    with SimWorld(2) as world:
        node = MetadataNode(world)

        async def scenario() -> None:
            await node.start()
            first, second = await asyncio.gather(
                node.controller.create_topics([NewTopic("a")]), node.controller.create_topics([NewTopic("a")])
            )
            assert first[0].error is None
            assert second[0].error is not None
            assert second[0].error.code is ErrorCode.topic_already_exists

        world.run(scenario())


def test_the_image_moves_with_the_commit_and_subscribers_hear_of_it_before_the_answer() -> None:
    with SimWorld(3) as world:
        node = MetadataNode(world)
        heard: list[MetadataChange] = []

        async def scenario() -> None:
            await node.start()
            node.metadata.subscribe(heard.append)
            before = node.image
            creations = [
                asyncio.ensure_future(node.controller.create_topics([NewTopic(name)])) for name in "ab"
            ]
            await wait_appended(node, before.offset + 5)
            assert node.image is before and heard == []
            await asyncio.gather(*creations)
            assert [len(change.after.topics) for change in heard] == [1, 2]
            assert heard[0].before is before and heard[1].before is heard[0].after
            assert heard[1].after is node.image
            assert [[topic.name for topic in change.topics] for change in heard] == [["a"], ["b"]]

        world.run(scenario())


def test_validation_alone_changes_nothing() -> None:
    with SimWorld(4) as world:
        node = MetadataNode(world)

        async def scenario() -> None:
            await node.start()
            before = node.image
            [outcome] = await node.controller.create_topics([NewTopic("a", 2)], validate_only=True)
            assert outcome.error is None and outcome.partition_count == 2
            await node.controller.create_topics([NewTopic("b")])
            [outcome] = await node.controller.create_partitions([NewPartitions("b", 2)], validate_only=True)
            assert outcome.error is None
            [changed] = await node.controller.incremental_alter_configs(
                [retention("b", "1")], validate_only=True
            )
            assert changed.error is None
            assert node.image.offset == before.offset + 2
            assert len(node.image.topics["b"].partitions) == 1

        world.run(scenario())


def test_whoever_gives_up_waiting_does_not_take_the_change_back() -> None:
    with SimWorld(5) as world:
        node = MetadataNode(world)

        async def scenario() -> None:
            await node.start()
            end = node.quorum.describe().log_end_offset
            creation = asyncio.ensure_future(node.controller.create_topics([NewTopic("a")]))
            await wait_appended(node, end + 2)
            creation.cancel()
            await node.controller.create_topics([NewTopic("b")])
            assert sorted(node.image.topics) == ["a", "b"]

        world.run(scenario())


@pytest.mark.parametrize("how", STOPS)
def test_snapshots_are_taken_and_the_log_after_them_replayed(how: Stop) -> None:
    with SimWorld(how) as world:
        node = MetadataNode(
            world,
            metadata_log_max_record_bytes_between_snapshots="2000",
            metadata_max_retention_bytes="30000",
        )

        node.segment_bytes = 1500

        async def scenario() -> None:
            await node.start()
            disk = world.host(HOST).disk
            oldest_kept = 0
            for number in range(120):
                await node.controller.create_topics([NewTopic(f"topic-{number}", 2)])
                await node.controller.incremental_alter_configs([retention(f"topic-{number}", str(number))])
                if number % 10 == 9:
                    await node.controller.delete_topics([TopicRef(f"topic-{number - 5}")])
                if number % 30 == 20:
                    before = node.image
                    await stop(node, how)
                    await node.restart()
                    assert state(node.loaded) == state(before)
                    snapshots = list_snapshots(disk, LOG_DIR)
                    assert oldest_kept < snapshots[0].offset
                    assert len(snapshots) < 6 and snapshots[-1].offset <= node.image.offset + 1
                    oldest_kept = snapshots[0].offset
                    names = disk.list_dir(LOG_DIR)
                    assert not [name for name in names if name.endswith((".deleted", ".tmp"))]
                    segments = [int(name.removesuffix(".log")) for name in names if name.endswith(".log")]
                    assert segments[0] <= oldest_kept and len(segments) < 8

        world.run(scenario())


def test_a_disk_that_cannot_sync_stops_the_node_and_nothing_half_done_is_answered() -> None:
    with SimWorld(6) as world:
        node = MetadataNode(world)

        async def scenario() -> None:
            await node.start()
            await node.controller.create_topics([NewTopic("a")])
            world.host(HOST).disk.fail("sync", errno.EIO)
            with pytest.raises(StorageError, match="metadata log cannot be written"):
                await node.controller.create_topics([NewTopic("b")])
            assert len(node.failures) == 1
            assert sorted(node.image.topics) == ["a"]
            with pytest.raises(NotController):
                await node.controller.create_topics([NewTopic("c")])
            await stop(node, "shutdown")
            await node.restart()
            assert {"a"} <= set(node.loaded.topics) <= {"a", "b"}

        world.run(scenario())


def test_a_full_disk_fails_the_request_and_not_the_node() -> None:
    with SimWorld(7) as world:
        node = MetadataNode(world)

        async def scenario() -> None:
            await node.start()
            world.host(HOST).disk.fail("append", errno.ENOSPC)
            with pytest.raises(StorageError):
                await node.controller.create_topics([NewTopic("a")])
            assert node.failures == []
            [outcome] = await node.controller.create_topics([NewTopic("a")])
            assert outcome.error is None
            await stop(node, "power")
            await node.restart()
            assert list(node.loaded.topics) == ["a"]

        world.run(scenario())


@pytest.mark.parametrize("how", STOPS)
@pytest.mark.parametrize("seed", range(4))
def test_damage_to_what_was_on_disk_is_found_and_not_cut_away(seed: int, how: Stop) -> None:
    with SimWorld(f"{seed}/{how}") as world:
        node = MetadataNode(world)

        async def scenario() -> None:
            await node.start()
            await some_changes(node)
            disk = world.host(HOST).disk
            path = f"{LOG_DIR}/00000000000000000000.log"
            size = len(disk.read_file(path))
            await stop(node, how)
            # A start vouches for what it found; what was written since could be the torn end of a crash.
            await node.restart()
            await stop(node, how)
            disk.restart()
            disk.corrupt(path, world.random("position").randrange(size))
            with pytest.raises(QuorumError, match=r"__cluster_metadata-0: .* restore"):
                await node.restart()

        world.run(scenario())


@dataclass(frozen=True)
class Command:
    kind: Literal["create", "delete", "grow", "configure", "ids", "restart"]
    topic: int
    number: int


commands = st.builds(
    Command,
    st.sampled_from(["create", "create", "delete", "grow", "configure", "ids", "restart"]),
    st.integers(0, 4),
    st.integers(0, 8),
)


async def carry_out(node: MetadataNode, command: Command) -> None:
    controller, topic = node.controller, f"t.{command.topic}"
    match command.kind:
        case "create":
            await controller.create_topics([NewTopic(topic, command.number)])
        case "delete":
            await controller.delete_topics([TopicRef(topic)])
        case "grow":
            await controller.create_partitions([NewPartitions(topic, command.number)])
        case "configure":
            await controller.incremental_alter_configs([retention(topic, str(command.number))])
        case "ids":
            await controller.allocate_producer_ids(1, node.broker_epoch)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sequence=st.lists(commands, max_size=40), seed=st.integers(0, 2**32))
def test_any_commands_with_any_restarts_between_them(sequence: Sequence[Command], seed: int) -> None:
    """The image after replay is the image before, with snapshots at arbitrary places."""
    with SimWorld(seed) as world:
        node = MetadataNode(world, metadata_log_max_record_bytes_between_snapshots="700")

        async def scenario() -> None:
            await node.start()
            for command in sequence:
                if command.kind == "restart":
                    before = node.image
                    await stop(node, STOPS[command.number % 3])
                    await node.restart()
                    assert state(node.loaded) == state(before)
                else:
                    await carry_out(node, command)

        world.run(scenario())


@pytest.mark.parametrize("seed", range(40))
def test_power_cut_at_any_moment_keeps_what_was_answered_and_halves_nothing(seed: int) -> None:
    with SimWorld(seed) as world:
        node = MetadataNode(world, metadata_log_max_record_bytes_between_snapshots="700")
        chance = world.random("commands")

        async def client() -> None:
            while True:
                command = Command(
                    chance.choice(["create", "create", "delete", "grow", "configure", "ids"]),
                    chance.randrange(5),
                    chance.randrange(1, 9),
                )
                await carry_out(node, command)

        async def scenario() -> None:
            await node.start()
            for _ in range(6):
                clients = [world.spawn(HOST, client()) for _ in range(3)]
                world.crash_mid_operation(HOST, chance.randrange(1, 60))
                await world.host(HOST).died.wait()
                await asyncio.gather(*clients, return_exceptions=True)
                possible = [node.image]
                for batch in node.quorum._uncommitted:
                    possible.append(possible[-1].apply_all(batch.records, batch.last_offset, batch.epoch))
                await restart_at_last()
                assert cluster(node.loaded) in map(cluster, possible)

        async def restart_at_last() -> None:
            """The power may go again while the node starts."""
            if chance.random() < 0.5:
                world.crash_mid_operation(HOST, chance.randrange(1, 30))
            while not world.host(HOST).is_running:
                with contextlib.suppress(asyncio.CancelledError):
                    await node.restart()

        def cluster(image: MetadataImage) -> MetadataImage:
            """Without the broker, which a start that was cut off may have registered anew."""
            return replace(state(image), brokers={})

        world.run(scenario())


@pytest.mark.parametrize("damaged_count", [1, 2])
@pytest.mark.parametrize("content", [b"", b"nonsense" * 40])
def test_a_damaged_snapshot_gives_way_to_an_older_one_or_to_the_log(
    damaged_count: int, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with SimWorld(3) as world:
        node = MetadataNode(world, metadata_log_max_record_bytes_between_snapshots="300")

        async def scenario() -> None:
            await node.start()
            for name in "abcdefgh":
                await node.controller.create_topics([NewTopic(name, 1)])
            before = node.image
            await node.stop()
            disk = world.host(HOST).disk
            disk.restart()
            snapshots = list_snapshots(disk, LOG_DIR)
            assert len(snapshots) > 1
            damaged = snapshots[-1:] if damaged_count == 1 else snapshots
            for each in damaged:
                disk.replace_file(f"{LOG_DIR}/{each.file_name}", content)
            await node.restart()
            assert state(node.loaded) == state(before)
            for each in damaged:
                assert disk.exists(f"{LOG_DIR}/{each.file_name}.damaged")
                assert f"{each.file_name}.damaged, and the metadata is read from" in caplog.text

        world.run(scenario())


def test_a_damaged_snapshot_that_nothing_can_replace_is_named() -> None:
    with SimWorld(3) as world:
        node = MetadataNode(
            world,
            metadata_log_max_record_bytes_between_snapshots="2000",
            metadata_max_retention_bytes="1",
        )
        node.segment_bytes = 1000

        async def scenario() -> None:
            await node.start()
            disk = world.host(HOST).disk
            for number in range(200):
                await node.controller.create_topics([NewTopic(f"topic-{number}", 1)])
            await node.stop()
            disk.restart()
            (only,) = list_snapshots(disk, LOG_DIR)
            path = f"{LOG_DIR}/{only.file_name}"
            disk.replace_file(path, disk.read_file(path)[:-1])
            with pytest.raises(QuorumError, match=f"{only.file_name}: incomplete.*from a backup"):
                await node.restart()
            assert disk.exists(path)

        world.run(scenario())


def test_a_new_cluster_keeps_eligible_replicas_and_has_one_number_of_them() -> None:
    """As a new cluster of Apache Kafka 4.1 and later: the number counts for all brokers, from the log."""
    with SimWorld(1) as world:
        node = MetadataNode(world, min_insync_replicas="2")

        async def scenario() -> None:
            await node.start()
            assert node.image.keeps_eligible_replicas
            assert node.image.config(ResourceType.BROKER, "") == {"min.insync.replicas": "2"}
            await node.stop()
            node.config = BrokerConfig.from_properties(
                {"node.id": "1", "log.dirs": "/data", "min.insync.replicas": "1"}
            )
            await node.restart()
            assert node.image.config(ResourceType.BROKER, "") == {"min.insync.replicas": "2"}

        world.run(scenario())
