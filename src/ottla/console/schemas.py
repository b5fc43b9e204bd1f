"""Values that begin with the id of a schema in a registry, made readable: Avro, JSON Schema and Protobuf.

Records are taken apart in threads, so a registry may be waited for here. What it said of an id is kept.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.client.schema_registry import NotFramed, unframed
from ottla.console.problems import Refused
from ottla.console.rest import Rest
from ottla.varints import read_varint

_KEPT_MAX = 10_000
_TIMEOUT_S = 5.0
_SILENT_S = 15.0
"""A registry that does not answer is left alone for so long: a page has many records."""
_REFERENCES_DEEP_MAX = 20

Decode = Callable[[bytes], Any]


class Decoded(NamedTuple):
    kind: str
    """avro, json or protobuf."""
    data: Any


class Schemas:
    def __init__(self, address: str) -> None:
        self._rest = Rest("the schema registry", address, _TIMEOUT_S)
        self._known: dict[int, tuple[str, Decode] | str] = {}
        """A decoder, or why there is none."""
        self._silent_until_s = 0.0

    def decode(self, data: bytes) -> Decoded | str | None:
        """None for what does not begin as those do; a sentence where its schema cannot be had or used."""
        try:
            schema_id, body = unframed(data)
        except NotFramed:
            return None
        found = self._decoder(schema_id)
        if isinstance(found, str):
            return found
        kind, decode = found
        try:
            return Decoded(kind, decode(body))
        except Exception as error:
            return f"schema {schema_id} ({kind}) does not fit: {type(error).__name__}: {error}"

    def _decoder(self, schema_id: int) -> tuple[str, Decode] | str:
        found = self._known.get(schema_id)
        if found is not None:
            return found
        if time.monotonic() < self._silent_until_s:
            return f"schema {schema_id}: the schema registry did not answer a moment ago"
        try:
            told = self._rest.ask_now("GET", "schemas", "ids", str(schema_id))
            found = _decoder(told, self._referred(told, 0))
        except Refused as error:
            found = f"schema {schema_id}: {error}"
            if error.status != 404:
                self._silent_until_s = time.monotonic() + _SILENT_S
                return found
        except ModuleNotFoundError as error:
            found = f"schema {schema_id} needs the package {error.name}: pip install 'ottla[registry]'"
        except Exception as error:
            found = f"schema {schema_id} cannot be used: {error}"
        if len(self._known) >= _KEPT_MAX:
            self._known.clear()
        self._known[schema_id] = found
        return found

    def _referred(self, told: Any, depth: int) -> tuple[tuple[str, str], ...]:
        """Name and text of all schemas that this one needs, those without references first."""
        if depth > _REFERENCES_DEEP_MAX:
            raise ValueError("its references never end")
        found: dict[str, str] = {}
        for each in told.get("references", ()):
            other = self._rest.ask_now("GET", "subjects", each["subject"], "versions", str(each["version"]))
            found.update(self._referred(other, depth + 1))
            found[each["name"]] = other["schema"]
        return tuple(found.items())


def _decoder(told: Any, references: tuple[tuple[str, str], ...]) -> tuple[str, Decode]:
    match told.get("schemaType", "AVRO"):
        case "AVRO":
            return "avro", _avro(told["schema"], references)
        case "JSON":
            return "json", json.loads
        case "PROTOBUF":
            return "protobuf", _protobuf(told["schema"], references)
        case kind:
            raise ValueError(f"it is of the type {kind}")


def _avro(text: str, references: tuple[tuple[str, str], ...]) -> Decode:
    import fastavro

    named: dict[str, Any] = {}
    for _, each in references:
        fastavro.parse_schema(json.loads(each), named_schemas=named)
    schema = fastavro.parse_schema(json.loads(text), named_schemas=named)
    return lambda body: fastavro.schemaless_reader(io.BytesIO(body), schema, None)


def _protobuf(text: str, references: tuple[tuple[str, str], ...]) -> Decode:
    from google.protobuf import descriptor_pool, json_format, message_factory

    from ottla.registry.formats.protobuf import parse_protobuf

    parsed = parse_protobuf(text, references)
    pool = descriptor_pool.DescriptorPool()
    for file in (*parsed.imports, parsed.file):
        pool.AddSerializedFile(file.SerializeToString())
    messages = pool.FindFileByName(parsed.file.name).message_types_by_name

    def decode(body: bytes) -> Any:
        count, at = read_varint(body, 0)
        indexes = []
        for _ in range(count):
            index, at = read_varint(body, at)
            indexes.append(index)
        kinds: Any = parsed.file.message_type
        descriptor = None
        for index in indexes or [0]:
            name = kinds[index].name
            descriptor = messages[name] if descriptor is None else descriptor.nested_types_by_name[name]
            kinds = kinds[index].nested_type
        message = message_factory.GetMessageClass(descriptor).FromString(body[at:])
        return json_format.MessageToDict(message, preserving_proto_field_name=True)

    return decode
