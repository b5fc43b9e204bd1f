"""What a handler is given: the broker's parts, and who is asking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.config import BrokerConfig
    from ottla.controller.controller import Controller
    from ottla.coordinator.producer_ids import ProducerIds
    from ottla.coordinator.runtime import GroupCoordinator
    from ottla.coordinator.transactions.coordinator import TransactionCoordinator
    from ottla.replication.cold_reads import ColdReads
    from ottla.replication.manager import ReplicaManager
    from ottla.replication.sessions import FetchSessions
    from ottla.runtime import Runtime
    from ottla.runtime.tasks import TaskScope
    from ottla.telemetry.clients import ClientTelemetry


@dataclass(slots=True)
class Broker:
    """The parts of one node that requests reach. Wired once in `node`."""

    runtime: Runtime
    config: BrokerConfig
    node_id: int
    cluster_id: str
    replicas: ReplicaManager
    fetch_sessions: FetchSessions
    cold_reads: ColdReads
    controller: Controller
    producer_ids: ProducerIds
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    telemetry: ClientTelemetry
    tasks: TaskScope
    """For work that must not be lost with its connection; a failure in it ends the node."""


@dataclass(slots=True)
class RequestContext:
    """One request's origin. `version` is the negotiated one; most handlers never look at it."""

    version: int
    correlation_id: int
    client_id: str | None
    client_address: str
    listener: str

    @property
    def client_host(self) -> str:
        """As Kafka shows it: the address, with a slash where a name would stand."""
        return "/" + self.client_address.rpartition(":")[0]
