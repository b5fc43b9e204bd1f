"""No room under the metadata log: requests are refused and nothing of them stays, a start waits for room."""

from __future__ import annotations

import asyncio
import errno

import pytest
from metadata_node import HOST, LOG_DIR, MetadataNode, state

from ottla.controller.topics import NewTopic
from ottla.metadata.snapshot import list_snapshots
from ottla.sim.world import SimWorld
from ottla.wire.errors import StorageError

SEGMENT = f"{LOG_DIR}/00000000000000000000.log"


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EDQUOT])
def test_what_cannot_be_synced_for_want_of_room_is_cut_off_and_refused(reason: int) -> None:
    with SimWorld(reason) as world:
        node = MetadataNode(world)

        async def scenario() -> None:
            await node.start()
            await node.controller.create_topics([NewTopic("before")])
            known, size = node.image, len(world.host(HOST).disk.read_file(SEGMENT))
            world.host(HOST).disk.fail("sync", reason, path=SEGMENT)
            refused = await asyncio.gather(
                node.controller.create_topics([NewTopic("a")]),
                node.controller.allocate_producer_ids(1, node.broker_epoch),
                return_exceptions=True,
            )
            for error in refused:
                assert isinstance(error, StorageError)
                assert f"{LOG_DIR}: no room for the metadata of the cluster" in str(error)
            assert node.failures == []
            assert node.image is known
            assert len(world.host(HOST).disk.read_file(SEGMENT)) == size
            # As if nothing had been: the same name can be created, the same ids are given out.
            [outcome] = await node.controller.create_topics([NewTopic("a")])
            assert outcome.error is None
            block = await node.controller.allocate_producer_ids(1, node.broker_epoch)
            assert block.first_id == 0
            left = node.image
            world.crash(HOST, power_loss=True)
            await node.restart()
            assert state(node.loaded) == state(left)

        world.run(scenario())


def test_a_sync_that_fails_otherwise_ends_the_node() -> None:
    with SimWorld(5) as world:
        node = MetadataNode(world)

        async def scenario() -> None:
            await node.start()
            world.host(HOST).disk.fail("sync", errno.EIO, path=SEGMENT)
            with pytest.raises(StorageError):
                await node.controller.create_topics([NewTopic("a")])
            assert [failure.errno for failure in node.failures if isinstance(failure, OSError)] == [errno.EIO]

        world.run(scenario())


@pytest.mark.parametrize("room_bytes", [0, 100, 200, 250, 300, 500, 700])
def test_a_start_waits_for_room(room_bytes: int, caplog: pytest.LogCaptureFixture) -> None:
    with SimWorld(room_bytes) as world:
        node = MetadataNode(world)

        async def scenario() -> None:
            await node.start()
            await node.controller.create_topics([NewTopic("a", 3)])
            world.crash(HOST, power_loss=False)
            disk = world.host(HOST).disk
            disk.restart()
            disk.fill(room_bytes)
            starting = world.restart(HOST)
            assert starting is not None
            await asyncio.sleep(150)
            waited = not starting.done()
            assert waited == any("no room for the metadata" in record.message for record in caplog.records)
            assert room_bytes >= 500 or waited
            assert len([record for record in caplog.records if "no room" in record.message]) <= 4
            world.host(HOST).disk.make_room()
            await starting
            assert node.failures == []
            await node.controller.create_topics([NewTopic("b")])
            assert set(node.image.topics) == {"a", "b"}
            left = node.image
            world.crash(HOST, power_loss=True)
            await node.restart()
            assert state(node.loaded) == state(left)

        world.run(scenario())


def test_a_start_waits_where_only_the_sync_finds_no_room() -> None:
    with SimWorld(3) as world:
        node = MetadataNode(world)

        async def scenario() -> None:
            world.host(HOST).disk.fail("sync", errno.ENOSPC, path=SEGMENT, times=3)
            await node.start()
            assert node.failures == []
            assert node.image.features
            assert node.image.brokers[1].epoch == node.broker_epoch
            left = node.image
            world.crash(HOST, power_loss=True)
            await node.restart()
            assert state(node.loaded) == state(left)

        world.run(scenario())


def test_a_snapshot_that_fails_is_taken_later() -> None:
    with SimWorld(6) as world:
        node = MetadataNode(
            world,
            metadata_log_max_record_bytes_between_snapshots="2000",
            metadata_max_retention_bytes="1",
        )

        async def scenario() -> None:
            await node.start()
            disk = world.host(HOST).disk
            disk.fail("rename", errno.ENOSPC, path=LOG_DIR, times=1)
            disk.fail("remove", errno.EIO, path=LOG_DIR, times=1)
            for number in range(120):
                await node.controller.create_topics([NewTopic(f"t{number}")])
            assert node.failures == []
            assert list_snapshots(disk, LOG_DIR)
            await node.stop()
            await node.restart()
            assert len(node.loaded.topics) == 120

        world.run(scenario())
