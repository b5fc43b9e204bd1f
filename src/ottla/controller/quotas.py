"""Limits of clients, changed. Each entity is altered as a whole or not at all."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ottla.controller.command import Deciding, Result, check_size
from ottla.metadata.access_records import ClientQuotaRecord, QuotaEntity
from ottla.metadata.image import MetadataImage
from ottla.metadata.quotas import Entity
from ottla.metadata.records import MetadataRecord
from ottla.wire.errors import InvalidRequest, KafkaError, PolicyViolation

_OF_CLIENTS = {
    "producer_byte_rate": True,
    "consumer_byte_rate": True,
    "request_percentage": False,
    "controller_mutation_rate": False,
}
"""Whether only whole numbers will do."""
_OF_ADDRESSES = {"connection_creation_rate": True}
_INT_MAX, _LONG_MAX = 2**31 - 1, 2**63 - 1
_FRACTION_MAX = 1e-6


class QuotaChange(NamedTuple):
    key: str
    value: float | None
    """None removes it."""


class QuotaAlteration(NamedTuple):
    entity: tuple[tuple[str, str | None], ...]
    """As it was asked for."""
    changes: tuple[QuotaChange, ...]


def alter_client_quotas(
    image: MetadataImage, alterations: Sequence[QuotaAlteration]
) -> Deciding[list[KafkaError | None]]:
    records: list[MetadataRecord] = []
    errors: list[KafkaError | None] = []
    times_named = Counter(tuple(sorted(alteration.entity, key=str)) for alteration in alterations)
    for alteration in alterations:
        yield
        try:
            if times_named[tuple(sorted(alteration.entity, key=str))] > 1:
                raise InvalidRequest("Ignoring duplicate entity")
            records += _alter(image, alteration)
            errors.append(None)
        except InvalidRequest as error:
            errors.append(error)
    try:
        check_size(records)
    except PolicyViolation as error:
        return Result([], [error] * len(alterations))
    return Result(records, errors)


def _alter(image: MetadataImage, alteration: QuotaAlteration) -> list[MetadataRecord]:
    entity = checked_entity(alteration.entity)
    keys = _OF_ADDRESSES if entity[0][0] == "ip" else _OF_CLIENTS
    current = image.quotas.get(entity, {})
    if len({change.key for change in alteration.changes}) < len(alteration.changes):
        raise InvalidRequest("Duplicate quota key, not updating quota for this entity")
    parts = tuple(QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity)
    records: list[MetadataRecord] = []
    for key, value in alteration.changes:
        if value is None:
            if key in current:
                records.append(ClientQuotaRecord(entity=parts, key=key, value=0.0, remove=True))
            continue
        _check_value(keys, key, value)
        if current.get(key) != value:
            records.append(ClientQuotaRecord(entity=parts, key=key, value=value, remove=False))
    return records


def checked_entity(parts: Sequence[tuple[str, str | None]]) -> Entity:
    """Raises InvalidRequest with the reason."""
    kinds = [kind for kind, _ in parts]
    if not parts:
        raise InvalidRequest("Invalid empty client quota entity")
    for kind, name in parts:
        if kind not in {"user", "client-id", "ip"}:
            raise InvalidRequest(f"Unhandled client quota entity type: {kind}")
        if kinds.count(kind) > 1:
            raise InvalidRequest(f"Invalid client quota entity, duplicate entity entry {kind}")
        if name == "":
            raise InvalidRequest(f"Empty {kind} not supported")
        if kind == "ip":
            if len(parts) > 1:
                raise InvalidRequest(
                    "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
                )
            _check_address(name)
    return tuple(sorted(parts, key=lambda part: part[0]))


def _check_address(name: str | None) -> None:
    try:
        if name is not None:
            ipaddress.ip_address(name)
    except ValueError:
        raise InvalidRequest(f"{name} is not a valid IP.") from None


def _check_value(keys: dict[str, bool], key: str, value: float) -> None:
    if key not in keys:
        raise InvalidRequest(f"Invalid configuration key {key}")
    if not value > 0:
        raise InvalidRequest(f"Quota {key} must be greater than 0")
    if keys[key]:
        if value > (_INT_MAX if keys is _OF_ADDRESSES else _LONG_MAX):
            raise InvalidRequest(f"Proposed value for {key} is too large.")
        if abs(value % 1.0) > _FRACTION_MAX:
            raise InvalidRequest(f"{key} cannot be a fractional value.")
