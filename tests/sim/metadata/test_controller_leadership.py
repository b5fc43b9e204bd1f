"""The active controller is there while this node leads the quorum, and what it was asked is answered."""

from __future__ import annotations

import asyncio

import pytest
from metadata_node import MetadataNode

from ottla.controller.configs import ConfigChange, ConfigOperation, ResourceChanges
from ottla.controller.topics import NewTopic, TopicOutcome
from ottla.metadata.image import ResourceType
from ottla.raft.driver import Leadership
from ottla.sim.world import SimWorld
from ottla.wire.errors import NotController


def led_by(node: MetadataNode, leader_id: int | None) -> None:
    node.controller.on_leadership(Leadership(node.quorum.epoch, leader_id))


def test_without_leadership_nothing_is_written_and_with_it_again_everything_is_seen() -> None:
    with SimWorld(1) as world:
        node = MetadataNode(world)

        async def scenario() -> None:
            await node.start()
            await node.controller.create_topics([NewTopic("a")])
            for leader_id in (None, 2):
                led_by(node, leader_id)
                end = node.quorum.next_offset
                with pytest.raises(NotController):
                    await node.controller.create_topics([NewTopic("b")])
                with pytest.raises(NotController):
                    await node.controller.allocate_producer_ids(1, node.broker_epoch)
                assert node.quorum.next_offset == end
            led_by(node, 1)
            again, other = await node.controller.create_topics([NewTopic("a"), NewTopic("b")])
            assert again.error is not None and other.error is None
            assert sorted(node.image.topics) == ["a", "b"]

        world.run(scenario())


def test_commands_that_wait_for_a_turn_are_told_that_leadership_is_lost() -> None:
    with SimWorld(2) as world:
        node = MetadataNode(world)

        async def scenario() -> None:
            await node.start()
            names = [f"topic-{number}" for number in range(500)]
            long = asyncio.ensure_future(node.controller.create_topics([NewTopic(name) for name in names]))
            change = ConfigChange("retention.ms", ConfigOperation.SET, "5")
            behind = asyncio.ensure_future(
                node.controller.incremental_alter_configs(
                    [ResourceChanges(ResourceType.TOPIC, names[0], (change,))]
                )
            )
            await asyncio.sleep(0)
            assert not long.done()
            led_by(node, 2)
            outcome = await asyncio.gather(long, behind, return_exceptions=True)
            # The second also where it has nothing to write: another leader may know that topic.
            assert [type(each) for each in outcome] == [NotController, NotController]
            # An active controller of a later epoch has no part in it.
            led_by(node, 1)
            assert not node.image.topics
            created: list[TopicOutcome] = await node.controller.create_topics([NewTopic(names[0])])
            assert created[0].error is None

        world.run(scenario())
