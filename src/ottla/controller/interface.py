"""What can be asked of the cluster's controller, wherever it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ottla.controller.brokers import BrokerRegistration
from ottla.controller.configs import ConfigOutcome, ResourceChanges, ResourceConfigs
from ottla.controller.features import FeatureUpdate
from ottla.controller.producer_ids import ProducerIdBlock
from ottla.controller.topics import NewPartitions, NewTopic, TopicOutcome, TopicRef

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
    from ottla.metadata.cluster_records import RegisterControllerRecord
    from ottla.wire.acls import Acl, AclFilter
    from ottla.wire.errors import KafkaError


class Controller(Protocol):
    """Each change is committed when its answer comes. Raises NotController where nobody can be asked."""

    @property
    def is_active(self) -> bool:
        """The active controller is in this process."""

    @property
    def is_in_touch(self) -> bool:
        """The connection of the last heartbeat is there, and leads to the active controller as of now."""

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicOutcome]: ...

    async def delete_topics(self, topics: Sequence[TopicRef]) -> list[TopicOutcome]: ...

    async def create_partitions(
        self, requests: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[TopicOutcome]: ...

    async def incremental_alter_configs(
        self, resources: Sequence[ResourceChanges], *, validate_only: bool = False
    ) -> list[ConfigOutcome]: ...

    async def alter_configs(
        self, resources: Sequence[ResourceConfigs], *, validate_only: bool = False
    ) -> list[ConfigOutcome]: ...

    async def register_broker(self, registration: BrokerRegistration) -> int:
        """The broker's epoch."""

    async def register_controller(self, registration: RegisterControllerRecord) -> None: ...

    async def heartbeat(self, heartbeat: BrokerHeartbeat) -> HeartbeatReply:
        """Raises StaleBrokerEpoch where the broker has to register anew."""

    def cut_off_broker(self, broker_id: int, broker_epoch: int) -> None:
        """The connection that the broker's heartbeats came on is gone."""

    async def unregister_broker(self, broker_id: int) -> None: ...

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, changes: Sequence[IsrChange]
    ) -> list[IsrOutcome]: ...

    async def assign_directories(
        self, broker_id: int, broker_epoch: int, assignments: Sequence[DirectoryAssignment]
    ) -> list[DirectoryOutcome]: ...

    async def elect_leaders(
        self, election_type: int, partitions: Sequence[TopicPartitions] | None
    ) -> list[ElectionOutcome]:
        """Of all partitions where none are named."""

    async def alter_reassignments(
        self, reassignments: Sequence[Reassignment], *, may_change_factor: bool = True
    ) -> list[ReassignmentOutcome]: ...

    async def list_reassignments(
        self, partitions: Sequence[TopicPartitions] | None
    ) -> list[OngoingReassignment]:
        """Of all partitions where none are named."""

    async def create_acls(self, acls: Sequence[Acl]) -> list[KafkaError | None]:
        """Why not, of each."""

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[AclDeletion]: ...

    async def alter_client_quotas(
        self, alterations: Sequence[QuotaAlteration], *, validate_only: bool = False
    ) -> list[KafkaError | None]:
        """Why not, of each."""

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> ProducerIdBlock: ...

    async def alter_scram_credentials(
        self, deletions: Sequence[ScramDeletion], upsertions: Sequence[ScramUpsertion]
    ) -> list[ScramOutcome]: ...

    async def create_delegation_token(
        self, owner: str, requester: str, renewers: Sequence[str], lifetime_ms: int
    ) -> MadeToken: ...

    async def renew_delegation_token(self, hmac: bytes, principal: str, period_ms: int) -> int:
        """When it expires, as does the answer to the next."""

    async def expire_delegation_token(self, hmac: bytes, principal: str, period_ms: int) -> int: ...

    async def update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False
    ) -> None: ...
