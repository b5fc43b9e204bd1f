"""One node: the composition root. Everything is made here, started in order, and stopped in reverse."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ottla.config import (
    BrokerConfig,
    ConfigError,
    Endpoint,
    advertise,
    resolve_topic,
)
from ottla.config.listeners import SECURITY_PROTOCOLS
from ottla.controller.brokers import BrokerRegistration
from ottla.controller.config_faults import ConfigFaults
from ottla.controller.configs import effective_config
from ottla.controller.controller import LocalController
from ottla.coordinator.groups.coordinator import GroupCoordinator
from ottla.coordinator.groups.settings import GroupSettings
from ottla.coordinator.host.shard_log import ReplicatedShardLog
from ottla.coordinator.transactions.coordinator import TransactionCoordinator
from ottla.coordinator.transactions.other_brokers import OtherBrokers
from ottla.coordinator.transactions.producer_ids import ProducerIds
from ottla.coordinator.transactions.settings import TransactionSettings
from ottla.handlers.authorization import RULES
from ottla.handlers.context import Broker, ShareParts
from ottla.handlers.current_leaders import CurrentLeaders
from ottla.handlers.registry import CONTROLLER_REGISTRY
from ottla.log.manager import LogManager
from ottla.log.names import LOCK_FILE
from ottla.log.segment import OPEN_SEGMENTS_MAX
from ottla.log.types import TopicPartition
from ottla.metadata import meta_properties
from ottla.metadata.change import MetadataChange, between
from ottla.metadata.features import supported_features
from ottla.metadata.image import MetadataImage, ResourceType
from ottla.metadata.internal_topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import NO_LEADER
from ottla.metadata.records import Endpoint as RegisteredEndpoint
from ottla.metadata.uuids import RESERVED_MAX, random_uuid
from ottla.raft.driver import RaftDriver
from ottla.raft.metadata_log import check_metadata_is_there, wait_opened
from ottla.raft.settings import QuorumSettings
from ottla.raft.snapshots import SnapshotPolicy
from ottla.replication.appends import Appends
from ottla.replication.cold_reads import ColdReads
from ottla.replication.manager import ReplicaManager
from ottla.replication.nearest import replica_selector
from ottla.replication.sessions import FetchSessions
from ottla.runtime import Runtime
from ottla.runtime.late import Late
from ottla.runtime.tasks import TaskScope
from ottla.security.audit import AuditLog
from ottla.security.authorizer import Authorizer
from ottla.security.quotas import ClientQuotas
from ottla.server.listener import Server
from ottla.server.waiting import WaitingListeners
from ottla.telemetry.clients import ClientTelemetry
from ottla.wire.api import ApiKey
from ottla.wire.errors import CoordinatorLoadInProgress, KafkaError

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.controller.interface import Controller
    from ottla.membership.channel import ControllerChannel
    from ottla.membership.life import BrokerLife
    from ottla.server.guard import Guard
    from ottla.server.guards import Guards
    from ottla.server.metrics.endpoint import MetricsEndpoint

log = logging.getLogger(__name__)

DRAIN_SECONDS = 5.0
COORDINATION_SECONDS = 0.25
"""While stopping, for requests that coordinators can still carry out. Members may wait for others longer."""
DESCRIPTORS_PER_SEGMENT = 2
"""The file, and the mapping of it that readers share."""
DESCRIPTORS_FOR_CLIENTS = 200


class Node:
    """`start`, then serve until `stop`. `wait_failed` returns when something the node needs has died."""

    def __init__(self, runtime: Runtime, config: BrokerConfig) -> None:
        self._runtime = runtime
        self._config = config
        self._failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._core = TaskScope("node", self._fail)
        # A request that fails ends its connection, which also reports it.
        self._requests = TaskScope("requests", lambda name, error: None)
        self._stack = contextlib.AsyncExitStack()
        self._config_faults = ConfigFaults()
        self._waiting = WaitingListeners(runtime.net, config.broker_listeners if self._is_broker else ())
        """Until there is room for what a start has to write."""
        self._broker_epoch = -1
        self._life: BrokerLife | None = None
        """Of a broker that is not alone in its cluster."""
        self._seen_by_controllers: Broker | None = None
        self._guards: Guards | None = None
        """None where all listeners are open to all."""
        self._started = False
        self.address = ("", 0)
        self.advertised: tuple[Endpoint, ...] = ()
        self.cluster_id = ""

    async def start(self) -> None:
        try:
            await self._start()
        except BaseException:
            await self._waiting.close()
            await self._stack.aclose()
            raise

    async def _start(self) -> None:
        config = self._config
        runtime = self._runtime
        # First, so that nothing is touched where the package is missing.
        metrics_endpoint = self._load_metrics_endpoint()
        check_metadata_is_there(runtime.disk, config)
        logs = LogManager(runtime, config, config.log_dirs)
        self._lock_directories(logs)
        self._stack.push_async_callback(self._close_logs, logs)
        clean = all(logs.was_closed(path) for path in config.log_dirs)
        examined = meta_properties.examine(
            runtime.disk,
            runtime.random,
            list(dict.fromkeys((config.metadata_log_dir, *self._usable_dirs(logs)))),
            config.node_id,
            on_error=lambda path, error: logs.fail_at_start(path, error, "reading its meta.properties"),
        )
        self.cluster_id = examined.of(config.metadata_log_dir).cluster_id
        metadata_log = await wait_opened(
            runtime, config, clean=logs.was_closed(config.metadata_log_dir), on_wait=self._waiting.open
        )
        metadata = MetadataPublisher()
        quorum = RaftDriver(
            runtime,
            metadata_log,
            settings=QuorumSettings.from_config(
                config, examined.of(config.metadata_log_dir), runtime.net.host_name
            ),
            policy=SnapshotPolicy.from_config(config),
            publisher=metadata,
            on_failure=self._fail,
        )
        quorum.load()
        metadata.loaded()
        local = LocalController(runtime, config, quorum, metadata)
        broker = self._make_broker(logs, quorum, metadata, local)
        self._follow_rules(quorum, metadata)
        self._guards = self._make_guards(metadata)
        if not quorum.is_alone:
            examined.check_formatted()
        if self._can_be_joined:
            await self._serve_controllers(broker, local)
        await self._start_quorum(quorum, local)
        self._stack.push_async_callback(quorum.close)
        self._stack.push_async_callback(self._core.close)

        last_registered = metadata.image.brokers.get(config.node_id)
        if last_registered is not None:
            examined.check_known(
                last_registered.directories, len(config.log_dirs) - len(self._usable_dirs(logs))
            )
        directories = examined.write_new(runtime.disk)
        registration = BrokerRegistration(
            broker_id=config.node_id,
            incarnation_id=random_uuid(runtime.random),
            endpoints=(),
            directories=tuple(directories[path].directory_id for path in self._usable_dirs(logs)),
            rack=config.optional_string("broker.rack"),
            clean_shutdown=clean,
            previous_epoch=logs.closed_epoch,
        )
        server = self._server = Server(runtime, config, broker, self._requests)
        self._stack.push_async_callback(self._requests.close)
        self._stack.push_async_callback(self._drain, server)
        if self._is_broker and not quorum.is_alone:
            # What is on disk here may be old: which partitions this broker has, its cluster knows.
            registration = registration._replace(endpoints=await self._bind(server))
            self._life = await self._join_cluster(registration, directories)
        known = metadata.image
        if self._is_broker:
            await self._open_logs(logs, known, directories)
            if self._life is None:
                registration = registration._replace(endpoints=await self._bind(server))
                if self._can_be_joined:
                    self._replicate()

        self._apply_metadata(between(MetadataImage(), known))
        # The cluster may have gone on while logs were opened.
        self._apply_metadata(between(known, metadata.image))
        # Before anything else gets its turn, or changes would be missed.
        metadata.subscribe(self._apply_metadata)
        if self._is_broker:
            self._replicas.set_strays_aside()
            await self._replicas.catch_up()
            if self._life is None:
                self._broker_epoch = await local.register_broker(registration)
            logs.start(self._core, self._high_watermark)
        self._begin_work(local, server)
        await self._serve_metrics(metrics_endpoint)
        self._warn_of_few_descriptors(logs)
        if self._life is not None:
            await self._life.serve()
        server.serve()
        self._started = True

    async def _start_quorum(self, quorum: RaftDriver, local: LocalController) -> None:
        quorum.room.on_wait = self._waiting.open
        await quorum.start(local)
        quorum.room.on_wait = None
        await self._waiting.close()

    def _lock_directories(self, logs: LogManager) -> None:
        logs.lock()
        self._stack.callback(logs.unlock)
        metadata_dir, disk = self._config.metadata_log_dir, self._runtime.disk
        if metadata_dir not in self._config.log_dirs:
            meta_properties.make_dir(disk, metadata_dir)
            self._stack.callback(disk.lock(f"{metadata_dir}/{LOCK_FILE}").release)

    def _begin_work(self, local: LocalController, server: Server) -> None:
        """What goes on until the node stops."""
        for work, name in (
            (local.run(), "controller"),
            (self._replicas.run(), "log-work"),
            (server.close_idle_connections(), "idle-connections"),
            (server.make_way(), "request-memory"),
        ):
            self._core.spawn(work, name)
        self._expire_tokens(local)
        if self._can_be_joined:
            self._enrol()

    def _make_broker(
        self, logs: LogManager, quorum: RaftDriver, metadata: MetadataPublisher, local: LocalController
    ) -> Broker:
        config, runtime = self._config, self._runtime
        controller, forwarding = self._ways_to_controller(quorum, metadata, local)
        self._controller = controller
        replicas = self._replicas = ReplicaManager(config.node_id, config, logs, runtime.offload)
        self._other_brokers = self._ways_to_other_brokers(metadata)
        share = self._share = Late(self._make_share_parts)
        groups = self._groups = GroupCoordinator(
            runtime,
            config.node_id,
            GroupSettings.from_config(config),
            ReplicatedShardLog(replicas, OFFSETS_TOPIC),
            self._core,
            lambda: share().states_of_groups,
            codec=config.integer("offsets.topic.compression.codec"),
        )
        groups.update_config(config)
        producer_ids = ProducerIds(self._allocate_producer_ids)
        transactions = self._transactions = TransactionCoordinator(
            config.node_id,
            TransactionSettings.from_config(config),
            ReplicatedShardLog(replicas, TRANSACTION_TOPIC),
            producer_ids,
            replicas,
            groups,
            self._other_brokers.ask,
            runtime.clock,
            self._core,
        )
        self._broker = Broker(
            runtime=runtime,
            config=config,
            node_id=config.node_id,
            cluster_id=self.cluster_id,
            replicas=replicas,
            appends=Appends(runtime, config, replicas, transactions.verify, self._core),
            fetch_sessions=FetchSessions(
                runtime.clock, runtime.random, config.integer("max.incremental.fetch.session.cache.slots")
            ),
            cold_reads=ColdReads(runtime, self._core),
            nearest_replicas=replica_selector(config, replicas.in_sync),
            metadata=metadata,
            leaders=CurrentLeaders(metadata),
            quorum=quorum,
            controller=controller,
            forwarding=forwarding,
            producer_ids=producer_ids,
            groups=groups,
            transactions=transactions,
            share=share,
            telemetry=ClientTelemetry(runtime.clock, runtime.random, config.integer("telemetry.max.bytes")),
            tasks=self._core,
            authorizer=self._make_authorizer(),
            quotas=ClientQuotas(runtime.clock, config),
        )
        return self._broker

    def _make_share_parts(self) -> ShareParts:
        # The only place that loads them.
        from ottla.coordinator.share.coordinator import ShareCoordinator
        from ottla.coordinator.share.persister import SharePersister
        from ottla.coordinator.share.settings import ShareSettings
        from ottla.coordinator.share.states_of_groups import StatesOfGroups
        from ottla.replication.share.groups import ShareGroups
        from ottla.replication.share.sessions import ShareSessions
        from ottla.replication.share.settings import SettingsOfGroups
        from ottla.replication.share.share_partitions import SharePartitions

        config, replicas, metadata = self._config, self._replicas, self._broker.metadata
        node_id, clock, ask = config.node_id, self._runtime.clock, self._other_brokers.ask
        states = ShareCoordinator(
            node_id,
            ShareSettings.from_config(config),
            ReplicatedShardLog(replicas, SHARE_STATE_TOPIC),
            clock,
            self._core,
        )
        states.begin(metadata.image)
        self._core.spawn(states.run(), "share-states")
        persister = SharePersister(node_id, states, lambda: metadata.image, ask, clock, self._core)
        settings_of = SettingsOfGroups(lambda: self._broker.config, lambda: metadata.image)
        return ShareParts(
            states,
            StatesOfGroups(
                node_id,
                states,
                lambda: metadata.image,
                ask,
                replicas,
                self._make_share_state_topic,
                clock,
            ),
            ShareGroups(
                SharePartitions(replicas, persister, settings_of, clock, self._core),
                settings_of,
                ShareSessions(
                    lambda: self._broker.config.integer("group.share.max.share.sessions"),
                    lambda: self._broker.config.integer("ottla.share.sessions.max.partitions"),
                ),
                self._core,
            ),
        )

    async def _make_share_state_topic(self) -> None:
        # Late, as any handler: a node that nobody asks this need not load it.
        from ottla.handlers.coordinators import make_share_state_topic

        await make_share_state_topic(self._broker)

    def _make_guards(self, metadata: MetadataPublisher) -> Guards | None:
        config = self._config
        listeners = (*config.broker_listeners, *config.controller_listeners)
        if all(config.listener(each.listener).protocol == "PLAINTEXT" for each in listeners):
            return None
        # Late, because a node that is open to all need not load what asks who comes.
        from ottla.security.sasl.scram_users import MetadataScramUsers
        from ottla.server.guards import Guards

        users = MetadataScramUsers(
            self._runtime,
            lambda: metadata.image,
            self.cluster_id,
            lambda: self._broker.config.optional_string("delegation.token.secret.key"),
        )
        # What was altered while it ran counts from the start.
        stored = effective_config(config, metadata.image)
        try:
            guards = Guards(self._runtime, stored, users, self._requests)
        except ConfigError as error:
            # Whoever altered them can only alter them again on a broker that is up.
            guards = Guards(self._runtime, config, users, self._requests)
            log.error("listeners have the settings of the file, because those altered since fail: %s", error)
        self._core.spawn(guards.watch_files(), "certificates")
        self._core.spawn(guards.keep_keys_current(), "keys-of-tokens")
        self._broker.check_listeners = guards.check
        return guards

    def _expire_tokens(self, local: LocalController) -> None:
        if self._config.optional_string("delegation.token.secret.key"):
            self._core.spawn(local.remove_expired_tokens(), "expired-tokens")

    def _guard(self, listener: str) -> Guard | None:
        return None if self._guards is None else self._guards.get(listener)

    def _make_authorizer(self) -> Authorizer | None:
        authorizer = Authorizer.from_config(self._config)
        administrative = frozenset(ApiKey(key) for key, rule in RULES.items() if rule.administrative)
        audit = AuditLog.from_config(self._runtime, self._config, administrative)
        if audit is None:
            return authorizer
        if authorizer is None:
            log.warning("ottla.audit.log is set, but without authorizer.class.name nothing is refused")
            return None
        authorizer.audit = audit
        self._stack.push_async_callback(audit.close)
        self._core.spawn(audit.run(), "audit-log")
        return authorizer

    def _follow_rules(self, quorum: RaftDriver, metadata: MetadataPublisher) -> None:
        """From the first record on: controllers are asked, and have to decide, before there are logs."""
        authorizer = self._broker.authorizer
        if authorizer is not None:
            authorizer.is_loaded = quorum.is_current.is_set
            authorizer.apply(between(MetadataImage(), metadata.image))
            metadata.subscribe(authorizer.apply)

    @property
    def _is_broker(self) -> bool:
        return "broker" in self._config.strings("process.roles")

    @property
    def _is_controller(self) -> bool:
        return "controller" in self._config.strings("process.roles")

    @property
    def _can_be_joined(self) -> bool:
        """Other brokers can be told where this controller is; otherwise it is alone for good."""
        config = self._config
        return self._is_controller and bool(
            config.quorum_voters
            or config.strings("controller.quorum.bootstrap.servers")
            or not self._broker.quorum.is_alone
        )

    def _ways_to_controller(
        self, quorum: RaftDriver, metadata: MetadataPublisher, local: LocalController
    ) -> tuple[Controller, ControllerChannel | None]:
        """What this broker asks the controller by, and what hands on the requests of its clients."""
        config = self._config
        if quorum.is_alone:
            return local, None
        # Late, because a node that has nobody to ask need not load what asks.
        from ottla.membership.channel import ControllerChannel
        from ottla.membership.controller import Channels, ClusterController

        def find() -> tuple[str, int] | None:
            return None if local.leader_id is None else quorum.address(local.leader_id)

        def channel(timeout_ms: int) -> ControllerChannel:
            properties = {**config.to_controllers, "client.id": f"broker-{config.node_id}"}
            made = ControllerChannel(self._runtime, find, properties, timeout_s=timeout_ms / 1000)
            self._stack.callback(made.close)
            return made

        timeout_ms = config.integer("request.timeout.ms")
        life = channel(config.integer("broker.session.timeout.ms") // 2)
        channels = Channels(life, channel(timeout_ms))
        controller = ClusterController(
            local, self._runtime, config, quorum, metadata, self.cluster_id, channels
        )
        return controller, channel(timeout_ms)

    async def _serve_controllers(self, broker: Broker, local: LocalController) -> None:
        """Other members of the quorum elect a leader with this node before it can do anything else."""
        # Whoever asks here looks for the active controller: what is asked is not to be handed on.
        self._seen_by_controllers = replace(broker, controller=local)
        early = self._config.early_listeners
        bound = []
        for endpoint in self._config.controller_listeners:
            server = Server(self._runtime, self._config, self._seen_by_controllers, self._requests)
            self._stack.callback(server.abort)
            self._stack.push_async_callback(server.stop_reading)
            bound.append(await server.bind(endpoint, CONTROLLER_REGISTRY, self._guard(endpoint.listener)))
            self._core.spawn(server.close_idle_connections(), "idle-connections-of-controllers")
            self._core.spawn(server.make_way(), "request-memory-of-controllers")
            if broker.authorizer is None or endpoint.listener in early:
                server.serve()
            else:
                self._core.spawn(self._serve_late(server), f"rules-for-{endpoint.listener}")
        # Of a broker, clients are told something else later.
        self.advertised = tuple(bound)
        self.address = (bound[0].host, bound[0].port)

    async def _serve_late(self, server: Server) -> None:
        await self._broker.quorum.is_current.wait()
        server.serve()

    async def _bind(self, server: Server) -> tuple[RegisteredEndpoint, ...]:
        """Where clients come in, as the cluster is told of it."""
        config = self._config
        bound = [
            await server.bind(endpoint, guard=self._guard(endpoint.listener))
            for endpoint in config.broker_listeners
        ]
        advertised = advertise(bound, config.advertised_listeners, self._runtime.net.host_name)
        self.advertised = advertised
        self.address = (advertised[0].host, advertised[0].port)
        return tuple(
            RegisteredEndpoint(
                name=e.listener,
                host=e.host,
                port=e.port,
                security_protocol=SECURITY_PROTOCOLS.index(config.listener(e.listener).protocol),
            )
            for e in advertised
        )

    async def _join_cluster(
        self, registration: BrokerRegistration, directories: Mapping[str, meta_properties.MetaProperties]
    ) -> BrokerLife:
        from ottla.membership.life import BrokerLife

        def offline() -> tuple[UUID, ...]:
            logs = self._replicas.logs
            return tuple(
                directories[path].directory_id
                for path in self._config.log_dirs
                if path in directories and logs.failure_of(path) is not None
            )

        metadata = self._broker.metadata
        life = BrokerLife(self._runtime, self._config, self._controller, metadata, registration, offline)
        await life.register()
        await life.wait_caught_up()
        self._core.spawn(life.run(), "broker-life")
        self._replicate()
        directory_ids = {
            path: directories[path].directory_id for path in self._config.log_dirs if path in directories
        }
        self._tell_places(life, {path.rstrip("/"): each for path, each in directory_ids.items()})
        return life

    def _enrol(self) -> None:
        from ottla.membership.enrolment import keep_enrolled
        from ottla.metadata.cluster_records import RegisterControllerRecord

        registration = RegisterControllerRecord(
            controller_id=self._config.node_id,
            incarnation_id=random_uuid(self._runtime.random),
            end_points=tuple(
                RegisteredEndpoint(
                    name=endpoint.name,
                    host=endpoint.host or self._runtime.net.host_name(),
                    port=endpoint.port,
                    security_protocol=SECURITY_PROTOCOLS.index(self._config.listener(endpoint.name).protocol),
                )
                for endpoint in self._broker.quorum.settings.endpoints
            ),
            features=supported_features(),
        )
        enrolling = keep_enrolled(self._runtime.clock, self._controller, self._broker.metadata, registration)
        self._core.spawn(enrolling, "enrolment")

    def _tell_places(self, life: BrokerLife, directory_ids: Mapping[str, UUID]) -> None:
        from ottla.membership.replica_places import ReplicaPlaces

        replicas = self._replicas
        places = ReplicaPlaces(
            self._runtime.clock,
            self._controller,
            self._broker.metadata,
            self._config.node_id,
            lambda: life.epoch,
            directory_ids,
        )

        def note(topic_id: UUID, partition: int, directory: str) -> None:
            places.note(topic_id, partition, directory)
            if replicas.logs.failure_of(directory) is not None:
                # Others may lead what was in it.
                life.hurry()

        replicas.on_place = note
        replicas.on_lost = places.note_lost
        self._core.spawn(places.run(), "replica-places")

    def _replicate(self) -> None:
        """With other brokers: follow their partitions, and tell the controller who follows ours."""
        from ottla.membership.isr_channel import ControllerIsrChannel
        from ottla.replication.fetcher import Fetchers

        config, replicas = self._config, self._replicas
        replicas.following = Fetchers(
            self._runtime,
            config,
            replicas.logs,
            replicas.in_sync,
            replicas.throttles,
            config.inter_broker_listener,
            self._core,
        )
        channel = ControllerIsrChannel(self._controller, config.node_id)
        self._core.spawn(replicas.in_sync.run(channel), "in-sync")
        self._core.spawn(replicas.watch_followers(), "followers")

    def _out_of_reach(
        self, logs: LogManager, stored: MetadataImage, online: Collection[UUID]
    ) -> Iterator[TopicPartition]:
        """Replicas of this broker whose logs must be in a directory that failed."""
        me = self._config.node_id
        for topic in stored.topics.values():
            for index, partition in enumerate(topic.partitions):
                found = TopicPartition(topic.name, index)
                if me not in partition.replicas or logs.get(found) is not None:
                    continue
                place = partition.directory(me)
                if place.int > RESERVED_MAX:
                    if place not in online:
                        yield found
                # Nobody was told where it is; who is to have all of it has had it.
                elif self._life is None or me in (*partition.isr, *partition.eligible_leader_replicas):
                    yield found

    async def _open_logs(
        self,
        logs: LogManager,
        stored: MetadataImage,
        directories: Mapping[str, meta_properties.MetaProperties],
    ) -> None:
        """Away from the event loop: who recovers for minutes still votes, and follows the metadata."""
        stored_config = effective_config(self._config, stored)
        paths = {each.directory_id: path.rstrip("/") or "/" for path, each in directories.items()}
        await logs.open_in_turns(
            lambda topic: resolve_topic(stored_config, stored.config(ResourceType.TOPIC, topic)),
            partial(_topic_id_of, stored, self._config.node_id),
            partial(_is_led_by_another, stored, self._config.node_id),
            partial(_path_of, stored, self._config.node_id, paths),
        )
        usable = self._usable_dirs(logs)
        if len(usable) < len(self._config.log_dirs):
            online = {directories[path].directory_id for path in usable}
            logs.presume(self._out_of_reach(logs, stored, online))

    def _usable_dirs(self, logs: LogManager) -> list[str]:
        return [path for path in self._config.log_dirs if logs.failure_of(path) is None]

    def _ways_to_other_brokers(self, metadata: MetadataPublisher) -> OtherBrokers:
        config = self._config
        others = OtherBrokers(
            self._runtime.net,
            lambda: metadata.image,
            listener=config.inter_broker_listener,
            properties={**config.to_brokers, "client.id": f"broker-{config.node_id}"},
            timeout_s=config.integer("request.timeout.ms") / 1000,
        )
        self._stack.callback(others.close)
        return others

    def _load_metrics_endpoint(self) -> type[MetricsEndpoint] | None:
        address = self._config.metrics_listener
        if address is None:
            return None
        try:
            from ottla.server.metrics.endpoint import MetricsEndpoint
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("prometheus_client"):
                raise
            raise ConfigError(
                f"ottla.metrics.listener={address}: needs the package prometheus-client: "
                "pip install 'ottla[metrics]', or remove the key"
            ) from error
        return MetricsEndpoint

    async def _serve_metrics(self, endpoint: type[MetricsEndpoint] | None) -> None:
        address = self._config.metrics_listener
        pushes = bool(self._config.string("ottla.otel.endpoint"))
        if endpoint is None and not pushes:
            return
        # Late, because a node that is not to tell of itself need not load what does.
        from ottla.server.metrics.gathering import Gathering

        gathering = Gathering(self._broker, self._server.limits, self._other_brokers.ask)
        told = TaskScope("metrics", lambda name, error: None)
        gathering.begin(told)
        self._stack.push_async_callback(told.close)
        if pushes:
            from ottla.server.metrics.otlp import OtlpPusher

            pusher = OtlpPusher(gathering, self._config)
            pusher.start()
            self._stack.push_async_callback(pusher.stop)
        if endpoint is not None and address is not None:
            metrics = endpoint(gathering)
            await metrics.serve(address)
            self._stack.push_async_callback(metrics.stop)

    async def stop(self) -> None:
        """Finish what is in flight, sync, close: the next start needs no recovery."""
        if self._life is not None and self._started and not self._failed.done():
            if self._config.boolean("controlled.shutdown.enable"):
                await self._life.leave()
            self._broker_epoch = self._life.epoch
        await self._stack.aclose()
        await self._runtime.close()

    async def _drain(self, server: Server) -> None:
        """Answer what was read. What the answers wait for, such as a flush, is stopped after this."""
        await server.stop_reading()
        if self._share.made is not None:
            self._share.made.groups.close()
        await server.wait_drained(COORDINATION_SECONDS)
        # Members that wait for others would wait in vain: they are told to find their coordinator again.
        self._transactions.close()
        if self._share.made is not None:
            self._share.made.states.close()
        self._groups.close()
        await server.wait_drained(DRAIN_SECONDS)
        server.abort()

    def _warn_of_few_descriptors(self, logs: LogManager) -> None:
        descriptors = self._runtime.net.descriptors()
        if descriptors is None:
            return
        _, limit = descriptors
        partitions = len(list(logs.all_logs))
        sealed = min(sum(len(each.segments) - 1 for each in logs.all_logs), OPEN_SEGMENTS_MAX)
        needed = (partitions + sealed) * DESCRIPTORS_PER_SEGMENT + DESCRIPTORS_FOR_CLIENTS
        if needed > limit:
            log.warning(
                "the limit of open files is %d, but %d partitions and the segments that are read may need "
                "%d, with %d for clients: raise it (ulimit -n, LimitNOFILE=), or clients will be refused",
                limit,
                partitions,
                needed,
                DESCRIPTORS_FOR_CLIENTS,
            )

    async def wait_failed(self) -> BaseException:
        return await asyncio.shield(self._failed)

    def _fail(self, name: str, error: BaseException) -> None:
        log.critical("%s failed, the node cannot go on: %s", name, error, exc_info=error)
        if not self._failed.done():
            self._failed.set_result(error)

    async def _close_logs(self, logs: LogManager) -> None:
        # After a failure, or half a start, files may not be what memory says: leave no clean mark, so that
        # the next start looks at them.
        # Who is no broker has not looked at them, and says nothing of their state.
        if self._is_broker and self._started and not self._failed.done():
            await logs.close(self._broker_epoch)

    def _apply_metadata(self, change: MetadataChange) -> None:
        if change.changes_broker_configs:
            self._apply_broker_configs(change.after)
        if change.configs:
            self._config_faults.tell(self._broker.config, change)
        self._replicas.apply(change)
        self._groups.apply(change)
        self._transactions.apply(change)
        if self._share.made is not None:
            self._share.made.states.apply(change)
            self._share.made.groups.apply(change)
        elif SHARE_STATE_TOPIC in change.after.topics:
            # States may have to be loaded, or be shortened, before anybody asks.
            self._share()
        self._other_brokers.apply(change)
        self._broker.telemetry.apply(change)
        if self._broker.quotas is not None:
            self._broker.quotas.apply(change)

    def _apply_broker_configs(self, image: MetadataImage) -> None:
        config = effective_config(self._config, image)
        self._broker.config = config
        if self._seen_by_controllers is not None:
            self._seen_by_controllers.config = config
        self._broker.appends.config = config
        self._replicas.logs.config = config
        self._server.limits.configure(config)
        if self._guards is not None:
            self._guards.configure(config)
        self._replicas.update_config(config, image)
        self._groups.update_config(config)

    def _high_watermark(self, tp: TopicPartition) -> int | None:
        found = self._replicas.find(*tp)
        return None if found is None else found.high_watermark

    async def _allocate_producer_ids(self) -> range:
        try:
            block = await self._controller.allocate_producer_ids(
                self._config.node_id, self._broker_epoch if self._life is None else self._life.epoch
            )
        except KafkaError as error:
            # As Kafka answers where it gets no ids: producers try again, which they would not after others.
            raise CoordinatorLoadInProgress(f"no producer id can be given out: {error}") from error
        return range(block.first_id, block.first_id + block.size)


def _topic_id_of(image: MetadataImage, node_id: int, partition: TopicPartition) -> UUID | None:
    """The topic of a log that should be here, by its name."""
    topic = image.topics.get(partition.topic)
    if topic is None or partition.partition >= len(topic.partitions):
        return None
    return topic.id if node_id in topic.partitions[partition.partition].replicas else None


def _path_of(
    image: MetadataImage, node_id: int, paths: Mapping[UUID, str], partition: TopicPartition
) -> str | None:
    """The data directory of a log that should be here, if the controller was told of it."""
    topic = image.topics.get(partition.topic)
    state = None if topic is None else topic.partition(partition.partition)
    return None if state is None else paths.get(state.directory(node_id))


def _is_led_by_another(image: MetadataImage, node_id: int, partition: TopicPartition) -> bool:
    """And this node may not lead it before it has caught up: what it has, the leader has."""
    topic = image.topics.get(partition.topic)
    state = None if topic is None else topic.partition(partition.partition)
    return (
        state is not None
        and state.leader not in (NO_LEADER, node_id)
        and node_id in state.replicas
        and node_id not in (*state.isr, *state.eligible_leader_replicas, *state.last_known_elr)
    )
