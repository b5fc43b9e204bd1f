"""The cluster under the eyes of the active controller: who joins and lives, what is due from time to time.

There is none while a broker has the cluster to itself. It is made for an active controller and goes with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.config import BrokerConfig
from ottla.controller.active import ActiveController
from ottla.controller.brokers import BrokerRegistration, check_broker_epoch
from ottla.controller.command import Deciding
from ottla.controller.configs import effective_config
from ottla.controller.elections import balance_leaders, elect_unclean_leaders
from ottla.controller.heartbeats import BrokerHeartbeat, HeartbeatReply, fence_broker, process_heartbeat
from ottla.controller.presence import IsGone
from ottla.controller.registration import join_cluster, may_live_elsewhere, unregister_broker
from ottla.controller.sessions import BrokerEpoch, BrokerSessions
from ottla.metadata.image import MetadataImage
from ottla.runtime.clock import Clock

log = logging.getLogger(__name__)

UNCLEAN_ELECTION_SECONDS = 300
CUT_OFF_SECONDS = 0.05
"""Between two looks at a broker whose connection is gone: a process that dies closes one thing at a time."""


class Supervision:
    def __init__(
        self,
        active: ActiveController,
        config: BrokerConfig,
        clock: Clock,
        is_gone: IsGone,
        former_leader_id: int | None = None,
    ) -> None:
        self._is_gone = is_gone
        self._active = active
        self._config = config
        self._clock = clock
        self._sessions = BrokerSessions(
            config.node_id,
            config.integer("broker.session.timeout.ms"),
            config.integer("broker.heartbeat.interval.ms"),
        )
        self._sessions.begin(active.newest, self._now_ms())
        if former_leader_id is not None and former_leader_id in active.newest.brokers:
            # A node that leads no more is dead, as a rule, and so is the broker beside it.
            self._sessions.cut_off(active.newest.brokers[former_leader_id], self._now_ms())
        now = clock.monotonic()
        self._balance_due = now + self._balance_seconds()
        self._unclean_due = now + UNCLEAN_ELECTION_SECONDS

    @property
    def check_seconds(self) -> float:
        """How soon `check` is to be called again."""
        if self._sessions.cut_off_now(self._now_ms()):
            return CUT_OFF_SECONDS
        return self._sessions.check_interval_ms / 1000

    async def register(self, registration: BrokerRegistration) -> int:
        def command(newest: MetadataImage) -> Deciding[int]:
            return join_cluster(
                newest,
                self._config,
                registration,
                self._active.next_offset,
                has_session=self._has_session(newest, registration),
            )

        epoch = await self._active.decide(command, in_parts=True)
        log.info("broker %d is registered with epoch %d", registration.broker_id, epoch)
        if registration.beside_controller:
            # It reads what is committed here, so it has caught up when it is told.
            await self.heartbeat(BrokerHeartbeat(registration.broker_id, epoch, epoch))
        return epoch

    async def heartbeat(self, heartbeat: BrokerHeartbeat) -> HeartbeatReply:
        broker = BrokerEpoch(heartbeat.broker_id, heartbeat.broker_epoch)
        check_broker_epoch(self._active.newest, *broker)
        # At once: waiting for a turn must not look like silence.
        self._sessions.heard(broker, heartbeat.metadata_offset, self._now_ms())

        def command(newest: MetadataImage) -> Deciding[HeartbeatReply]:
            return process_heartbeat(newest, self._config, self._sessions, heartbeat)

        before = self._active.newest.brokers[heartbeat.broker_id]
        if before.in_controlled_shutdown:
            # Whoever asked for it may have gone before it was noted below.
            self._sessions.begin_shutdown(heartbeat.broker_id, self._active.newest.offset)
        reply = await self._active.decide(command, in_parts=True)
        if reply.begins_shutdown:
            # Others know of everything that was accepted by now, and so of the shutdown.
            self._sessions.begin_shutdown(heartbeat.broker_id, self._active.newest.offset)
        if reply.is_fenced != before.fenced or reply.begins_shutdown:
            log.info("broker %d is %s", heartbeat.broker_id, reply.state.value)
        return reply

    def cut_off(self, broker_id: int, broker_epoch: int) -> None:
        broker = self._active.newest.brokers.get(broker_id)
        if broker is not None and broker.epoch == broker_epoch:
            self._sessions.cut_off(broker, self._now_ms())

    async def unregister(self, broker_id: int) -> None:
        await self._active.decide(
            lambda newest: unregister_broker(newest, self._config, broker_id), in_parts=True, only_once=True
        )
        self._sessions.forget(broker_id)
        log.info("broker %d is unregistered", broker_id)

    async def check(self) -> None:
        """Raises KafkaError where what is due could not be written; it is due again then."""
        await self._look_for_cut_off()
        for broker in self._sessions.expired(self._active.newest, self._now_ms()):
            await self._fence(broker)
        now = self._clock.monotonic()
        if now >= self._balance_due:
            if effective_config(self._config, self._active.newest).boolean("auto.leader.rebalance.enable"):
                await self._in_batches(balance_leaders)
            self._balance_due = now + self._balance_seconds()
        if now >= self._unclean_due:
            await self._in_batches(elect_unclean_leaders)
            self._unclean_due = now + UNCLEAN_ELECTION_SECONDS

    async def _look_for_cut_off(self) -> None:
        """Its process need not be waited for where nobody listens any more in its place."""
        for broker in self._sessions.cut_off_now(self._now_ms()):
            known = self._active.newest.brokers.get(broker.broker_id)
            if known is not None and known.epoch == broker.epoch and await self._is_gone(known):
                self._sessions.gone(broker, self._now_ms())

    async def _fence(self, broker: BrokerEpoch) -> None:
        if self._sessions.is_live(broker, self._now_ms()):
            return  # It was heard of while another one was fenced.
        log.warning(
            "broker %d is not heard of any more and is fenced: others lead its partitions until it is back",
            broker.broker_id,
        )
        # One after the other, so that each is decided knowing of the one before.
        await self._active.decide(lambda newest: fence_broker(newest, self._config, *broker), in_parts=True)

    async def _in_batches(self, command: Callable[[MetadataImage, BrokerConfig], Deciding[bool]]) -> None:
        def decide(newest: MetadataImage) -> Deciding[bool]:
            return command(newest, self._config)

        while await self._active.decide(decide, in_parts=True):
            pass

    def _has_session(self, newest: MetadataImage, registration: BrokerRegistration) -> bool:
        return may_live_elsewhere(newest, registration, self._sessions, self._now_ms())

    def _balance_seconds(self) -> int:
        config = effective_config(self._config, self._active.newest)
        return config.integer("leader.imbalance.check.interval.seconds")

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)
