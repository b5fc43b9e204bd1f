"""What leaders that were just elected tell, and what they do not know yet."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.unit.replication.wired_replicas import SESSION, Cluster, run

from ottla.handlers.context import RequestContext
from ottla.handlers.list_offsets import list_offsets
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode


@pytest.mark.parametrize(
    ("version", "error"), [(4, ErrorCode.leader_not_available), (5, ErrorCode.offset_not_available)]
)
def test_a_new_leader_gives_no_end_that_lies_before_what_was_committed(
    version: int, error: ErrorCode
) -> None:
    """It has the records, but has not heard yet that they are committed (KIP-207)."""

    async def scenario(cluster: Cluster) -> None:
        async def offset(timestamp: int, replica_id: int = -1) -> Any:
            asked = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
            request = ListOffsetsRequest(
                replica_id=replica_id,
                isolation_level=0,
                timeout=timedelta(0),
                topics=(ListOffsetsTopic(name="a", partitions=(asked,)),),
            )
            answer = await list_offsets(cluster.nodes[2].broker, context, request)
            found = answer.topics[0].partitions[0]
            return found.offset if found.error_code is ErrorCode.none else found.error_code

        context = RequestContext(SESSION, version, 0, ApiKey.LIST_OFFSETS)
        cluster.nodes[1].produce(b"one", acks=1)
        await cluster.ask(2)
        await cluster.ask(3)
        await cluster.commit(leader=2, leader_epoch=6, partition_epoch=1)
        assert cluster.nodes[2].partition.high_watermark == 0
        latest, earliest, by_time = -1, -2, 1_750_000_000_000
        assert await offset(latest) is error
        assert await offset(by_time) is error
        assert await offset(earliest) == 0
        # Replicas and tools see the whole log.
        assert await offset(latest, replica_id=3) == 1
        for follower in 1, 3, 1, 3:
            await cluster.ask(follower)
        assert await offset(latest) == 1
        assert await offset(by_time) == 0

    run(scenario)
