"""Producer ids, given to brokers in blocks so that most InitProducerId requests write no metadata."""

from __future__ import annotations

from typing import NamedTuple

from ottla.controller.brokers import check_broker_epoch
from ottla.controller.command import Result
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import ProducerIdsRecord

BLOCK_SIZE = 1000


class ProducerIdBlock(NamedTuple):
    first_id: int
    size: int


def allocate_producer_ids(image: MetadataImage, broker_id: int, broker_epoch: int) -> Result[ProducerIdBlock]:
    check_broker_epoch(image, broker_id, broker_epoch)
    first_id = image.next_producer_id
    record = ProducerIdsRecord(
        broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first_id + BLOCK_SIZE
    )
    return Result([record], ProducerIdBlock(first_id, BLOCK_SIZE))
