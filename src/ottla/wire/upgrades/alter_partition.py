"""AlterPartition: up to version 2 the ISR was only ids, without the epochs of the brokers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kio.schema.alter_partition.v3.request import AlterPartitionRequest, BrokerState


def upgrade(received: Any, widened: AlterPartitionRequest) -> AlterPartitionRequest:
    return replace(
        widened,
        topics=tuple(
            replace(
                topic,
                partitions=tuple(
                    replace(
                        partition,
                        new_isr_with_epochs=tuple(BrokerState(broker_id=member) for member in old.new_isr),
                    )
                    for old, partition in zip(old_topic.partitions, topic.partitions, strict=True)
                ),
            )
            for old_topic, topic in zip(received.topics, widened.topics, strict=True)
        ),
    )
