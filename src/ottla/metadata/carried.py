"""Records of what Ottla does not serve yet: credentials, delegation tokens.

They come with a directory of Apache Kafka. An image carries them as they are, so that they survive snapshots
and are there for whoever can serve them next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

from immutables import Map

from ottla.metadata.records import MetadataRecord, RecordType, encode_record


class CarriedKey(NamedTuple):
    """What a record is about: the next one with the same key takes its place."""

    kind: RecordType
    identity: Hashable


Carried: TypeAlias = Map[CarriedKey, MetadataRecord]

# In the order of Apache Kafka's snapshots, with their names in a warning.
KINDS = {
    RecordType.USER_SCRAM_CREDENTIAL: "SCRAM credentials",
    RecordType.DELEGATION_TOKEN: "delegation tokens",
}

_REMOVALS = {
    RecordType.REMOVE_USER_SCRAM_CREDENTIAL: RecordType.USER_SCRAM_CREDENTIAL,
    RecordType.REMOVE_DELEGATION_TOKEN: RecordType.DELEGATION_TOKEN,
}

CARRIED_TYPES = KINDS.keys() | _REMOVALS.keys()


def carry(carried: Carried, record: Any) -> Carried:
    """`carried` after a record of one of CARRIED_TYPES."""
    kind = _REMOVALS.get(record.API_KEY, record.API_KEY)
    match kind:
        case RecordType.USER_SCRAM_CREDENTIAL:
            key = CarriedKey(kind, (record.mechanism, record.name))
        case _:
            key = CarriedKey(kind, record.token_id)
    if record.API_KEY not in _REMOVALS:
        return carried.set(key, record)
    return carried.delete(key) if key in carried else carried


def carried_records(carried: Carried, kind: RecordType) -> Iterator[MetadataRecord]:
    """Those of one kind, in the same order for the same records."""
    found = (record for key, record in carried.items() if key.kind is kind)
    return iter(sorted(found, key=encode_record))


def describe_carried(carried: Iterable[CarriedKey]) -> str:
    """Such as "2 delegation tokens, 1 SCRAM credentials"; empty for none."""
    counts = Counter(key.kind for key in carried)
    return ", ".join(f"{counts[kind]} {name}" for kind, name in KINDS.items() if counts[kind])
