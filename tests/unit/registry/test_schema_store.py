from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.records.records import Record
from ottla.registry.records import Change, Key, decode, encode
from ottla.registry.schema import Reference, Schema, Version
from ottla.registry.store import Store


def put(store: Store, subject: str, number: int, schema_id: int, text: str = '"int"', **more: Any) -> None:
    version = Version(subject, number, schema_id, Schema("AVRO", text, **more))
    record = encode(Change(Key("SCHEMA", subject, number), version.value()), 0)
    apply(store, record)


def apply(store: Store, record: Record) -> None:
    change = decode(record)
    assert change is not None
    store.apply(change)


def test_what_was_written_is_read_back() -> None:
    store = Store()
    reference = Reference("other", "base", 1)
    put(store, "s", 1, 7, references=(reference,), metadata={"properties": {"a": "b"}})
    found = store.version("s", 1)
    assert found == Version(
        "s", 1, 7, Schema("AVRO", '"int"', (reference,), {"properties": {"a": "b"}}), deleted=False
    )
    assert store.referrers("base", 1) == [found]
    assert store.of_id(".", 7) == [found]
    assert store.of_guid(found.schema.guid) == [found]


def test_a_deleted_subject_stays_until_its_records_go() -> None:
    store = Store()
    put(store, "s", 1, 1)
    put(store, "s", 2, 2, '"long"')
    apply(store, encode(Change(Key("DELETE_SUBJECT", "s"), {"subject": "s", "version": 1}), 0))
    assert [version.deleted for version in store.versions("s")] == [True, False]
    for number in (1, 2):
        apply(store, encode(Change(Key("SCHEMA", "s", number), None), 0))
    assert store.subjects() == []
    assert store.of_id(".", 2) == []
    # Ids that were given are not given again.
    assert store.next_id(".") == 3


def test_confluents_records_of_all_ages_are_understood() -> None:
    store = Store()
    rows = [
        ({"keytype": "CONFIG", "subject": None, "magic": 0}, {"compatibilityLevel": "FULL"}),
        ({"keytype": "NOOP", "magic": 0}, None),
        ({"keytype": "ASSOC", "resource": "new"}, {"any": "thing"}),
        (
            {"magic": 1, "keytype": "SCHEMA", "version": 1, "subject": "old"},
            {"subject": "old", "version": 1, "id": 1, "schema": '"int"', "deleted": False},
        ),
    ]
    for key, value in rows:
        record = Record(json.dumps(key).encode(), None if value is None else json.dumps(value).encode())
        if (change := decode(record)) is not None:
            store.apply(change)
    assert store.configs[None] == {"compatibilityLevel": "FULL"}
    assert store.versions("old")[0].schema == Schema("AVRO", '"int"')


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"no JSON", b"{}"),
        (b'{"keytype":"SCHEMA","magic":1}', b'{"subject":"s"}'),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b"[]"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b'{"subject":"s"}'),
        (b'{"keytype":"MODE","magic":0}', b"{}"),
    ],
)
def test_what_is_no_record_of_a_registry_is_told_apart_and_changes_nothing(
    key: bytes | None, value: bytes
) -> None:
    store = Store()
    with pytest.raises((ValueError, KeyError, TypeError)):
        apply(store, Record(key, value))
    assert (store.subjects(), store.modes) == ([], {})
