"""Who pushes metrics, what they are to push, and when they may: state of this broker, in memory.

A client instance is known from its first request until its connection closes, it was silent for long, or too
many others came. Times and checks are Kafka's.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Protocol
from uuid import UUID

from ottla.config import ConfigError
from ottla.config.client_metrics import (
    ALL_METRICS,
    INTERVAL_MS_DEFAULT,
    Subscription,
    client_metrics_subscription,
)
from ottla.metadata.change import MetadataChange
from ottla.metadata.image import MetadataImage, ResourceType
from ottla.metadata.uuids import RESERVED_MAX, random_uuid, uuid_text
from ottla.records.compression import CODEC_MAX
from ottla.records.crc import crc32c
from ottla.runtime.clock import Clock
from ottla.runtime.seldom import Seldom
from ottla.wire.errors import (
    InvalidRequest,
    TelemetryTooLarge,
    ThrottlingQuotaExceeded,
    UnknownSubscriptionId,
    UnsupportedCompressionType,
)

log = logging.getLogger(__name__)

INSTANCES_MAX = 16_384
SILENT_SECONDS_MIN = 60.0


class Client(Protocol):
    """What a connection knows of the client at its other end."""

    @property
    def address(self) -> str: ...

    @property
    def client_id(self) -> str | None: ...

    @property
    def software_name(self) -> str | None: ...

    @property
    def software_version(self) -> str | None: ...


@dataclass(slots=True)
class Instance:
    """One client, and what it was told to push."""

    id: UUID
    metrics: tuple[str, ...]
    interval_ms: int
    version: int
    """Of the subscriptions that were looked at."""
    seen: float = -inf
    got: float = -inf
    pushed: float = -inf
    is_terminating: bool = False
    may_ask_again: bool = False
    """Its last push was refused for what it has to ask for anew."""

    @property
    def interval_seconds(self) -> float:
        return self.interval_ms / 1000

    @property
    def subscription_id(self) -> int:
        """Changes with what the client is to do, as a signed number of 32 bits."""
        told = f"[{', '.join(self.metrics)}]{self.interval_ms}".encode()
        half = (self.id.int >> 64) ^ self.id.int
        mixed = (crc32c(told) ^ (half >> 32) ^ half) & 0xFFFF_FFFF
        return mixed - (1 << 32) if mixed >> 31 else mixed

    def is_expired(self, now: float) -> bool:
        return now - self.seen > max(SILENT_SECONDS_MIN, 3 * self.interval_seconds)


class ClientTelemetry:
    def __init__(self, clock: Clock, random: Random, push_bytes_max: int) -> None:
        self._clock = clock
        self._random = random
        self.push_bytes_max = push_bytes_max
        self.pushes = 0
        self.pushed_bytes = 0
        self._subscriptions: tuple[Subscription, ...] = ()
        self._version = 0
        self._instances: OrderedDict[UUID, Instance] = OrderedDict()
        self._instance_at: dict[str, UUID] = {}
        """By the address of the connection."""
        self._warning = Seldom(clock)

    @property
    def instances(self) -> int:
        return len(self._instances)

    def apply(self, change: MetadataChange) -> None:
        if any(kind == ResourceType.CLIENT_METRICS for kind, _ in change.configs):
            self._version += 1
            self._subscriptions = tuple(_subscriptions(change.after))

    def forget(self, address: str) -> None:
        """The connection is closed."""
        instance_id = self._instance_at.pop(address, None)
        if instance_id is not None:
            self._instances.pop(instance_id, None)

    def subscribe(self, instance_id: UUID | None, client: Client) -> Instance:
        now = self._clock.monotonic()
        instance = self._instance(instance_id or random_uuid(self._random), client, now)
        if now - max(instance.got, instance.pushed) >= instance.interval_seconds:
            instance.got = now
        elif not instance.may_ask_again:
            raise _too_early(instance)
        instance.may_ask_again = False
        return instance

    def check_push(
        self,
        instance_id: UUID | None,
        client: Client,
        *,
        subscription_id: int,
        is_terminating: bool,
        codec: int,
        size: int,
    ) -> Instance:
        if instance_id is None or instance_id.int <= RESERVED_MAX:
            raise InvalidRequest("A push needs the client instance id that GetTelemetrySubscriptions gave.")
        now = self._clock.monotonic()
        instance = self._instance(instance_id, client, now)
        instance.may_ask_again = False
        try:
            self._check(instance, now, subscription_id, is_terminating, codec, size)
        except (UnknownSubscriptionId, UnsupportedCompressionType):
            instance.may_ask_again = True
            raise
        finally:
            instance.is_terminating = is_terminating
        self.pushes += 1
        self.pushed_bytes += size
        return instance

    def _check(
        self,
        instance: Instance,
        now: float,
        subscription_id: int,
        is_terminating: bool,
        codec: int,
        size: int,
    ) -> None:
        name = uuid_text(instance.id)
        if instance.is_terminating:
            raise InvalidRequest(f"Client instance {name} said that its last push was the last.")
        # Clients spread their first pushes over the interval, so the one after a question may come early.
        if instance.got > instance.pushed or now - instance.pushed >= instance.interval_seconds:
            instance.pushed = now
        elif not is_terminating:
            raise _too_early(instance)
        if subscription_id != instance.subscription_id:
            raise UnknownSubscriptionId(
                f"Client instance {name} pushes for subscription {subscription_id}; it is to ask again."
            )
        if not 0 <= codec <= CODEC_MAX:
            raise UnsupportedCompressionType(f"Client instance {name} pushes with the unknown codec {codec}.")
        if size > self.push_bytes_max:
            raise TelemetryTooLarge(
                f"Client instance {name} pushes {size} bytes; telemetry.max.bytes is {self.push_bytes_max}."
            )

    def _instance(self, instance_id: UUID, client: Client, now: float) -> Instance:
        instance = self._instances.get(instance_id)
        if instance is None or instance.version != self._version or instance.is_expired(now):
            instance = self._evaluate(instance_id, client)
            self._instances[instance_id] = instance
        instance.seen = now
        self._instances.move_to_end(instance_id)
        self._instance_at[client.address] = instance_id
        self._make_room(now)
        return instance

    def _evaluate(self, instance_id: UUID, client: Client) -> Instance:
        described = _described(instance_id, client)
        found = [subscription for subscription in self._subscriptions if subscription.covers(described)]
        metrics = {name for subscription in found for name in subscription.metrics}
        if ALL_METRICS in metrics:
            metrics = {ALL_METRICS}
        interval_ms = min((subscription.interval_ms for subscription in found), default=INTERVAL_MS_DEFAULT)
        interval_ms = min(interval_ms, INTERVAL_MS_DEFAULT)
        return Instance(instance_id, tuple(sorted(metrics)), interval_ms, self._version)

    def _make_room(self, now: float) -> None:
        """Those heard of least recently come first."""
        while self._instances:
            oldest = next(iter(self._instances.values()))
            is_full = len(self._instances) > INSTANCES_MAX
            if not is_full and not oldest.is_expired(now):
                return
            del self._instances[oldest.id]
            if is_full and self._warning.is_due():
                log.warning(
                    "more than %d client instances ask what metrics to push; the ones heard of least "
                    "recently are forgotten, and may push before their interval is over",
                    INSTANCES_MAX,
                )


def _described(instance_id: UUID, client: Client) -> Mapping[str, str | None]:
    host, _, port = client.address.rpartition(":")
    return {
        "client_id": client.client_id,
        "client_instance_id": uuid_text(instance_id),
        "client_software_name": client.software_name,
        "client_software_version": client.software_version,
        "client_source_address": host,
        "client_source_port": port,
    }


def _too_early(instance: Instance) -> ThrottlingQuotaExceeded:
    return ThrottlingQuotaExceeded(
        f"Client instance {uuid_text(instance.id)} came before {instance.interval_ms} ms were over."
    )


def _subscriptions(image: MetadataImage) -> list[Subscription]:
    """Of those that another version wrote, the ones that can be followed."""
    found = []
    for kind, name in sorted(image.configs):
        if kind != ResourceType.CLIENT_METRICS:
            continue
        try:
            found.append(client_metrics_subscription(image.config(kind, name)))
        except ConfigError as error:
            log.warning("client metrics %s: %s; the subscription is kept and has no effect", name, error)
    return found
