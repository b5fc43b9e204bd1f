"""What a handler is given: the broker's parts, and who is asking."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ottla.handlers.figures import RequestFigures

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ottla.config import BrokerConfig
    from ottla.controller.interface import Controller
    from ottla.coordinator.groups.coordinator import GroupCoordinator
    from ottla.coordinator.share.coordinator import ShareCoordinator
    from ottla.coordinator.share.states_of_groups import StatesOfGroups
    from ottla.coordinator.transactions.coordinator import TransactionCoordinator
    from ottla.coordinator.transactions.producer_ids import ProducerIds
    from ottla.handlers.current_leaders import CurrentLeaders
    from ottla.handlers.session import Session
    from ottla.membership.channel import ControllerChannel
    from ottla.metadata.publisher import MetadataPublisher
    from ottla.raft.driver import RaftDriver
    from ottla.replication.appends import Appends
    from ottla.replication.cold_reads import ColdReads
    from ottla.replication.manager import ReplicaManager
    from ottla.replication.nearest import RackAware
    from ottla.replication.sessions import FetchSessions
    from ottla.replication.share.groups import ShareGroups
    from ottla.runtime import Runtime
    from ottla.runtime.late import Late
    from ottla.runtime.tasks import TaskScope
    from ottla.security.authorizer import Authorizer
    from ottla.security.quotas import ClientQuotas
    from ottla.telemetry.clients import ClientTelemetry
    from ottla.wire.api import ApiKey


class ShareParts(NamedTuple):
    """What only share groups need."""

    states: ShareCoordinator
    """What they have read; the groups themselves are among the others."""
    states_of_groups: StatesOfGroups
    """The same, wherever it is kept."""
    groups: ShareGroups
    """The partitions that they read here."""


@dataclass(slots=True)
class Broker:
    """The parts of one node that requests reach. Wired once in `node`."""

    runtime: Runtime
    config: BrokerConfig
    node_id: int
    cluster_id: str
    replicas: ReplicaManager
    appends: Appends
    fetch_sessions: FetchSessions
    cold_reads: ColdReads
    nearest_replicas: RackAware | None
    """Where consumers are told to read; None: from the leader."""
    metadata: MetadataPublisher
    """What the cluster agreed on, to read."""
    leaders: CurrentLeaders
    """For clients that take this broker for the leader."""
    quorum: RaftDriver
    controller: Controller
    """What changes it."""
    forwarding: ControllerChannel | None
    """Takes clients' requests to the active controller, where that can be another node."""
    producer_ids: ProducerIds
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    share: Late[ShareParts]
    telemetry: ClientTelemetry
    tasks: TaskScope
    """For work that must not be lost with its connection; a failure in it ends the node."""
    authorizer: Authorizer | None = None
    """None: everybody may do everything."""
    quotas: ClientQuotas | None = None
    figures: RequestFigures = field(default_factory=RequestFigures)
    check_listeners: Callable[[BrokerConfig, Collection[str]], None] | None = None
    """ConfigError if its listeners could not do with a configuration in which these keys changed; takes the
    disk. None where there is nothing to check."""

    @property
    def share_states(self) -> ShareCoordinator:
        return self.share().states

    @property
    def share_groups(self) -> ShareGroups:
        return self.share().groups


@dataclass(slots=True)
class RequestContext:
    """One request's origin. `version` is the negotiated one; most handlers never look at it."""

    session: Session
    version: int
    correlation_id: int
    api: ApiKey
