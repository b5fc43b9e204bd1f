"""A schema as it is registered: its text, type and references, and what else travels with it."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from dataclasses import dataclass
from typing import Any

AVRO = "AVRO"
JSON = "JSON"
PROTOBUF = "PROTOBUF"
NUMBER_MAX = (1 << 31) - 1
"""Of versions, and of ids, for which records have four bytes."""


@dataclass(frozen=True, slots=True)
class Reference:
    name: str
    subject: str
    version: int

    def shown(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class Schema:
    type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None

    @property
    def digest(self) -> bytes:
        """The same for equal schemas; of schemas without metadata and rules it is Confluent's."""
        hashed = hashlib.md5(self.text.encode(), usedforsecurity=False)
        for reference in self.references:
            hashed.update(reference.name.encode() + reference.subject.encode())
            hashed.update(reference.version.to_bytes(4, "big", signed=True))
        for extra in (self.metadata, self.rule_set):
            if extra is not None:
                hashed.update(b"\1" + json.dumps(extra, sort_keys=True).encode())
        return hashed.digest()

    @property
    def properties(self) -> dict[str, Any]:
        """Of its metadata."""
        return (self.metadata or {}).get("properties") or {}

    @property
    def guid(self) -> str:
        return str(uuid.UUID(bytes=self.digest))

    def shown(self) -> dict[str, Any]:
        """The part of an answer that describes the schema; what is empty is left out."""
        shown: dict[str, Any] = {"guid": self.guid, "schemaType": self.type}
        if self.references:
            shown["references"] = [reference.shown() for reference in self.references]
        if self.metadata:
            shown["metadata"] = self.metadata
        if self.rule_set:
            shown["ruleSet"] = self.rule_set
        return shown | {"schema": self.text}


@dataclass(frozen=True, slots=True)
class Version:
    """A schema in its place: one version of one subject."""

    subject: str
    number: int
    id: int
    schema: Schema
    deleted: bool = False

    def shown(self) -> dict[str, Any]:
        return {"subject": self.subject, "version": self.number, "id": self.id, **self.schema.shown()}

    def value(self) -> dict[str, Any]:
        """As it is written to the topic."""
        schema = self.schema
        value: dict[str, Any] = {"subject": self.subject, "version": self.number, "id": self.id}
        value |= {"md5": base64.b64encode(schema.digest).decode(), "schemaType": schema.type}
        if schema.references:
            value["references"] = [reference.shown() for reference in schema.references]
        if schema.metadata:
            value["metadata"] = schema.metadata
        if schema.rule_set:
            value["ruleSet"] = schema.rule_set
        return value | {"schema": schema.text, "deleted": self.deleted}


def read_version(value: dict[str, Any]) -> Version:
    """KeyError, TypeError or ValueError for a value that is none."""
    schema = Schema(
        value.get("schemaType") or AVRO,
        str(value["schema"]),
        read_references(value.get("references")),
        read_extra(value.get("metadata")),
        read_extra(value.get("ruleSet")),
    )
    return Version(
        str(value["subject"]),
        int(value["version"]),
        int(value["id"]),
        schema,
        bool(value.get("deleted", False)),
    )


def read_references(rows: Any) -> tuple[Reference, ...]:
    """KeyError, TypeError or ValueError for what are none."""
    return tuple(
        Reference(str(row["name"]), str(row["subject"]), _version(row["version"])) for row in rows or ()
    )


def _version(given: Any) -> int:
    number = int(given) if isinstance(given, str) else given
    if not isinstance(number, int) or not -1 <= number <= NUMBER_MAX:
        raise ValueError(f"{given!r} is no version")
    return number


def read_extra(value: Any) -> dict[str, Any] | None:
    """Metadata or a rule set. ValueError for what is none, or would be none for other registries."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is no object")
    properties = value.get("properties")
    if properties is not None and not (
        isinstance(properties, dict) and all(isinstance(each, str) for each in properties.values())
    ):
        raise ValueError(f"{properties!r} are not texts by name")
    return value
