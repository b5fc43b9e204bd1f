"""All eight places where a limit can stand, the first of which counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from immutables import Map

from ottla.config import BrokerConfig
from ottla.metadata.access_records import ClientQuotaRecord, QuotaEntity
from ottla.metadata.image import MetadataImage
from ottla.metadata.quotas import Entity
from ottla.security import quotas as module
from ottla.security.quotas import FETCHED, MUTATIONS, PRODUCED, REQUEST_TIME, ClientQuotas, find_limit

PLACES: list[tuple[Entity, tuple[str | None, str | None]]] = [
    ((("client-id", "c"), ("user", "ann")), ("ann", "c")),
    ((("client-id", None), ("user", "ann")), ("ann", "c")),
    ((("user", "ann"),), ("ann", None)),
    ((("client-id", "c"), ("user", None)), ("ann", "c")),
    ((("client-id", None), ("user", None)), ("ann", "c")),
    ((("user", None),), ("ann", None)),
    ((("client-id", "c"),), (None, "c")),
    ((("client-id", None),), (None, "c")),
]


@pytest.mark.parametrize("first", range(8))
def test_the_most_specific_limit_counts(first: int) -> None:
    limits = {entity: {PRODUCED: float(place)} for place, (entity, _) in enumerate(PLACES)}
    quotas = Map({entity: limits[entity] for entity, _ in PLACES[first:]})
    assert find_limit(quotas, PRODUCED, "ann", "c") == (PLACES[first][1], float(first))
    assert find_limit(quotas, FETCHED, "ann", "c") is None
    # A place that limits something else is none for this.
    other = quotas.set(PLACES[0][0], {FETCHED: 1.0})
    expected = first if first else 1
    assert find_limit(other, PRODUCED, "ann", "c") == (PLACES[expected][1], float(expected))


@dataclass
class Session:
    principal: str = "User:ann"
    client_id: str | None = "c"
    limits: Any = None


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return round(self.now * 1000)


def client_quotas(*limits: tuple[Entity, str, float]) -> ClientQuotas:
    made = ClientQuotas(Clock(), BrokerConfig.from_properties({}))
    made.apply(change(*limits))
    return made


def change(*limits: tuple[Entity, str, float]) -> Any:
    records = [
        ClientQuotaRecord(
            entity=tuple(QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity),
            key=key,
            value=value,
            remove=False,
        )
        for entity, key, value in limits
    ]
    return MetadataImage().change(records, len(records), 1)


def test_without_quotas_nobody_need_look() -> None:
    quotas = client_quotas()
    assert not quotas.limits_requests
    assert not quotas.limits_time
    assert quotas.connected("10.0.0.1") == 0
    by_address = client_quotas(((("ip", None),), "connection_creation_rate", 1))
    assert not by_address.limits_requests


def test_clients_of_a_user_share_the_limit_of_that_user() -> None:
    quotas = client_quotas(((("user", "ann"),), PRODUCED, 10), ((("user", "ann"),), REQUEST_TIME, 5))
    one, other, ben = Session(), Session(client_id="d"), Session(principal="User:ben")
    limits = quotas.of(one)
    assert limits.produced is not None
    assert limits.produced is quotas.of(other).produced
    assert limits.fetched is None
    assert limits.mutations is None
    assert quotas.of(ben).produced is None
    assert quotas.limits_time
    assert quotas.of(one) is limits


def test_clients_of_all_users_each_have_the_default_for_themselves() -> None:
    quotas = client_quotas(((("client-id", None), ("user", None)), PRODUCED, 10))
    one, other, ben = Session(), Session(client_id="d"), Session(principal="User:ben")
    assert len({id(quotas.of(session).produced) for session in (one, other, ben)}) == 3


def test_a_new_limit_counts_at_once_with_what_was_counted() -> None:
    quotas = client_quotas(((("user", "ann"),), PRODUCED, 10), ((("user", "ann"),), MUTATIONS, 10))
    session = Session()
    limit = quotas.of(session).produced
    assert limit is not None
    assert limit.record(100, 0) == 0
    quotas.apply(change(((("user", "ann"),), PRODUCED, 5)))
    assert quotas.of(session).produced is limit
    assert quotas.of(session).mutations is None
    assert limit.throttle_ms(0) == 10_000
    session.principal = "User:ben"
    assert quotas.of(session).produced is None


def test_addresses_may_connect_so_often() -> None:
    quotas = client_quotas(
        ((("ip", None),), "connection_creation_rate", 1),
        ((("ip", "10.0.0.2"),), "connection_creation_rate", 2),
    )
    assert [quotas.connected("10.0.0.1") > 0 for _ in range(12)] == [False] * 10 + [True] * 2
    assert [quotas.connected("10.0.0.2") > 0 for _ in range(21)] == [False] * 20 + [True]
    assert quotas.connected("10.0.0.3") == 0


def test_counters_of_those_who_are_gone_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COUNTERS_MAX", 10)
    quotas = client_quotas(((("client-id", None),), PRODUCED, 10))
    for number in range(100):
        assert quotas.of(Session(client_id=str(number))).produced is not None
        assert len(quotas._rate_counters) <= 10
