"""The same on a real file system, with real threads and fsyncs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

from metadata_node import ENDPOINT, state

from ottla.config import BrokerConfig
from ottla.controller.brokers import BrokerRegistration
from ottla.controller.configs import ConfigChange, ConfigOperation, ResourceChanges
from ottla.controller.controller import LocalController
from ottla.controller.topics import NewPartitions, NewTopic, TopicRef
from ottla.metadata.image import MetadataImage, ResourceType
from ottla.metadata.meta_properties import prepare
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.snapshot import list_snapshots
from ottla.raft.driver import RaftDriver
from ottla.raft.metadata_log import open_metadata_log
from ottla.raft.settings import QuorumSettings
from ottla.raft.snapshots import SnapshotPolicy
from ottla.runtime import real_runtime


def test_create_alter_delete_restart(tmp_path: Path) -> None:
    config = BrokerConfig.from_properties(
        {
            "node.id": "1",
            "log.dirs": str(tmp_path),
            "metadata.log.max.record.bytes.between.snapshots": "3000",
        }
    )

    async def one_run(number: int, *, clean: bool) -> tuple[MetadataImage, MetadataImage]:
        """The image found at the start, and the one left at the end."""
        runtime = real_runtime()
        prepare(runtime.disk, runtime.random, config.log_dirs, config.node_id)
        log = open_metadata_log(runtime, config, clean=clean)
        failures: list[BaseException] = []
        metadata = MetadataPublisher()
        quorum = RaftDriver(
            runtime,
            log,
            settings=QuorumSettings.from_config(config),
            policy=SnapshotPolicy.from_config(config),
            publisher=metadata,
            on_failure=lambda _, error: failures.append(error),
        )
        quorum.load()
        metadata.loaded()
        controller = LocalController(runtime, config, quorum, metadata)
        await quorum.start(controller)
        found = metadata.image
        registration = BrokerRegistration(
            broker_id=1,
            incarnation_id=UUID(int=1000 + number),
            endpoints=(ENDPOINT,),
            directories=(UUID(int=200),),
            clean_shutdown=True,
        )
        await controller.register_broker(registration)
        await asyncio.gather(
            *(controller.create_topics([NewTopic(f"topic-{number}-{index}", 2)]) for index in range(20))
        )
        await controller.create_partitions([NewPartitions(f"topic-{number}-1", 5)])
        change = ConfigChange("retention.ms", ConfigOperation.SET, "60000")
        await controller.incremental_alter_configs(
            [ResourceChanges(ResourceType.TOPIC, f"topic-{number}-2", (change,))]
        )
        await controller.delete_topics([TopicRef(f"topic-{number}-3")])
        await quorum.close()
        runtime.offload.close()
        assert failures == []
        return found, metadata.image

    last = MetadataImage()
    for number, clean in enumerate((False, True, False)):
        found, left = asyncio.run(one_run(number, clean=clean))
        assert state(found) == state(last)
        assert len(left.topics) == 19 * (number + 1)
        last = left
    assert list_snapshots(real_runtime().disk, f"{tmp_path}/__cluster_metadata-0")
