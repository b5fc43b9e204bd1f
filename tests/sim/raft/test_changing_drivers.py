"""Voters of the configuration that move into the log, and are changed there, with files and connections."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

from quorum_nodes import PORT, Nodes, QuorumNode

from ottla.metadata.snapshot import list_snapshots, read_snapshot
from ottla.raft.roles import Role
from ottla.raft.voters import Listener, ReplicaKey, Voter
from ottla.sim.world import SimWorld
from ottla.wire.errors import ErrorCode, InvalidUpdateVersion

LOG_DIR = "/data/__cluster_metadata-0"
SEGMENT = f"{LOG_DIR}/00000000000000000000.log"


def run(scenario: Callable[[SimWorld, Nodes], Coroutine[Any, Any, None]], **options: Any) -> None:
    with SimWorld(1) as world:
        nodes = Nodes(world, **options)

        async def everything() -> None:
            await nodes.start()
            await upgrade(world, nodes)
            await scenario(world, nodes)
            nodes.check_no_failures()

        world.run(everything())


async def upgrade(world: SimWorld, nodes: Nodes) -> None:
    """Refused until the leader knows the directories of all voters."""
    refused = 0
    while True:
        leader = await nodes.wait_leader()
        try:
            await world.spawn(leader.host, leader.quorum.upgrade(1, validate_only=True))
            await world.spawn(leader.host, leader.quorum.upgrade(1))
            break
        except InvalidUpdateVersion as refusal:
            assert "have not said yet" in str(refusal)
            refused += 1
            await asyncio.sleep(0.1)
    assert refused
    await wait_voters(nodes, {1: PORT, 2: PORT, 3: PORT})


async def wait_voters(nodes: Nodes, expected: dict[int, int]) -> None:
    """By id, with the ports they listen on, as every node knows them."""

    def known(node: QuorumNode) -> dict[int, int]:
        assert node.quorum.kraft_version == 1
        voters = node.quorum.voter_set.voters
        assert all(voter.key.directory_id == UUID(int=100 + voter.key.id) for voter in voters)
        return {voter.key.id: voter.listeners[0].port for voter in voters}

    await nodes.wait_converged()
    async with asyncio.timeout(60):
        while any(known(node) != expected for node in nodes.live):
            await asyncio.sleep(0.05)


def key(node: QuorumNode) -> ReplicaKey:
    return ReplicaKey(node.id, UUID(int=100 + node.id))


async def remove(world: SimWorld, leader: QuorumNode, gone: QuorumNode) -> None:
    response = await world.spawn(leader.host, leader.quorum.voters.remove(key(gone)))
    assert response.error is ErrorCode.none, response


def test_voters_are_removed_and_added_again() -> None:
    async def scenario(world: SimWorld, nodes: Nodes) -> None:
        names = {await nodes.create_topic()}
        leader = await nodes.wait_leader()
        gone = next(node for node in nodes.all if node is not leader)
        rest = {node.id: PORT for node in nodes.all if node is not gone}
        await remove(world, leader, gone)
        await wait_voters(nodes, rest)
        # It follows as an observer, through a restart, too, and does not stand for election.
        gone.crash()
        names.add(await nodes.create_topic())
        await gone.restart()
        await nodes.wait_converged()
        assert gone.role is Role.FOLLOWER
        voter = Voter(key(gone), (Listener("CONTROLLER", gone.host, PORT),))
        leader = await nodes.wait_leader()
        again = await world.spawn(leader.host, leader.quorum.voters.add(voter))
        assert again.error is ErrorCode.none, again
        await wait_voters(nodes, {1: PORT, 2: PORT, 3: PORT})
        leader.crash()
        names.add(await nodes.create_topic())
        await leader.restart()
        assert set((await nodes.wait_converged()).topics) == names

    run(scenario)


def test_a_leader_that_is_removed_commits_that_and_lets_another_lead() -> None:
    async def scenario(world: SimWorld, nodes: Nodes) -> None:
        leader = await nodes.wait_leader()
        others = [node for node in nodes.all if node is not leader]
        await remove(world, leader, leader)
        following = await nodes.wait_leader(others)
        await nodes.create_topic(following)
        await wait_voters(nodes, {node.id: PORT for node in others})
        assert leader.role is Role.FOLLOWER

    run(scenario)


def test_a_voter_that_listens_elsewhere_says_so() -> None:
    async def scenario(world: SimWorld, nodes: Nodes) -> None:
        leader = await nodes.wait_leader()
        moved = next(node for node in nodes.all if node is not leader)
        moved.crash()
        moved.listen(9094)
        await moved.restart()
        await wait_voters(nodes, {1: PORT, 2: PORT, 3: PORT, moved.id: 9094})
        # A leader writes its own move with the first record of its epoch.
        leader.crash()
        leader.listen(9095)
        await nodes.wait_leader()
        await leader.restart()
        await wait_voters(nodes, {1: PORT, 2: PORT, 3: PORT, moved.id: 9094, leader.id: 9095})

    run(scenario)


def test_a_controller_joins_by_itself() -> None:
    async def scenario(world: SimWorld, nodes: Nodes) -> None:
        leader = await nodes.wait_leader()
        gone = next(node for node in nodes.all if node is not leader)
        await remove(world, leader, gone)
        await wait_voters(nodes, {1: PORT, 2: PORT, 3: PORT})

    run(scenario, controller_quorum_auto_join_enable="true")


def test_a_sole_voter_without_room_never_cuts_off_what_observers_may_have() -> None:
    async def scenario(world: SimWorld, nodes: Nodes) -> None:
        names = {await nodes.create_topic()}
        leader = await nodes.wait_leader()
        for other in nodes.all:
            if other is not leader:
                await remove(world, leader, other)
        await wait_voters(nodes, {leader.id: PORT})
        epoch = leader.quorum.epoch
        for _ in range(2):
            # The second time where what could not be synced is tried once more before it is cut off.
            world.host(leader.host).disk.fail("sync", errno.ENOSPC, path=SEGMENT)
        names.add(await nodes.create_topic())
        assert leader.quorum.epoch > epoch
        assert names <= set((await nodes.wait_converged()).topics)

    run(scenario)


def test_snapshots_have_the_voters() -> None:
    async def scenario(world: SimWorld, nodes: Nodes) -> None:
        leader = await nodes.wait_leader()
        away = next(node for node in nodes.all if node is not leader)
        await remove(world, leader, away)
        await wait_voters(nodes, {node.id: PORT for node in nodes.all if node is not away})
        away.crash()
        leader = await nodes.wait_leader()
        while leader.quorum.start_offset <= away.image.offset + 1:
            await nodes.create_topic()
            await asyncio.sleep(0.05)
        disk = world.host(leader.host).disk
        newest = read_snapshot(disk, LOG_DIR, list_snapshots(disk, LOG_DIR)[-1])
        assert len(newest.quorum) == 2
        await away.restart()
        await wait_voters(nodes, {node.id: PORT for node in nodes.all if node is not away})
        assert away.quorum.start_offset > 0

    run(
        scenario,
        segment_bytes=2000,
        metadata_log_max_record_bytes_between_snapshots="3000",
        metadata_max_retention_bytes="6000",
    )
