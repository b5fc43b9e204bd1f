"""One node: the composition root. Everything is made here, started in order, and stopped in reverse."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING

from ottla.config import BrokerConfig, ConfigError, Endpoint, advertise, resolve_topic
from ottla.controller.brokers import BrokerRegistration
from ottla.controller.config_faults import ConfigFaults
from ottla.controller.configs import effective_config
from ottla.controller.controller import Controller
from ottla.coordinator.producer_ids import ProducerIds
from ottla.coordinator.runtime import GroupCoordinator
from ottla.coordinator.settings import GroupSettings
from ottla.coordinator.shard_log import ReplicatedShardLog
from ottla.coordinator.transactions.coordinator import TransactionCoordinator
from ottla.coordinator.transactions.settings import TransactionSettings
from ottla.handlers.context import Broker
from ottla.log.manager import LogManager
from ottla.log.names import LOCK_FILE
from ottla.log.segment import OPEN_SEGMENTS_MAX
from ottla.log.types import TopicPartition
from ottla.metadata import meta_properties
from ottla.metadata.change import MetadataChange, between
from ottla.metadata.image import MetadataImage, ResourceType
from ottla.metadata.internal_topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from ottla.metadata.records import Endpoint as RegisteredEndpoint
from ottla.metadata.uuids import random_uuid
from ottla.raft.metadata_log import check_metadata_is_there, wait_opened
from ottla.replication.cold_reads import ColdReads
from ottla.replication.manager import ReplicaManager
from ottla.replication.sessions import FetchSessions
from ottla.runtime import Runtime
from ottla.runtime.tasks import TaskScope
from ottla.server.dispatch import Dispatcher
from ottla.server.listener import Server
from ottla.telemetry.clients import ClientTelemetry
from ottla.wire.errors import CoordinatorLoadInProgress, StorageError

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.server.metrics.endpoint import MetricsEndpoint

log = logging.getLogger(__name__)

DRAIN_SECONDS = 5.0
COORDINATION_SECONDS = 0.25
"""While stopping, for requests that coordinators can still carry out. Members may wait for others longer."""
DESCRIPTORS_PER_SEGMENT = 2
"""The file, and the mapping of it that readers share."""
DESCRIPTORS_FOR_CLIENTS = 200
PLAINTEXT = 0


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
        self._broker_epoch = -1
        self._started = False
        self.address = ("", 0)
        self.advertised: tuple[Endpoint, ...] = ()
        self.cluster_id = ""

    async def start(self) -> None:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise

    async def _start(self) -> None:
        config = self._config
        runtime = self._runtime
        # First, so that nothing is touched where the package is missing.
        metrics_endpoint = self._load_metrics_endpoint()
        check_metadata_is_there(runtime.disk, config)
        logs = LogManager(runtime, config, config.log_dirs)
        logs.lock()
        self._stack.callback(logs.unlock)
        if config.metadata_log_dir not in config.log_dirs:
            meta_properties.make_dir(runtime.disk, config.metadata_log_dir)
            self._stack.callback(runtime.disk.lock(f"{config.metadata_log_dir}/{LOCK_FILE}").release)
        self._stack.push_async_callback(self._close_logs, logs)
        clean = all(logs.was_closed(path) for path in config.log_dirs)
        examined = meta_properties.examine(
            runtime.disk,
            runtime.random,
            list(dict.fromkeys((config.metadata_log_dir, *config.log_dirs))),
            config.node_id,
        )
        metadata_log = await wait_opened(runtime, config, clean=logs.was_closed(config.metadata_log_dir))
        controller = self._controller = Controller(runtime, config, metadata_log, self._fail)
        await controller.start()
        self._stack.push_async_callback(controller.close)
        self._stack.push_async_callback(self._core.close)

        stored = controller.image
        last_registered = stored.brokers.get(config.node_id)
        if last_registered is not None:
            examined.check_known(last_registered.directories)
        directories = examined.write_new(runtime.disk)
        self.cluster_id = directories[config.metadata_log_dir].cluster_id
        stored_config = effective_config(config, stored)
        logs.open(
            lambda topic: resolve_topic(stored_config, stored.config(ResourceType.TOPIC, topic)),
            partial(_topic_id_of, stored, config.node_id),
        )
        replicas = self._replicas = ReplicaManager(config.node_id, config, logs, runtime.offload)
        groups = self._groups = GroupCoordinator(
            runtime,
            config.node_id,
            GroupSettings.from_config(config),
            ReplicatedShardLog(replicas, OFFSETS_TOPIC),
            self._core,
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
            runtime.clock,
            self._core,
        )
        self._broker = Broker(
            runtime=runtime,
            config=config,
            node_id=config.node_id,
            cluster_id=self.cluster_id,
            replicas=replicas,
            fetch_sessions=FetchSessions(
                runtime.clock, runtime.random, config.integer("max.incremental.fetch.session.cache.slots")
            ),
            cold_reads=ColdReads(runtime, self._core),
            controller=controller,
            producer_ids=producer_ids,
            groups=groups,
            transactions=transactions,
            telemetry=ClientTelemetry(runtime.clock, runtime.random, config.integer("telemetry.max.bytes")),
            tasks=self._core,
        )
        server = self._server = Server(runtime, config, Dispatcher(self._broker, self._requests))
        self._stack.push_async_callback(self._requests.close)
        self._stack.push_async_callback(self._drain, server)
        bound = [await server.bind(endpoint) for endpoint in config.broker_listeners]

        self._apply_metadata(between(MetadataImage(), controller.image))
        replicas.set_strays_aside()
        await replicas.catch_up()
        controller.subscribe(self._apply_metadata)
        advertised = advertise(bound, config.advertised_listeners, runtime.net.host_name)
        self.advertised = advertised
        self._broker_epoch = await controller.register_broker(
            BrokerRegistration(
                broker_id=config.node_id,
                incarnation_id=random_uuid(runtime.random),
                endpoints=tuple(
                    RegisteredEndpoint(name=e.listener, host=e.host, port=e.port, security_protocol=PLAINTEXT)
                    for e in advertised
                ),
                directories=tuple(directories[path].directory_id for path in config.log_dirs),
                rack=config.optional_string("broker.rack"),
                clean_shutdown=clean,
            )
        )
        logs.start(self._core, self._high_watermark)
        self._core.spawn(replicas.run(), "log-work")
        self._core.spawn(server.close_idle_connections(), "idle-connections")
        self.address = (advertised[0].host, advertised[0].port)
        if metrics_endpoint is not None and config.metrics_listener is not None:
            endpoint = metrics_endpoint(self._broker, server.limits)
            await endpoint.serve(config.metrics_listener)
            self._stack.push_async_callback(endpoint.stop)
        self._warn_of_few_descriptors(logs)
        server.serve()
        self._started = True

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

    async def stop(self) -> None:
        """Finish what is in flight, sync, close: the next start needs no recovery."""
        await self._stack.aclose()
        await self._runtime.close()

    async def _drain(self, server: Server) -> None:
        """Answer what was read. What the answers wait for, such as a flush, is stopped after this."""
        await server.stop_reading()
        await server.wait_drained(COORDINATION_SECONDS)
        # Members that wait for others would wait in vain: they are told to find their coordinator again.
        self._transactions.close()
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
        if self._started and not self._failed.done():
            await logs.close(self._broker_epoch)

    def _apply_metadata(self, change: MetadataChange) -> None:
        if change.changes_broker_configs:
            self._apply_broker_configs(change.after)
        if change.configs:
            self._config_faults.tell(self._broker.config, change)
        self._replicas.apply(change)
        self._groups.apply(change)
        self._transactions.apply(change)
        self._broker.telemetry.apply(change)

    def _apply_broker_configs(self, image: MetadataImage) -> None:
        config = effective_config(self._config, image)
        self._broker.config = config
        self._replicas.logs.config = config
        self._server.limits.configure(config)
        self._replicas.update_config(config, image)
        self._groups.update_config(config)

    def _high_watermark(self, tp: TopicPartition) -> int | None:
        found = self._replicas.find(*tp)
        return None if found is None else found.high_watermark

    async def _allocate_producer_ids(self) -> range:
        try:
            block = await self._controller.allocate_producer_ids(self._config.node_id, self._broker_epoch)
        except StorageError as error:
            # As Kafka answers where it gets no ids: producers try again, which they would not after others.
            raise CoordinatorLoadInProgress(f"no producer id can be given out: {error}") from error
        return range(block.first_id, block.first_id + block.size)


def _topic_id_of(image: MetadataImage, node_id: int, partition: TopicPartition) -> UUID | None:
    """The topic of a log that should be here, by its name."""
    topic = image.topics.get(partition.topic)
    if topic is None or partition.partition >= len(topic.partitions):
        return None
    return topic.id if node_id in topic.partitions[partition.partition].replicas else None
