"""Who a node is in its quorum, and where it finds the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from ottla.config import BrokerConfig
from ottla.config.listeners import ANY_HOST, parse_address
from ottla.metadata.meta_properties import MetaProperties
from ottla.raft.core import Timeouts
from ottla.raft.voters import Listener, ReplicaKey, Voter, VoterSet

FIRST_BOOTSTRAP_ID = -2


class QuorumSettings(NamedTuple):
    me: ReplicaKey
    voters: VoterSet
    """Of the configuration. Empty where only the log says who they are."""
    bootstrap: tuple[tuple[str, int], ...] = ()
    """Where somebody knows who leads, this node perhaps among them."""
    timeouts: Timeouts = Timeouts()
    cluster_id: str | None = None
    listener: str = "CONTROLLER"
    """The name under which voters say where they listen."""
    endpoints: tuple[Listener, ...] = ()
    """Where others reach this node."""
    may_vote: bool = True
    """An observer that never will need not sync what it follows."""
    joins: bool = False
    """An observer that may vote asks to become a voter by itself (KIP-1186)."""
    to_controllers: Mapping[str, str] = MappingProxyType({})
    """How they are reached, as properties of a client."""

    @classmethod
    def sole(cls, node_id: int) -> QuorumSettings:
        return cls(ReplicaKey(node_id), VoterSet.of_ids([node_id]))

    @property
    def is_sole(self) -> bool:
        """The configuration names no other: one bootstrap server is taken for this node itself."""
        return self.voters.is_only(self.me) and len(self.bootstrap) <= 1

    @property
    def bootstrap_ids(self) -> tuple[int, ...]:
        """Whom to ask who leads: voters by their ids, others by negative numbers."""
        if self.bootstrap:
            return tuple(FIRST_BOOTSTRAP_ID - at for at in range(len(self.bootstrap)))
        return self.voters.ids

    @classmethod
    def from_config(
        cls,
        config: BrokerConfig,
        directory: MetaProperties | None = None,
        host_name: Callable[[], str] = lambda: "localhost",
    ) -> QuorumSettings:
        """`directory` is that of the metadata log. `host_name` stands for listeners on every interface, and
        may have to be asked of a name server."""
        listener = config.strings("controller.listener.names")[0].upper()
        may_vote = "controller" in config.strings("process.roles")
        configured = config.quorum_voters
        servers = config.strings("controller.quorum.bootstrap.servers")
        addresses = [parse_address("controller.quorum.bootstrap.servers", server) for server in servers]
        bootstrap = tuple((address.host, address.port) for address in addresses if address is not None)
        if configured:
            voters = VoterSet(
                Voter(ReplicaKey(voter_id), (Listener(listener, address.host, address.port),))
                for voter_id, address in configured.items()
            )
            bootstrap = ()
        elif may_vote and len(bootstrap) <= 1:
            # Unless the log has others.
            voters = VoterSet.of_ids([config.node_id])
        else:
            voters = VoterSet()
        return cls(
            ReplicaKey(config.node_id, None if directory is None else directory.directory_id),
            voters,
            bootstrap,
            Timeouts(
                election=config.integer("controller.quorum.election.timeout.ms"),
                fetch=config.integer("controller.quorum.fetch.timeout.ms"),
                backoff_max=config.integer("controller.quorum.election.backoff.max.ms"),
                request=config.integer("controller.quorum.request.timeout.ms"),
                retry_backoff=config.integer("controller.quorum.retry.backoff.ms"),
            ),
            None if directory is None else directory.cluster_id,
            listener,
            tuple(
                Listener(each.listener, host_name() if each.host in ANY_HOST else each.host, each.port)
                for each in config.advertised_controller_listeners
            ),
            may_vote,
            may_vote and config.boolean("controller.quorum.auto.join.enable"),
            config.to_controllers,
        )
