"""The controller of this node: carries commands to the active one while this node leads the quorum."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ottla.config import BrokerConfig
from ottla.controller.active import ActiveController
from ottla.controller.brokers import BrokerRegistration, register_broker
from ottla.controller.command import Deciding, Result
from ottla.controller.configs import (
    ConfigOutcome,
    ResourceChanges,
    ResourceConfigs,
    alter_configs,
    effective_config,
    incremental_alter_configs,
)
from ottla.controller.features import FeatureUpdate, update_features
from ottla.controller.producer_ids import ProducerIdBlock, allocate_producer_ids
from ottla.controller.topics import (
    NewPartitions,
    NewTopic,
    TopicDefaults,
    TopicOutcome,
    TopicRef,
    create_partitions,
    create_topics,
    delete_topics,
)
from ottla.metadata.bootstrap import read_bootstrap
from ottla.metadata.features import KRAFT_VERSION
from ottla.metadata.image import MetadataImage
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import MetadataRecord, MetadataRecordError
from ottla.metadata.snapshot import SnapshotDamaged
from ottla.metadata.uuids import random_uuid, uuid_text
from ottla.raft.driver import Leadership, RaftDriver
from ottla.runtime import Runtime
from ottla.runtime.seldom import Seldom
from ottla.wire.errors import InvalidRequest, KafkaError, NotController

if TYPE_CHECKING:
    from ottla.controller.acls import AclDeletion
    from ottla.controller.alter_partition import IsrChange, IsrOutcome
    from ottla.controller.delegation_tokens import MadeToken
    from ottla.controller.directories import DirectoryAssignment, DirectoryOutcome
    from ottla.controller.elections import ElectionOutcome, TopicPartitions
    from ottla.controller.heartbeats import BrokerHeartbeat, HeartbeatReply
    from ottla.controller.quotas import QuotaAlteration
    from ottla.controller.reassignment import OngoingReassignment, Reassignment, ReassignmentOutcome
    from ottla.controller.scram_credentials import ScramDeletion, ScramOutcome, ScramUpsertion
    from ottla.controller.supervision import Supervision
    from ottla.metadata.cluster_records import RegisterControllerRecord
    from ottla.wire.acls import Acl, AclFilter

logger = logging.getLogger(__name__)


class LocalController:
    """A `Controller`, and the listener that makes and drops the active one as leadership comes and goes."""

    def __init__(
        self, runtime: Runtime, config: BrokerConfig, quorum: RaftDriver, publisher: MetadataPublisher
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._quorum = quorum
        self._publisher = publisher
        self._active: ActiveController | None = None
        self._supervision: Supervision | None = None
        self._is_supervising = asyncio.Event()
        self._is_cut_off = asyncio.Event()
        self.leader_id: int | None = None
        """Of the quorum, as far as this node knows; it may be this node before its controller is active."""
        self._former_leader_id: int | None = None
        """The last that was not this node."""

    @property
    def _registers_first(self) -> bool:
        """Alone in its cluster, this node is the first to ask for anything: for its own registration."""
        is_broker = "broker" in self._config.strings("process.roles")
        return is_broker and self._quorum.is_alone

    def on_leadership(self, leadership: Leadership) -> None:
        if self._active is not None:
            self._active.resign()
        self.leader_id = leadership.leader_id
        if leadership.leader_id not in (None, self._config.node_id):
            self._former_leader_id = leadership.leader_id
        leads = leadership.leader_id == self._config.node_id
        self._active = self._activate() if leads else None
        if self._active is not None and not self._registers_first:
            self._active.begin()
        self._supervision = None
        self._is_supervising.clear()
        if leads and self._publisher.image.brokers.keys() - {self._config.node_id}:
            self._supervise()

    def _activate(self) -> ActiveController:
        isr_min = self._config.integer("min.insync.replicas")
        return ActiveController(self._quorum, self._publisher, self._read_bootstrap, isr_min)

    def _read_bootstrap(self) -> Sequence[MetadataRecord]:
        try:
            return read_bootstrap(self._runtime.disk, self._config.metadata_log_dir)
        except (SnapshotDamaged, MetadataRecordError, OSError) as error:
            logger.error("a new cluster begins without what kafka-storage was to add: %s", error)
            return ()

    def on_cut(self) -> None:
        if self._active is not None:
            self._active.cut()

    @property
    def is_active(self) -> bool:
        return self._active is not None

    @property
    def active(self) -> ActiveController:
        """Raises NotController while this node does not lead."""
        if self._active is None:
            raise NotController("this node does not lead the metadata quorum")
        return self._active

    def _supervise(self) -> Supervision:
        """Made when another broker is there, or comes. Raises NotController while this node does not lead."""
        if self._supervision is None:
            from ottla.controller.presence import knocking
            from ottla.controller.supervision import Supervision

            self._supervision = Supervision(
                self.active,
                self._config,
                self._runtime.clock,
                knocking(self._runtime.net, self._config.inter_broker_listener),
                self._former_leader_id,
            )
            self._is_supervising.set()
        return self._supervision

    async def run(self) -> None:
        """What is due in the cluster from time to time, for as long as the node lives."""
        seldom = Seldom(self._runtime.clock)
        while True:
            await self._is_supervising.wait()
            supervision = self._supervise()
            try:
                await supervision.check()
            except NotController:
                pass  # Whoever leads now does it.
            except KafkaError as error:
                if seldom.is_due():
                    logger.warning(
                        "what is due in the cluster was not written, and is tried again: %s", error
                    )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(supervision.check_seconds):
                    await self._is_cut_off.wait()
            self._is_cut_off.clear()

    @property
    def is_in_touch(self) -> bool:
        return True

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicOutcome]:
        def command(newest: MetadataImage) -> Deciding[list[TopicOutcome]]:
            config = effective_config(self._config, newest)
            defaults = TopicDefaults(
                config.integer("num.partitions"), config.integer("default.replication.factor"), config
            )
            return create_topics(newest, topics, defaults, self._runtime.random)

        return await self.active.decide(command, validate_only=validate_only)

    async def delete_topics(self, topics: Sequence[TopicRef]) -> list[TopicOutcome]:
        return await self.active.decide(lambda newest: delete_topics(newest, topics), only_once=True)

    async def create_partitions(
        self, requests: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[TopicOutcome]:
        return await self.active.decide(
            lambda newest: create_partitions(newest, requests, self._runtime.random),
            validate_only=validate_only,
        )

    async def incremental_alter_configs(
        self, resources: Sequence[ResourceChanges], *, validate_only: bool = False
    ) -> list[ConfigOutcome]:
        return await self.active.decide(
            lambda newest: incremental_alter_configs(newest, self._config, resources),
            validate_only=validate_only,
        )

    async def alter_configs(
        self, resources: Sequence[ResourceConfigs], *, validate_only: bool = False
    ) -> list[ConfigOutcome]:
        return await self.active.decide(
            lambda newest: alter_configs(newest, self._config, resources), validate_only=validate_only
        )

    async def register_broker(self, registration: BrokerRegistration) -> int:
        """The broker's epoch. Without it nothing is served, so it waits for room on the disk."""
        return await self._quorum.room.until_there_is(partial(self._register_broker, registration))

    async def _register_broker(self, registration: BrokerRegistration) -> int:
        active = self.active
        has_others = active.newest.brokers.keys() - {registration.broker_id}
        if has_others or not registration.beside_controller:
            return await self._supervise().register(registration)
        # Several batches where it leads very many partitions. They need not count together: each election
        # stands for itself, and a start that ends between them leaves no mark of a clean shutdown, so that
        # the next one elects all of them again.
        return await active.write_in_parts(register_broker(active.newest, registration, active.next_offset))

    async def register_controller(self, registration: RegisterControllerRecord) -> None:
        await self.active.write(Result([registration], None))

    async def heartbeat(self, heartbeat: BrokerHeartbeat) -> HeartbeatReply:
        return await self._supervise().heartbeat(heartbeat)

    def cut_off_broker(self, broker_id: int, broker_epoch: int) -> None:
        if self._supervision is not None:
            self._supervision.cut_off(broker_id, broker_epoch)
            self._is_cut_off.set()

    async def unregister_broker(self, broker_id: int) -> None:
        if self._active is not None and self._active.newest.brokers.keys() == {broker_id}:
            # A broker that is alone sends no heartbeats, and so would not notice.
            raise InvalidRequest(f"Broker {broker_id} is the only one; a cluster cannot be without any")
        await self._supervise().unregister(broker_id)

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, changes: Sequence[IsrChange]
    ) -> list[IsrOutcome]:
        from ottla.controller.alter_partition import alter_partitions

        return await self.active.decide(
            lambda newest: alter_partitions(newest, self._config, broker_id, broker_epoch, changes),
            in_parts=True,
        )

    async def assign_directories(
        self, broker_id: int, broker_epoch: int, assignments: Sequence[DirectoryAssignment]
    ) -> list[DirectoryOutcome]:
        from ottla.controller.directories import assign_directories

        return await self.active.decide(
            lambda newest: assign_directories(newest, self._config, broker_id, broker_epoch, assignments),
            in_parts=True,
        )

    async def elect_leaders(
        self, election_type: int, partitions: Sequence[TopicPartitions] | None
    ) -> list[ElectionOutcome]:
        from ottla.controller.elections import elect_leaders

        return await self.active.decide(
            lambda newest: elect_leaders(newest, self._config, election_type, partitions), in_parts=True
        )

    async def alter_reassignments(
        self, reassignments: Sequence[Reassignment], *, may_change_factor: bool = True
    ) -> list[ReassignmentOutcome]:
        from ottla.controller.reassignment import alter_reassignments

        return await self.active.decide(
            lambda newest: alter_reassignments(
                newest, self._config, reassignments, may_change_factor=may_change_factor
            )
        )

    async def list_reassignments(
        self, partitions: Sequence[TopicPartitions] | None
    ) -> list[OngoingReassignment]:
        from ottla.controller.reassignment import list_reassignments

        return await self.active.decide(lambda newest: list_reassignments(newest, partitions))

    async def create_acls(self, acls: Sequence[Acl]) -> list[KafkaError | None]:
        from ottla.controller.acls import create_acls

        return await self.active.decide(lambda newest: create_acls(newest, acls, self._runtime.random))

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[AclDeletion]:
        from ottla.controller.acls import delete_acls

        return await self.active.decide(lambda newest: delete_acls(newest, filters), only_once=True)

    async def alter_client_quotas(
        self, alterations: Sequence[QuotaAlteration], *, validate_only: bool = False
    ) -> list[KafkaError | None]:
        from ottla.controller.quotas import alter_client_quotas

        return await self.active.decide(
            lambda newest: alter_client_quotas(newest, alterations), validate_only=validate_only
        )

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> ProducerIdBlock:
        active = self.active
        return await active.write(allocate_producer_ids(active.newest, broker_id, broker_epoch))

    async def alter_scram_credentials(
        self, deletions: Sequence[ScramDeletion], upsertions: Sequence[ScramUpsertion]
    ) -> list[ScramOutcome]:
        from ottla.controller.scram_credentials import alter_scram_credentials

        return await self.active.decide(
            lambda newest: alter_scram_credentials(newest, deletions, upsertions), only_once=bool(deletions)
        )

    async def create_delegation_token(
        self, owner: str, requester: str, renewers: Sequence[str], lifetime_ms: int
    ) -> MadeToken:
        from ottla.controller.delegation_tokens import TokenSettings, create_token

        settings = TokenSettings.from_config(self._config)
        token_id = uuid_text(random_uuid(self._runtime.random))
        now_ms = self._runtime.clock.now_ms()
        return await self.active.write(
            create_token(settings, token_id, owner, requester, renewers, lifetime_ms, now_ms),
            # Another one would be made, and this one known to nobody.
            only_once=True,
        )

    async def renew_delegation_token(self, hmac: bytes, principal: str, period_ms: int) -> int:
        from ottla.controller.delegation_tokens import TokenSettings, renew_token

        active, settings = self.active, TokenSettings.from_config(self._config)
        now_ms = self._runtime.clock.now_ms()
        return await active.write(renew_token(active.newest, settings, hmac, principal, period_ms, now_ms))

    async def expire_delegation_token(self, hmac: bytes, principal: str, period_ms: int) -> int:
        from ottla.controller.delegation_tokens import TokenSettings, expire_token

        active, settings = self.active, TokenSettings.from_config(self._config)
        now_ms = self._runtime.clock.now_ms()
        return await active.write(expire_token(active.newest, settings, hmac, principal, period_ms, now_ms))

    async def remove_expired_tokens(self) -> None:
        """Runs for the life of the node, and does something while it leads."""
        from ottla.controller.delegation_tokens import remove_expired

        while True:
            await asyncio.sleep(self._config.integer("delegation.token.expiry.check.interval.ms") / 1000)
            with contextlib.suppress(KafkaError):
                # What was not written is tried again the next time, by whoever leads then.
                active = self.active
                await active.write(remove_expired(active.newest, self._runtime.clock.now_ms()))

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> None:
        active = self.active
        isr_min = self._config.integer("min.insync.replicas")
        result = update_features(
            active.newest,
            updates,
            self._config.node_id,
            isr_min=isr_min,
            kraft_version=self._quorum.kraft_version,
        )
        for update in updates:
            if update.name == KRAFT_VERSION:
                # The quorum keeps it in records of its own.
                await self._quorum.upgrade(update.level, validate_only=validate_only)
        await active.write(result, validate_only=validate_only)
