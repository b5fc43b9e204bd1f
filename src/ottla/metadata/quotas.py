"""The limits that clients have, by whom they are for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from immutables import Map

if TYPE_CHECKING:
    from ottla.metadata.access_records import ClientQuotaRecord, QuotaEntity

Entity: TypeAlias = tuple[tuple[str, str | None], ...]
"""Whom limits are for: (type, name) of each part, in the order of types; without a name, all of that type."""
Quotas: TypeAlias = Map[Entity, Mapping[str, float]]
"""The limits of each, by Kafka's names for them."""


def entity_of(parts: Iterable[QuotaEntity]) -> Entity:
    """The same for all orders of its parts."""
    return tuple(sorted(((part.entity_type, part.entity_name) for part in parts), key=lambda part: part[0]))


def with_record(quotas: Quotas, record: ClientQuotaRecord) -> Quotas:
    entity = entity_of(record.entity)
    limits = dict(quotas.get(entity, {}))
    if record.remove:
        limits.pop(record.key, None)
    else:
        limits[record.key] = record.value
    if limits:
        return quotas.set(entity, limits)
    return quotas.delete(entity) if entity in quotas else quotas


def quota_records(quotas: Quotas) -> Iterator[ClientQuotaRecord]:
    """That rebuild these, in the same order for the same limits."""
    from ottla.metadata.access_records import ClientQuotaRecord, QuotaEntity

    for entity, limits in sorted(
        quotas.items(), key=lambda item: [(k, n or "", n is None) for k, n in item[0]]
    ):
        parts = tuple(QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity)
        for key, value in sorted(limits.items()):
            yield ClientQuotaRecord(entity=parts, key=key, value=value, remove=False)
