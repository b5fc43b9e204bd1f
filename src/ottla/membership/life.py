"""A broker's life in its cluster, as the controller sees it: registered, heard of, unfenced, gone.

    registering -> fenced -> serving -> leaving -> gone
                     ^---------'

It is registered first, so that the controller has a place for it in the log; what the log said before, the
broker has then read. While it gets ready it says that it wants to be fenced; then that it does not; and when
it is to stop, it says so until the controller has given its leaderships to others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from uuid import UUID

from ottla.config import BrokerConfig
from ottla.controller.brokers import BrokerRegistration
from ottla.controller.heartbeats import BrokerHeartbeat, HeartbeatReply
from ottla.controller.interface import Controller
from ottla.membership import NotJoined
from ottla.metadata.change import MetadataChange
from ottla.metadata.image import MetadataImage
from ottla.metadata.publisher import MetadataPublisher
from ottla.runtime import Runtime
from ottla.runtime.seldom import Seldom
from ottla.wire.errors import (
    DuplicateBrokerRegistration,
    ErrorCode,
    KafkaError,
    NotController,
    StaleBrokerEpoch,
)

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.1
LOOK_SECONDS = 0.2
"""How often it is looked whether the controller still hears, or it would take this broker for dead."""
LEAVING_SECONDS = 0.02
"""Between heartbeats of a broker that waits for others to lead its partitions."""
LEAVING_SECONDS_MAX = 300.0
"""As Apache Kafka waits, as long as the controller answers."""
UNHEARD_SECONDS_MAX = 3.0
"""Who leaves and is not heard for so long, goes: there may be nobody left to hear."""

# Trying again later may end otherwise: the session of the broker's former life ends, a controller is elected.
_PASSING = (NotController, DuplicateBrokerRegistration)


class BrokerLife:
    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        controller: Controller,
        metadata: MetadataPublisher,
        registration: BrokerRegistration,
        offline_directories: Callable[[], tuple[UUID, ...]],
    ) -> None:
        self._clock = runtime.clock
        self._controller = controller
        self._metadata = metadata
        self._registration = registration
        self._offline_directories = offline_directories
        self._interval_s = config.integer("broker.heartbeat.interval.ms") / 1000
        self._registration_s = config.integer("initial.broker.registration.timeout.ms") / 1000
        self.epoch = -1
        self._is_ready = False
        self._is_leaving = False
        self._unfenced = asyncio.Event()
        self._gone = asyncio.Event()
        self._heard_at = 0.0
        self._wake = asyncio.Event()
        self._seldom = Seldom(runtime.clock)
        metadata.subscribe(self._read)

    def _read(self, change: MetadataChange) -> None:
        # Whoever leaves waits until all others have read who leads instead, and hears that with a heartbeat.
        brokers = change.after.brokers
        if brokers is not change.before.brokers and any(
            broker.in_controlled_shutdown and not broker.fenced for broker in brokers.values()
        ):
            self._wake.set()

    async def register(self) -> None:
        """Until the controller has taken it, for as long as a start may last."""
        deadline = self._clock.monotonic() + self._registration_s
        while True:
            try:
                self.epoch = await self._controller.register_broker(self._registration)
                break
            except _PASSING as refusal:
                if self._clock.monotonic() > deadline:
                    raise NotJoined(
                        f"broker {self._registration.broker_id} could not join its cluster within "
                        f"initial.broker.registration.timeout.ms={self._registration_s * 1000:.0f}: "
                        f"{refusal}; the log has what it met on its way to the controllers"
                    ) from refusal
                if self._seldom.is_due():
                    log.info("broker %d is not registered yet: %s", self._registration.broker_id, refusal)
            except KafkaError as refusal:
                raise NotJoined(
                    f"broker {self._registration.broker_id} is refused by the controller: {refusal}"
                ) from refusal
            await asyncio.sleep(RETRY_SECONDS)
        log.info("broker %d is registered with epoch %d", self._registration.broker_id, self.epoch)

    async def wait_caught_up(self) -> None:
        """Until this node has read its own registration, and so everything before it."""
        await self._metadata.wait_offset(self.epoch)

    async def run(self) -> None:
        """Heartbeats, for as long as the node lives."""
        while not self._gone.is_set():
            self._wake.clear()
            pause_s = self._interval_s
            try:
                reply = await self._controller.heartbeat(self._heartbeat())
                self._heard_at = self._clock.monotonic()
                self._follow(reply)
                if self._is_leaving:
                    pause_s = LEAVING_SECONDS
                elif self._is_ready and not self._unfenced.is_set():
                    pause_s = RETRY_SECONDS
            except StaleBrokerEpoch as refusal:
                log.warning("broker %d registers anew: %s", self._registration.broker_id, refusal)
                self._unfenced.clear()
                pause_s = await self._register_anew()
            except KafkaError as refusal:
                pause_s = RETRY_SECONDS
                if self._seldom.is_due():
                    log.warning(
                        "broker %d is not heard of by the active controller, which will fence it: %s",
                        self._registration.broker_id,
                        refusal,
                    )
            await self._pause(pause_s)

    async def _pause(self, seconds: float) -> None:
        """Until then, or until there is something to say; so is that the controller has to be found anew."""
        end = self._clock.monotonic() + seconds
        while (left_s := end - self._clock.monotonic()) > 0 and not self._wake.is_set():
            try:
                async with asyncio.timeout(min(left_s, LOOK_SECONDS)):
                    await self._wake.wait()
            except TimeoutError:
                if not self._controller.is_in_touch:
                    return

    def hurry(self) -> None:
        """There is something to tell that should not wait for the next heartbeat."""
        self._wake.set()

    async def serve(self) -> None:
        """The broker can be asked from here on: until the controller has unfenced it, and it has read that.

        The controller's answer may be quicker than the record. Who asked in between would not find this
        broker among those that are alive, and may not ask again for minutes.
        """
        self._is_ready = True
        self._wake.set()
        await self._unfenced.wait()
        await self._metadata.wait_image(self._is_alive_in)

    def _is_alive_in(self, image: MetadataImage) -> bool:
        own = image.brokers.get(self._registration.broker_id)
        return own is not None and not own.fenced

    async def leave(self) -> None:
        """Until others lead what this broker led, or nobody listens any more."""
        self._is_leaving = True
        began = self._heard_at = self._clock.monotonic()
        self._wake.set()
        while not self._gone.is_set():
            now = self._clock.monotonic()
            if now - self._heard_at > UNHEARD_SECONDS_MAX or now - began > LEAVING_SECONDS_MAX:
                log.warning(
                    "broker %d stops although the active controller has not let it go: its partitions have "
                    "no leader until that notices",
                    self._registration.broker_id,
                )
                self._gone.set()
                self._wake.set()
                return
            try:
                async with asyncio.timeout(LEAVING_SECONDS):
                    await self._gone.wait()
            except TimeoutError:
                pass

    def _heartbeat(self) -> BrokerHeartbeat:
        return BrokerHeartbeat(
            broker_id=self._registration.broker_id,
            broker_epoch=self.epoch,
            metadata_offset=self._metadata.image.offset,
            wants_fence=not self._is_ready,
            wants_shutdown=self._is_leaving,
            offline_directories=self._offline_directories(),
        )

    def _follow(self, reply: HeartbeatReply) -> None:
        if reply.should_shut_down and self._is_leaving:
            self._gone.set()
        elif reply.is_fenced:
            if self._unfenced.is_set():
                log.warning("broker %d is fenced by the controller", self._registration.broker_id)
            self._unfenced.clear()
        elif not self._unfenced.is_set():
            log.info("broker %d is unfenced", self._registration.broker_id)
            self._unfenced.set()

    async def _register_anew(self) -> float:
        try:
            self.epoch = await self._controller.register_broker(self._registration)
        except KafkaError as refusal:
            if self._seldom.is_due():
                log.error("broker %d cannot register: %s", self._registration.broker_id, refusal)
            return RETRY_SECONDS if refusal.code is ErrorCode.not_controller else self._interval_s
        return 0.0
