"""Credentials and delegation tokens, which an image has as the log has them: who logs in is looked up there
(`security/sasl/scram_users.py`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple, TypeAlias

from immutables import Map

from ottla.metadata.records import MetadataRecord, RecordType, encode_record


class CarriedKey(NamedTuple):
    """What a record is about: the next one with the same key takes its place."""

    kind: RecordType
    identity: Hashable


Carried: TypeAlias = Map[CarriedKey, MetadataRecord]

_KINDS = (RecordType.USER_SCRAM_CREDENTIAL, RecordType.DELEGATION_TOKEN)

_REMOVALS = {
    RecordType.REMOVE_USER_SCRAM_CREDENTIAL: RecordType.USER_SCRAM_CREDENTIAL,
    RecordType.REMOVE_DELEGATION_TOKEN: RecordType.DELEGATION_TOKEN,
}

CARRIED_TYPES = {*_KINDS, *_REMOVALS}


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
