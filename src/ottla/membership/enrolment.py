"""A controller's entry in the metadata: where it listens, and which levels of features it supports.

The active controller looks there before it raises a level, and tools before they name the controllers.
"""

from __future__ import annotations

import asyncio
import logging

from ottla.controller.interface import Controller
from ottla.metadata.cluster_records import RegisterControllerRecord
from ottla.metadata.publisher import MetadataPublisher
from ottla.runtime.clock import Clock
from ottla.runtime.seldom import Seldom
from ottla.wire.errors import KafkaError

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


async def keep_enrolled(
    clock: Clock, controller: Controller, metadata: MetadataPublisher, registration: RegisterControllerRecord
) -> None:
    """Until the metadata says it; of a cluster that has begun, so that its levels are known."""
    seldom = Seldom(clock)
    while metadata.image.controllers.get(registration.controller_id) != registration:
        try:
            if metadata.image.features:
                await controller.register_controller(registration)
        except KafkaError as refusal:
            if seldom.is_due():
                log.info("controller %d is not registered yet: %s", registration.controller_id, refusal)
        await asyncio.sleep(RETRY_SECONDS)
