"""Records of what Ottla does not serve yet: access rules, credentials, quotas, delegation tokens.

They come with a directory of Apache Kafka. An image carries them as they are, so that they survive snapshots
and are there for whoever can serve them next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from immutables import Map

from ottla.metadata.records import MetadataRecord, RecordType, encode_record

if TYPE_CHECKING:
    from ottla.metadata.foreign_records import QuotaEntity


class CarriedKey(NamedTuple):
    """What a record is about: the next one with the same key takes its place."""

    kind: RecordType
    identity: Hashable


Carried: TypeAlias = Map[CarriedKey, MetadataRecord]

# In the order of Apache Kafka's snapshots, with their names in a warning.
KINDS = {
    RecordType.CLIENT_QUOTA: "client quotas",
    RecordType.ACCESS_CONTROL_ENTRY: "access rules (ACLs)",
    RecordType.USER_SCRAM_CREDENTIAL: "SCRAM credentials",
    RecordType.DELEGATION_TOKEN: "delegation tokens",
}

_REMOVALS = {
    RecordType.REMOVE_ACCESS_CONTROL_ENTRY: RecordType.ACCESS_CONTROL_ENTRY,
    RecordType.REMOVE_USER_SCRAM_CREDENTIAL: RecordType.USER_SCRAM_CREDENTIAL,
    RecordType.REMOVE_DELEGATION_TOKEN: RecordType.DELEGATION_TOKEN,
}

CARRIED_TYPES = KINDS.keys() | _REMOVALS.keys()


def carry(carried: Carried, record: Any) -> Carried:
    """`carried` after a record of one of CARRIED_TYPES."""
    kind = _REMOVALS.get(record.API_KEY, record.API_KEY)
    match kind:
        case RecordType.ACCESS_CONTROL_ENTRY:
            key = CarriedKey(kind, record.id)
        case RecordType.USER_SCRAM_CREDENTIAL:
            key = CarriedKey(kind, (record.mechanism, record.name))
        case RecordType.DELEGATION_TOKEN:
            key = CarriedKey(kind, record.token_id)
        case _:
            key = CarriedKey(kind, (quota_entity(record.entity), record.key))
    is_removal = record.API_KEY in _REMOVALS or (kind is RecordType.CLIENT_QUOTA and record.remove)
    if not is_removal:
        return carried.set(key, record)
    return carried.delete(key) if key in carried else carried


def quota_entity(entity: Iterable[QuotaEntity]) -> tuple[tuple[str, str | None], ...]:
    """The same for all orders of its parts. No name stands for the default of all names."""
    return tuple(sorted(((part.entity_type, part.entity_name) for part in entity), key=lambda part: part[0]))


def carried_records(carried: Carried, kind: RecordType) -> Iterator[MetadataRecord]:
    """Those of one kind, in the same order for the same records."""
    found = (record for key, record in carried.items() if key.kind is kind)
    return iter(sorted(found, key=encode_record))


def describe_carried(carried: Iterable[CarriedKey]) -> str:
    """Such as "2 client quotas, 1 SCRAM credentials"; empty for none."""
    counts = Counter(key.kind for key in carried)
    return ", ".join(f"{counts[kind]} {name}" for kind, name in KINDS.items() if counts[kind])
