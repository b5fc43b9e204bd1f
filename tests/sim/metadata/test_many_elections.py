"""A broker that leads more partitions than one batch of metadata has room for."""

from __future__ import annotations

import pytest
from metadata_node import HOST, MetadataNode

from ottla.controller.topics import NewTopic
from ottla.sim.world import SimWorld


def test_elections_of_very_many_partitions_are_written_in_several_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ottla.raft.driver.BATCH_BYTES_MAX", 3000)
    monkeypatch.setattr("ottla.controller.active.RECORDS_MAX", 60)
    with SimWorld(2) as world:
        node = MetadataNode(world)
        node.clean_shutdown = False

        async def scenario() -> None:
            await node.start()
            for number in range(10):
                await node.controller.create_topics([NewTopic(f"t{number}", 30)])
            world.crash(HOST, power_loss=True)
            await node.restart()
            partitions = [part for topic in node.image.topics.values() for part in topic.partitions]
            assert [part.leader_epoch for part in partitions] == [1] * 300
            assert node.image.brokers[1].epoch == node.broker_epoch

        world.run(scenario())
