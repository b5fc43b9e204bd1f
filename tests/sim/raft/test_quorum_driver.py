"""Drivers that speak to each other over connections, with files that forget what was not synced."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from quorum_nodes import Nodes, QuorumNode

from ottla.metadata.snapshot import list_snapshots, write_snapshot
from ottla.raft.driver import RaftDriver
from ottla.raft.log_view import compare
from ottla.raft.messages import FetchRequest
from ottla.raft.snapshots import Snapshots
from ottla.raft.voters import ReplicaKey
from ottla.sim.world import SimWorld
from ottla.wire.errors import NotController

LOG_DIR = "/data/__cluster_metadata-0"


def run(
    scenario: Callable[[SimWorld, Nodes], Coroutine[Any, Any, None]], seed: int = 1, **options: Any
) -> None:
    with SimWorld(seed) as world:
        nodes = Nodes(world, **options)

        async def everything() -> None:
            await nodes.start()
            await scenario(world, nodes)
            nodes.check_no_failures()

        world.run(everything())


def test_three_voters_and_an_observer_agree() -> None:
    async def scenario(world: SimWorld, nodes: Nodes) -> None:
        names = {await nodes.create_topic() for _ in range(10)}
        image = await nodes.wait_converged()
        assert set(image.topics) == names
        leader = await nodes.wait_leader()
        others = [node for node in nodes.all if node is not leader]
        for node in others:
            assert node.led[-1].leader_id == leader.id and node.led[-1].epoch == leader.quorum.epoch
            with pytest.raises(NotController):
                await nodes.create_topic(node)
        end = leader.quorum.next_offset
        async with asyncio.timeout(10):
            while described_ends(leader) != ({1: end, 2: end, 3: end}, {4: end}):
                await asyncio.sleep(0.05)

    run(scenario, observer=True)


def described_ends(leader: QuorumNode) -> tuple[dict[int, int | None], dict[int, int]]:
    """How far voters and observers are, as their leader knows it."""
    described = leader.quorum.describe()
    return (
        {voter: known and known.acknowledged_offset for voter, known in described.voters.items()},
        {key.id: known.acknowledged_offset for key, known in described.observers.items()},
    )


@pytest.mark.parametrize("power_loss", [False, True])
def test_the_leader_crashes_and_another_goes_on_with_everything(power_loss: bool) -> None:
    async def scenario(world: SimWorld, nodes: Nodes) -> None:
        names = {await nodes.create_topic() for _ in range(5)}
        first = await nodes.wait_leader()
        first.crash(power_loss=power_loss)
        second = await nodes.wait_leader()
        assert second is not first and second.quorum.epoch > 1
        names |= {await nodes.create_topic() for _ in range(5)}
        await first.restart()
        assert set((await nodes.wait_converged()).topics) == names

    run(scenario)


def test_a_former_leader_that_is_asked_while_it_starts_does_not_take_itself_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = RaftDriver.start
    answers = []

    async def asked_meanwhile(self: RaftDriver, listener: Any) -> None:
        request = FetchRequest(self.epoch, ReplicaKey(9), 0, 0, None)
        asking = asyncio.ensure_future(self.answer(request))
        await start(self, listener)
        answers.extend(await asyncio.gather(asking, return_exceptions=True))

    async def scenario(world: SimWorld, nodes: Nodes) -> None:
        await nodes.create_topic()
        leader = await nodes.wait_leader()
        for node in nodes.all:
            node.crash(power_loss=False)
        monkeypatch.setattr(RaftDriver, "start", asked_meanwhile)
        leader.led.clear()
        await leader.restart()
        assert [type(answer) for answer in answers] == [NotController]
        assert not leader.leads and leader.led == []

    run(scenario)


def test_old_snapshots_are_left_while_one_of_the_leader_is_being_installed() -> None:
    """Its file is there before the log begins anew with it."""

    async def scenario(world: SimWorld, nodes: Nodes) -> None:
        await nodes.create_topic()
        await nodes.wait_converged()
        node = nodes.all[0]
        snapshots, disk = node.quorum._snapshots, world.host(node.host).disk
        for offset in (1, node.quorum.next_offset + 20):
            write_snapshot(
                disk, LOG_DIR, replace(node.image, offset=offset), [], last_timestamp_ms=0, now_ms=0
            )
        snapshots._policy = snapshots._policy._replace(retention_bytes=0)
        snapshots._remove_old()
        assert len(list_snapshots(disk, LOG_DIR)) == 2

    run(scenario)


def test_a_log_that_begins_with_a_snapshot_of_a_leader_goes_on_from_that_and_no_older_one() -> None:
    """Or who has it and leads sends followers back to it again and again."""

    async def scenario(world: SimWorld, nodes: Nodes) -> None:
        await nodes.create_topic()
        await nodes.wait_converged()
        node = nodes.all[0]
        quorum, disk = node.quorum, world.host(node.host).disk
        older, newer = replace(node.image, offset=0, epoch=0), node.image
        for image in (older, newer):
            write_snapshot(disk, LOG_DIR, image, [], last_timestamp_ms=0, now_ms=0)
        quorum._log.truncate_fully_and_start_at(newer.offset + 1)
        quorum._snapshots._look_again()
        assert compare(quorum._core._log, newer.offset + 1, newer.epoch) is None

    run(scenario)


def test_a_leader_that_stops_hands_over_at_once() -> None:
    async def scenario(world: SimWorld, nodes: Nodes) -> None:
        await nodes.create_topic()
        first = await nodes.wait_leader()
        await nodes.wait_converged()
        loop = asyncio.get_running_loop()
        before = loop.time()
        closing = world.spawn(first.host, first.quorum.close())
        await nodes.wait_leader([node for node in nodes.all if node is not first])
        # Without the farewell, the followers would wait for their fetches.
        assert loop.time() - before < 0.4
        await closing

    run(scenario)


def test_a_leader_without_a_majority_writes_nothing_and_its_records_are_cut_off() -> None:
    async def scenario(world: SimWorld, nodes: Nodes) -> None:
        names = {await nodes.create_topic()}
        first = await nodes.wait_leader()
        await nodes.wait_converged()
        others = [node for node in nodes.all if node is not first]
        world.network.partition([first.host], [node.host for node in others])
        lost = asyncio.ensure_future(nodes.create_topic(first))
        names.add(await create_among(nodes, others))
        with pytest.raises(NotController):
            await lost
        assert not first.leads
        assert first.image.offset < others[0].image.offset
        world.network.heal()
        image = await nodes.wait_converged()
        assert set(image.topics) == names

    run(scenario)


async def create_among(nodes: Nodes, others: list[Any]) -> str:
    leader = await nodes.wait_leader(others)
    return await nodes.create_topic(leader)


def test_who_was_away_for_long_begins_with_a_snapshot() -> None:
    async def scenario(world: SimWorld, nodes: Nodes) -> None:
        names = {await nodes.create_topic()}
        leader = await nodes.wait_leader()
        away = next(node for node in nodes.all if node is not leader)
        away.crash()
        for _ in range(120):
            names.add(await nodes.create_topic())
        leader = await nodes.wait_leader()
        async with asyncio.timeout(30):
            while leader.quorum.start_offset <= away.image.offset + 1:
                names.add(await nodes.create_topic())
                await asyncio.sleep(0.05)
        await away.restart()
        assert set((await nodes.wait_converged()).topics) == names
        assert away.quorum.start_offset > 0
        # It goes on from there after a restart, too.
        away.crash()
        names.add(await nodes.create_topic())
        await away.restart()
        assert set((await nodes.wait_converged()).topics) == names

    run(
        scenario,
        segment_bytes=2000,
        metadata_log_max_record_bytes_between_snapshots="3000",
        metadata_max_retention_bytes="6000",
    )


@pytest.mark.parametrize("seed", range(8))
def test_crashes_and_cuts_lose_nothing_that_was_committed(seed: int) -> None:
    async def scenario(world: SimWorld, nodes: Nodes) -> None:
        random = world.random("faults")
        names: set[str] = set()
        done = False

        async def write() -> None:
            while not done:
                names.add(await nodes.create_topic())
                await asyncio.sleep(random.uniform(0, 0.1))

        writing = asyncio.ensure_future(write())
        for _ in range(8):
            await asyncio.sleep(random.uniform(0.1, 2))
            match random.randrange(3):
                case 0:
                    node = random.choice(nodes.all)
                    if node.is_up:
                        node.crash(power_loss=random.random() < 0.7)
                        await asyncio.sleep(random.uniform(0, 1))
                        await node.restart()
                case 1:
                    alone = random.choice(nodes.all)
                    rest = [node.host for node in nodes.all if node is not alone]
                    world.network.partition([alone.host], rest, one_way=random.random() < 0.4)
                case 2:
                    world.network.heal()
        world.network.heal()
        done = True
        await writing
        image = await nodes.wait_converged()
        assert names <= set(image.topics)
        assert len(names) > 5

    run(scenario, seed=seed, observer=seed % 2 == 0)


def test_a_crash_amid_the_installation_of_a_snapshot_is_recovered_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: SimWorld, nodes: Nodes) -> None:
        names = {await nodes.create_topic()}
        leader = await nodes.wait_leader()
        away = next(node for node in nodes.all if node is not leader)
        away.crash()
        while leader.quorum.start_offset <= away.image.offset + 1:
            names.add(await nodes.create_topic())
            await asyncio.sleep(0.05)
        installing = Snapshots.install
        interrupted = []

        async def crash_after(snapshots: Snapshots, *arguments: Any) -> Any:
            await installing(snapshots, *arguments)
            interrupted.append(away.quorum.next_offset)
            away.crash()
            await asyncio.Event().wait()

        with monkeypatch.context() as patch:
            patch.setattr(Snapshots, "install", crash_after)
            await away.restart()
            async with asyncio.timeout(30):
                while not interrupted:
                    await asyncio.sleep(0.01)
        await away.restart()
        # Before it has heard of anybody.
        assert away.quorum.next_offset > interrupted[0]
        assert set((await nodes.wait_converged()).topics) == names

    run(
        scenario,
        segment_bytes=2000,
        metadata_log_max_record_bytes_between_snapshots="3000",
        metadata_max_retention_bytes="6000",
    )


SEGMENT = "/data/__cluster_metadata-0/00000000000000000000.log"


def test_a_leader_without_room_lets_another_lead() -> None:
    async def scenario(world: SimWorld, nodes: Nodes) -> None:
        names = {await nodes.create_topic()}
        first = await nodes.wait_leader()
        await nodes.wait_converged()
        epoch = first.quorum.epoch
        for _ in range(2):
            # The second time where what could not be synced is tried once more before it is cut off.
            world.host(first.host).disk.fail("sync", errno.ENOSPC, path=SEGMENT)
        names.add(await nodes.create_topic())
        assert (await nodes.wait_leader()).quorum.epoch > epoch
        image = await nodes.wait_converged()
        assert names <= set(image.topics)
        first.crash()
        names.add(await nodes.create_topic())
        await first.restart()
        assert names <= set((await nodes.wait_converged()).topics)

    run(scenario)


@pytest.mark.parametrize("seed", range(4))
def test_a_follower_without_room_catches_up_when_there_is_some(seed: int) -> None:
    async def scenario(world: SimWorld, nodes: Nodes) -> None:
        names = {await nodes.create_topic()}
        leader = await nodes.wait_leader()
        await nodes.wait_converged()
        full = next(node for node in nodes.all if node is not leader)
        disk = world.host(full.host).disk
        if seed % 2:
            disk.fail("sync", errno.ENOSPC, path=SEGMENT)
        else:
            disk.fill()
        names |= {await nodes.create_topic() for _ in range(5)}
        await asyncio.sleep(1)
        if seed % 2 == 0:
            assert full.image.offset < leader.image.offset
        disk.make_room()
        assert set((await nodes.wait_converged()).topics) == names

    run(scenario, seed=seed)
