"""How much clients may do: bytes written and read, time of the broker, changes of the cluster.

Limits are for a user, a client id, both together, or for all that have none of their own. Of the eight places
where a limit can stand the first counts, and says who shares it:

| limit for | is shared by |
|---|---|
| user and client id, user and any client id | that client of that user |
| user | all clients of that user |
| any user and client id, any user and any client id | each client of each user |
| any user | all clients of each user |
| client id, any client id | that client, whosever it is |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from immutables import Map

from ottla.metadata.quotas import Entity, Quotas
from ottla.security.rates import RateLimit, TokenBucket

if TYPE_CHECKING:
    from ottla.config import BrokerConfig
    from ottla.metadata.change import MetadataChange
    from ottla.runtime.clock import Clock

PRODUCED = "producer_byte_rate"
FETCHED = "consumer_byte_rate"
REQUEST_TIME = "request_percentage"
MUTATIONS = "controller_mutation_rate"
CONNECTIONS = "connection_creation_rate"
USER, CLIENT_ID, IP = "user", "client-id", "ip"

COUNTERS_MAX = 10_000
"""Then those are dropped of which nobody has heard lately."""

Shared = tuple[str | None, str | None]
"""Who shares a limit: user and client id, None where it does not matter."""


class Client(Protocol):
    principal: str
    client_id: str | None
    limits: ClientLimits | None


class ClientLimits:
    """What counts for one client under one set of quotas; None where it is not limited."""

    __slots__ = ("client_id", "fetched", "mutations", "principal", "produced", "quotas", "request_time")

    def __init__(self, quotas: Quotas, client: Client) -> None:
        self.quotas = quotas
        self.principal = client.principal
        self.client_id = client.client_id
        self.produced: RateLimit | None = None
        self.fetched: RateLimit | None = None
        self.request_time: RateLimit | None = None
        self.mutations: TokenBucket | None = None


class ClientQuotas:
    def __init__(self, clock: Clock, config: BrokerConfig) -> None:
        self._clock = clock
        self._quotas: Quotas = Map()
        self.limits_requests = False
        """Any quota limits what requests do: as long as not, nobody need look."""
        self.limits_time = False
        self._rate_counters: dict[tuple[str, Shared], RateLimit] = {}
        self._bucket_counters: dict[Shared, TokenBucket] = {}
        self._connections: dict[str, RateLimit] = {}
        self._samples = config.integer("quota.window.num")
        self._window_ms = config.integer("quota.window.size.seconds") * 1000
        self._bucket_samples = config.integer("controller.quota.window.num")
        self._bucket_window_ms = config.integer("controller.quota.window.size.seconds") * 1000

    def apply(self, change: MetadataChange) -> None:
        if change.after.quotas is self._quotas:
            return
        self._quotas = change.after.quotas
        keys = {key for limits in self._quotas.values() for key in limits}
        self.limits_requests = bool(keys & {PRODUCED, FETCHED, MUTATIONS, REQUEST_TIME})
        self.limits_time = REQUEST_TIME in keys

    def now_ms(self) -> float:
        return self._clock.monotonic() * 1000

    def of(self, client: Client) -> ClientLimits:
        known = client.limits
        if (
            known is None
            or known.quotas is not self._quotas
            or known.principal is not client.principal
            or known.client_id != client.client_id
        ):
            known = client.limits = self._resolve(client)
        return known

    def _resolve(self, client: Client) -> ClientLimits:
        limits = ClientLimits(self._quotas, client)
        user = client.principal.partition(":")[2]
        client_id = client.client_id or ""
        limits.produced = self._rate(PRODUCED, user, client_id)
        limits.fetched = self._rate(FETCHED, user, client_id)
        limits.request_time = self._rate(REQUEST_TIME, user, client_id)
        found = find_limit(self._quotas, MUTATIONS, user, client_id)
        if found is not None:
            shared, per_second = found
            limits.mutations = _counter(
                self._bucket_counters,
                shared,
                partial(TokenBucket, per_second, self._bucket_samples, self._bucket_window_ms),
                per_second,
                self.now_ms,
            )
        return limits

    def _rate(self, key: str, user: str, client_id: str) -> RateLimit | None:
        found = find_limit(self._quotas, key, user, client_id)
        if found is None:
            return None
        shared, per_second = found
        return _counter(
            self._rate_counters,
            (key, shared),
            partial(RateLimit, per_second, self._samples, self._window_ms),
            per_second,
            self.now_ms,
        )

    def connected(self, host: str) -> int:
        """Counts a connection; how long it has to wait for the rate of its address, in milliseconds."""
        for name in (host, None):
            per_second = self._quotas.get(((IP, name),), {}).get(CONNECTIONS)
            if per_second is not None:
                counter = _counter(
                    self._connections,
                    host,
                    partial(RateLimit, per_second, self._samples, self._window_ms),
                    per_second,
                    self.now_ms,
                )
                now_ms = self.now_ms()
                throttle_ms = counter.record(1, now_ms)
                if throttle_ms:
                    counter.take_back(1, now_ms)
                return throttle_ms
        return 0


def find_limit(quotas: Quotas, key: str, user: str, client_id: str) -> tuple[Shared, float] | None:
    """The limit that counts, and who shares it."""
    places: tuple[tuple[Entity, Shared], ...] = (
        (((CLIENT_ID, client_id), (USER, user)), (user, client_id)),
        (((CLIENT_ID, None), (USER, user)), (user, client_id)),
        (((USER, user),), (user, None)),
        (((CLIENT_ID, client_id), (USER, None)), (user, client_id)),
        (((CLIENT_ID, None), (USER, None)), (user, client_id)),
        (((USER, None),), (user, None)),
        (((CLIENT_ID, client_id),), (None, client_id)),
        (((CLIENT_ID, None),), (None, client_id)),
    )
    for entity, shared in places:
        limits: Mapping[str, float] | None = quotas.get(entity)
        if limits is not None and key in limits:
            return shared, limits[key]
    return None


class _Counter(Protocol):
    per_second: float

    def is_idle(self, now_ms: float) -> bool: ...


K = TypeVar("K")
C = TypeVar("C", bound=_Counter)


def _counter(
    counters: dict[K, C], key: K, make: Callable[[], C], per_second: float, now_ms: Callable[[], float]
) -> C:
    found = counters.get(key)
    if found is None:
        if len(counters) >= COUNTERS_MAX:
            now = now_ms()
            for idle in [other for other, counter in counters.items() if counter.is_idle(now)]:
                del counters[idle]
        found = counters[key] = make()
    found.per_second = per_second
    return found
